import { expect, test } from "vitest";

import { groups, together } from "./appending";
import { appended, spliced, thinned } from "./merge";
import { decoded, type Series } from "./wire";

function series(step: number[], value: number[], at: number[] = step.map((n) => 1_000_000 + n * 1000)): Series {
  const of = (from: number[]): Float64Array => Float64Array.from(from);
  return { job: "j", key: "loss", rank: 0, source: "text", thinned: false, step: of(step), at: of(at), value: of(value) };
}

test("new points come after the old ones, and what is known is not doubled", () => {
  const found = appended(series([0, 1, 2], [9, 8, 7]), series([2, 3, 4], [7, 6, 5]));
  expect([...found.step]).toEqual([0, 1, 2, 3, 4]);
  expect([...found.value]).toEqual([9, 8, 7, 6, 5]);
});

test("of a step that a later attempt did again, the later counts", () => {
  const old = series([0, 10, 20, 30], [4, 3, 2, 1]);
  const found = appended(old, series([20, 30], [2.5, 1.5], [2_000_000, 2_001_000]));
  expect([...found.step]).toEqual([0, 10, 20, 30]);
  expect([...found.value]).toEqual([4, 3, 2.5, 1.5]);
});

test("points without a step are put in order of time", () => {
  const found = appended(series([NaN, NaN], [1, 2], [10, 20]), series([NaN, NaN], [2, 3], [20, 30]));
  expect([...found.value]).toEqual([1, 2, 3]);
});

test("nothing new leaves the very same series", () => {
  const old = series([0], [1]);
  expect(appended(old, series([], []))).toBe(old);
});

test("a finer part replaces the coarse points between its ends only", () => {
  const whole = series([0, 100, 200, 300], [1, 2, 3, 4]);
  const found = spliced(whole, series([90, 100, 110], [20, 21, 22]), "step");
  expect([...found.step]).toEqual([0, 90, 100, 110, 200, 300]);
  expect([...found.value]).toEqual([1, 20, 21, 22, 3, 4]);
});

test("live points beyond the end of a finer part stay", () => {
  const whole = series([0, 100, 200, 201, 202], [1, 2, 3, 4, 5]);
  const found = spliced(whole, series([100, 150, 200], [2, 2.5, 3]), "step");
  expect([...found.step]).toEqual([0, 100, 150, 200, 201, 202]);
});

test("too many points are thinned, and the peak stays", () => {
  const many = Array.from({ length: 10_000 }, (_, n) => n);
  const found = thinned(series(many, many.map((n) => (n === 7777 ? 99 : n % 3))), 2000); // prettier-ignore
  expect(found.value.length).toBeLessThanOrEqual(2010);
  expect(found.value).toContain(99);
  expect(found.thinned).toBe(true);
});

test("each rank takes its own points, and a new rank is shown", () => {
  const other = { ...series([5], [50]), rank: 1 };
  const found = together([series([0], [1])], [series([1], [2]), other]);
  expect(found.map((each) => [each.rank, [...each.value]])).toEqual([[0, [1, 2]], [1, [50]]]); // prettier-ignore
});

test("keys that are logged now, rarely, and not yet are asked for apart", () => {
  const now = 10_000_000;
  const at = (...times: number[]): Series[] => [series(times, times, times)];
  const found = groups(new Map([["loss", at(now)], ["lr", at(now - 1000)], ["val", at(now - 900_000)], ["test", []]])); // prettier-ignore
  expect(found).toEqual([
    { keys: ["loss", "lr"], from: now - 3000 },
    { keys: ["val"], from: now - 902_000 },
    { keys: ["test"], from: null },
  ]);
});

function encoded(head: object, ...columns: number[][]): ArrayBuffer {
  let text = JSON.stringify(head);
  text += " ".repeat((8 - ((text.length + 1) % 8)) % 8) + "\n";
  const bytes = [...new TextEncoder().encode(text)];
  for (const column of columns) bytes.push(...new Uint8Array(Float64Array.from(column).buffer));
  return Uint8Array.from(bytes).buffer;
}

test("the server's doubles are read without a copy", () => {
  const head = { series: [{ key: "loss", rank: 0, source: "text", thinned: false, count: 2 }, { key: "acc", rank: 1, source: "", thinned: true, count: 1 }] }; // prettier-ignore
  const found = decoded("j-1", encoded(head, [0, 1], [10, 20], [0.5, NaN], [7], [8], [Infinity]));
  expect(found.map((each) => [each.job, each.key, each.rank, each.thinned])).toEqual([
    ["j-1", "loss", 0, false],
    ["j-1", "acc", 1, true],
  ]);
  expect([...(found[0] as Series).value]).toEqual([0.5, NaN]);
  expect([...(found[1] as Series).value]).toEqual([Infinity]);
});

test("an answer that was cut short is told, not drawn", () => {
  const head = { series: [{ key: "loss", rank: 0, source: "", thinned: false, count: 3 }] };
  expect(() => decoded("j", encoded(head, [0, 1, 2], [0, 1]))).toThrow("cut short");
  expect(() => decoded("j", new ArrayBuffer(0))).toThrow("without a head");
});
