import { expect, test } from "vitest";

import { differences, diffLines, flat } from "./diff";

test("what is deep is named by its path, what is empty is left out", () => {
  expect([...flat({ run: ["python", "a.py"], env: { vars: { A: "1" }, image: null }, n: 0, on: false, none: {}, list: [] })]).toEqual([
    ["run", "python a.py"],
    ["env.vars.A", "1"],
    ["n", "0"],
    ["on", "false"],
  ]);
});

test("only rows that differ are left, in order of name", () => {
  const here = flat({ lr: 0.1, same: 1, gone: "x" });
  const there = flat({ lr: 0.2, same: 1, fresh: "y" });
  expect(differences(here, there)).toEqual([
    { name: "fresh", here: undefined, there: "y" },
    { name: "gone", here: "x", there: undefined },
    { name: "lr", here: "0.1", there: "0.2" },
  ]);
});

test("a hostile spec with endless names ends", () => {
  const wide = Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`k${at}`, at]));
  expect(flat(wide).size).toBe(2000);
});

test("a unified diff is read line by line", () => {
  expect(diffLines("@@ -1 +1 @@\n-a\n+b\n c").map((each) => each.kind)).toEqual(["head", "removed", "added", "same"]);
});
