import { expect, test } from "vitest";

import type { Row } from "./columns";
import { extended, measuredNow, moved, renewed, replaced, type Loaded } from "./rows";

const page = (ids: string, next: string | null = null): Loaded => ({
  rows: [...ids].map((id) => ({ id, state: "queued" }) as Row),
  next,
});
const ids = (loaded: Loaded): string => loaded.rows.map((each) => each.id).join("");

test("a new job goes to the top and what was loaded behind stays", () => {
  const found = renewed(page("abcdef", "6"), page("Xab", "3"));
  expect(ids(found)).toBe("Xabcdef");
  expect(found.next).toBe("6");
});

test("a job that is gone from the first page is gone", () => {
  expect(ids(renewed(page("abcdef", "6"), page("acd", "3")))).toBe("acdef");
});

test("when everything is new, what lay behind is loaded again", () => {
  const found = renewed(page("abc", "3"), page("XYZ", "z"));
  expect(ids(found)).toBe("XYZ");
  expect(found.next).toBe("z");
});

test("a first page that is all there is replaces all", () => {
  expect(ids(renewed(page("abcdef"), page("ab")))).toBe("ab");
});

test("a job that moved up is not there twice", () => {
  expect(ids(renewed(page("abcdef", "6"), page("eab", "3")))).toBe("eabcdf");
  expect(ids(extended(page("abc", "3"), page("cde")))).toBe("abcde");
});

test("rows asked anew are replaced, or gone", () => {
  const fresh = { id: "b", state: "running" } as Row;
  const found = replaced(page("abc"), ["b", "c"], [fresh]);
  expect(ids(found)).toBe("ab");
  expect(found.rows[1]?.state).toBe("running");
});

test("an event changes its row only", () => {
  const found = moved(page("abc"), "b", { state: "failed" });
  expect(found.rows.map((each) => each.state)).toEqual(["queued", "failed", "queued"]);
  const before = page("abc");
  expect(moved(before, "z", { state: "failed" })).toBe(before);
});

test("a value that arrives is the last, and may be the smallest", () => {
  const row = { id: "a", metrics: { loss: { last: 2, min: 1.5, max: 3 } } } as unknown as Row;
  const found = measuredNow({ rows: [row], next: null }, "a", { loss: 1, other: 4 }, 7);
  expect(found.rows[0]?.metrics).toEqual({ loss: { last: 1, min: 1, max: 3 }, other: { last: 4, min: 4, max: 4 } });
  expect(found.rows[0]?.step).toBe(7);
});
