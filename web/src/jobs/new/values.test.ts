import { expect, test } from "vitest";

import { commandOf, linesAt, listOf, mappingOf, placed, rolesOf, valueOf } from "./values";

test("a parameter is a truth, a number or text", () => {
  expect(["true", "3", "-1e-3", "adam", "1.2.3", "", "inf"].map(valueOf)).toEqual([true, 3, -0.001, "adam", "1.2.3", "", "inf"]);
});

test("a command is one line, however it was written", () => {
  expect(commandOf("python a.py --x 1")).toBe("python a.py --x 1");
  expect(commandOf(["python", "a b.py", "it's"])).toBe(`python 'a b.py' 'it'\\''s'`);
  expect(commandOf(undefined)).toBe("");
});

test("workers: N is the role worker", () => {
  expect(rolesOf({ workers: 4 })).toEqual([{ name: "worker", role: { count: 4 } }]);
  expect(rolesOf({ workers: 4, roles: { ps: { count: 1 } } }).map((each) => each.name)).toEqual(["worker", "ps"]);
  expect(rolesOf({})).toEqual([{ name: "worker", role: {} }]);
  expect(rolesOf({ roles: { worker: null } })).toEqual([{ name: "worker", role: {} }]);
});

test("lists and lines", () => {
  expect(listOf(" a, b ,")).toEqual(["a", "b"]);
  expect(listOf(" ")).toBeUndefined();
  expect(linesAt({ params: { lr: 0.1, b: null } }, ["params"])).toBe("lr=0.1\nb=");
  expect(mappingOf("lr = 0.1\n\nopt=adam=w\nhalf", false)).toEqual({ lr: 0.1, opt: "adam=w" });
  expect(mappingOf("N=1", true)).toEqual({ N: "1" });
  expect(mappingOf("", false)).toBeUndefined();
});

test("what the server found wrong stands at its field", () => {
  const wrong = [
    { field: "spec.roles.worker.gpus", found: "-2", allowed: "0 or more" },
    { field: "spec.limits.time", found: "'x'", allowed: "a duration" },
    { field: "spec.outputs.keep", found: "1", allowed: "2 or more" },
  ];
  const { at, rest } = placed(wrong, "", ["roles.worker.gpus", "limits"]);
  expect(at).toEqual({ "roles.worker.gpus": "0 or more (-2)", limits: "a duration ('x')" });
  expect(rest).toEqual(["outputs.keep: 2 or more (1)"]);
});

test("a refusal without a list may still name its field", () => {
  expect(placed([], "run: no such thing", ["run"]).at).toEqual({ run: "no such thing" });
  expect(placed([], "this gang can never start: too large", ["run"]).rest).toEqual(["this gang can never start: too large"]);
});
