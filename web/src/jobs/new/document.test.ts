import { expect, test } from "vitest";

import { at, read, textOf, write } from "./document";

const FILE = `# my job
name: digits # short
run: python train.py --lr \${lr}
params: {lr: 0.1}
roles:
  worker: {count: 2, memory: 2GiB}
retry: {times: 5, on: [lost, "exit:33"]}
`;

test("a field of the form changes its line and nothing else", () => {
  const after = write(FILE, ["name"], "other");
  expect(after).toBe(FILE.replace("name: digits", "name: other"));
  expect(write(after, ["name"], "digits")).toBe(FILE);
});

test("a field that is emptied is taken out, with what is empty above it", () => {
  const after = write(FILE, ["params", "lr"], undefined);
  expect(after).not.toContain("params");
  expect(after).toContain("# my job");
  expect(read(after).spec).not.toHaveProperty("params");
});

test("a field that was not there is made where it belongs", () => {
  const after = write("", ["roles", "worker", "gpus"], 2);
  expect(read(after).spec).toEqual({ roles: { worker: { gpus: 2 } } });
  expect(read(write(after, ["after"], ["one", "two"])).spec?.after).toEqual(["one", "two"]);
  expect(write(after, ["roles", "worker", "gpus"], undefined)).toBe("");
});

test("what stood in the way as another thing is replaced", () => {
  expect(read(write("roles: none\n", ["roles", "worker", "gpus"], 1)).spec).toEqual({ roles: { worker: { gpus: 1 } } });
});

test("it is read as the server reads it", () => {
  const { spec } = read("a: yes\nb: on\nc: 1e-3\nd: 2024-01-01\ne: true\nf: 017\ng: ~\nh: '1'\nretry: {on: [lost]}\n");
  expect(spec).toEqual({ a: "yes", b: "on", c: 0.001, d: "2024-01-01", e: true, f: 17, g: null, h: "1", retry: { on: ["lost"] } });
});

test("text that looks like a number or a truth is written so that it stays text", () => {
  for (const value of ["1", "true", "null", "1e3", "", "a: b", "# no", "6h"]) {
    expect(at(read(write("run: x\n", ["name"], value)).spec, ["name"])).toBe(value);
  }
});

test("what cannot be read says where, and is not written over", () => {
  const broken = "name: a\nrun: [1, 2\n";
  expect(read(broken).wrong?.line).toBeGreaterThanOrEqual(2);
  expect(write(broken, ["name"], "b")).toBe(broken);
  expect(read("a: 1\na: 2\n").wrong?.line).toBe(2);
  expect(read("- one\n").wrong?.why).toBe("mapping");
  expect(read("run: a\n---\nrun: b\n").wrong?.why).toBe("several");
  expect(read("").spec).toEqual({});
  expect(read("# only a comment\n").spec).toEqual({});
});

test("a spec becomes a file and comes back", () => {
  const spec = { hold: true, run: ["python", "a b.py"], name: "x", roles: { worker: { gpus: 1 } }, params: { lr: 0.1, n: 3, opt: "adam" } };
  const text = textOf(spec);
  expect(read(text).spec).toEqual(spec);
  expect(text.indexOf("name")).toBeLessThan(text.indexOf("hold"));
});
