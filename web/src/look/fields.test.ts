import { expect, test, vi } from "vitest";

vi.stubGlobal("document", { baseURI: "http://here/" });
const { Refused } = await import("../api/client");
const { fieldErrors } = await import("./fields");
const { line } = await import("./line");

test("a listed field is told at its field, in the server's words", () => {
  const error = new Refused(422, "invalid-input", "…", "", [{ field: "name", found: "'A B'", allowed: "small letters" }]);
  expect(fieldErrors(error, ["name", "role"])).toEqual({ at: { name: "small letters ('A B')" }, rest: null });
});

test("a part of a field is told at the field", () => {
  const error = new Refused(422, "invalid-input", "…", "", [{ field: "nominal.gpus", found: "-1", allowed: "from 0" }]);
  expect(fieldErrors(error, ["nominal"]).at.nominal).toBe("from 0 (-1)");
});

test("what is about no field of the form is shown whole", () => {
  const strange = new Refused(422, "invalid-input", "x: no", "", [{ field: "x", found: "1", allowed: "2" }]);
  expect(fieldErrors(strange, ["name"])).toEqual({ at: {}, rest: strange });
  const conflict = new Refused(409, "conflict", "there is a user ann", "");
  expect(fieldErrors(conflict, ["name"])).toEqual({ at: {}, rest: conflict });
  expect(fieldErrors(null, ["name"])).toEqual({ at: {}, rest: null });
});

test("a sentence that begins with the field's name is told there", () => {
  const error = new Refused(422, "invalid-input", "old: the password there is now is needed", "");
  expect(fieldErrors(error, ["old", "new"]).at.old).toBe("the password there is now is needed");
});

test("a line for the terminal survives a shell", () => {
  expect(line("user", "create", "ann", ["--role", "admin"])).toBe("windlass user create ann --role admin");
  expect(line("limit", "set", "*", false, null, ["--jobs", "3"])).toBe("windlass limit set '*' --jobs 3");
  expect(line("queue", "set", "q", ["--description", "Ann's; rm -rf $HOME"])).toBe(
    `windlass queue set q --description 'Ann'\\''s; rm -rf $HOME'`,
  );
});
