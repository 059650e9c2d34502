import { expect, test, vi } from "vitest";

vi.mock("../../api/client", () => ({}));
const { digestOf, guessedCommand, isCode, merged, pathOf } = await import("./files");

const file = (path: string, text = ""): { path: string; blob: Blob } => ({ path, blob: new Blob([text]) });

test("the folder that was chosen is the root", () => {
  expect(pathOf("project/src/train.py", "train.py")).toBe("src/train.py");
  expect(pathOf("", "train.py")).toBe("train.py");
});

test("what is no code stays at home", () => {
  expect(["a.py", "src/b.txt", ".git/config", "x/__pycache__/a.pyc", "node_modules/a.js"].filter(isCode)).toEqual(["a.py", "src/b.txt"]);
});

test("the later of two files holds", async () => {
  const found = merged([file("b.py", "old"), file("a.py")], [file("b.py", "new")]);
  expect(found.map((each) => each.path)).toEqual(["a.py", "b.py"]);
  expect(await found[1]?.blob.text()).toBe("new");
});

test("the likely command", () => {
  expect(guessedCommand([file("util.py"), file("train.py")])).toBe("python3 train.py");
  expect(guessedCommand([file("lib/x.py"), file("go.py")])).toBe("python3 go.py");
  expect(guessedCommand([file("readme.md")])).toBeNull();
});

test("a file's digest is its SHA-256", async () => {
  expect(await digestOf(new Blob(["abc"]))).toBe("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
});
