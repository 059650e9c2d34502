import { expect, test } from "vitest";

import { marked, pattern } from "./mark";

test("a match is marked across colours", () => {
  expect(marked([{ text: "ab", bold: true }, { text: "cd" }], pattern("bc", false))).toEqual([
    { text: "a", bold: true },
    { text: "b", bold: true, found: true },
    { text: "c", found: true },
    { text: "d" },
  ]);
});

test("case counts when it is asked for", () => {
  expect(marked([{ text: "Error" }], pattern("error", false))[0]?.found).toBe(true);
  expect(marked([{ text: "Error" }], pattern("error", true))[0]?.found).toBeUndefined();
});

test("a search that finds nothing at every place ends", () => {
  expect(marked([{ text: "abc" }], pattern("x*", false))).toEqual([{ text: "abc" }]);
});

test("what could run for ever, or is not a pattern here, is not marked", () => {
  expect(pattern("(a+)+$", false)).toBeNull();
  expect(pattern("(a|a)*b", false)).toBeNull();
  expect(pattern("(", false)).toBeNull();
});
