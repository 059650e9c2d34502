import { expect, test } from "vitest";

import { contrast } from "../look/colours";
import { curveSummary, curveTables, factsOf, sampled } from "./curvetables";
import { viewOf } from "./curveview";
import { nearest, placeOf, type Line } from "./line";
import { ramp } from "./ramp";
import { endsOf, linesOf, startOf } from "./lines";
import { sparkPath } from "./sparkpath";
import { stacked } from "./stacking";
import { words } from "./words";

const line = (x: number[], y: number[]): Line => ({
  id: "j", label: "otter", colour: "#000000", x: Float64Array.from(x), y: Float64Array.from(y),
}); // prettier-ignore

test("facts of a line leave out what is not finite and count it", () => {
  expect(factsOf(line([0, 1, 2, 3], [5, NaN, 1, 2]))).toEqual({
    points: 4, first: 5, last: 2, low: 1, high: 5, notFinite: 1,
  }); // prettier-ignore
  expect(factsOf(line([0, 1, 2, 3], [5, 4, 1, 2]), [1, 2])).toMatchObject({ points: 2, first: 4, last: 1 });
});

test("a chart is told in a few sentences, in both languages", () => {
  const told = curveSummary("loss", [line([0, 1], [2, 0.5])], "step", words.en, "en");
  expect(told).toBe("loss over step: 1 line. otter: from 2 to 0.5, lowest 0.5, highest 2.");
  expect(curveSummary("loss", [line([], [])], "step", words.zh, "zh")).toContain("无数据点");
});

test("the table has a row for each line and at most a hundred values, the last always", () => {
  const many = Array.from({ length: 5000 }, (_, n) => n);
  const one = line(many, many);
  const [whole, values] = curveTables([one], "step", null, words.en, "en");
  expect(whole?.rows).toHaveLength(1);
  expect(values?.rows.length).toBeLessThanOrEqual(100);
  expect(sampled([one], null).at(-1)).toBe(4999);
  expect(sampled([one], [10, 20])).toEqual([10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
});

test("the nearest place is found at both ends and between", () => {
  const x = [0, 10, 20];
  expect([-5, 4, 6, 99].map((value) => nearest(x, value))).toEqual([0, 0, 1, 2]);
  expect([nearest([], 1), placeOf(x, 10), placeOf(x, 11), placeOf(x, 99)]).toEqual([-1, 1, 2, 3]);
});

test("series become lines over steps, time since the start, and the clock", () => {
  const of = (...values: number[]): Float64Array => Float64Array.from(values);
  const series = {
    job: "j1", key: "loss", rank: 0, source: "", thinned: false,
    step: of(0, 1, 2), at: of(60_000, 63_000, 61_000), value: of(9, 8, 7),
  }; // prettier-ignore
  const over = (axis: "step" | "relative" | "time"): number[][] => {
    const [found] = linesOf([series], { axis, theme: "light", names: { j1: "otter" } });
    return [[...(found as Line).x], [...(found as Line).y]];
  };
  expect(over("step")).toEqual([[0, 1, 2], [9, 8, 7]]); // prettier-ignore
  expect(over("relative")).toEqual([[0, 1, 3], [9, 7, 8]]); // prettier-ignore
  expect(over("time")).toEqual([[60, 61, 63], [9, 7, 8]]); // prettier-ignore
  expect(startOf([series])).toBe(60_000);
  expect(endsOf([0.5, 1.5], "relative", 60_000)).toEqual([60_500, 61_500]);
  expect(endsOf([3.2, 9.7], "step", 0)).toEqual([3, 10]);
});

test("a line keeps its arrays while its series is the same, so nothing is smoothed twice", () => {
  const of = (...values: number[]): Float64Array => Float64Array.from(values);
  const series = { job: "j", key: "k", rank: 0, source: "", thinned: false, step: of(0), at: of(1), value: of(2) };
  const drawn = { axis: "relative", theme: "light", names: {} } as const;
  expect(linesOf([series], drawn)[0]?.x).toBe(linesOf([series], drawn)[0]?.x);
});

test("bars stand on each other, and what is below zero hangs", () => {
  const kinds = ["a", "b", "c"].map((kind) => ({ kind, label: kind, colour: "#000000" }));
  const parts = [{ kind: "a", value: 2 }, { kind: "b", value: -1 }, { kind: "c", value: 3 }]; // prettier-ignore
  expect(stacked({ label: "", parts }, kinds).map(({ from, to }) => [from, to])).toEqual([[0, 2], [0, -1], [2, 5]]); // prettier-ignore
});

test("a small line has a gap where there was no number, and lies in the middle when flat", () => {
  expect(sparkPath(undefined, [1, NaN, 3, 2], 100, 20).path.match(/M/g)).toHaveLength(2);
  expect(sparkPath(undefined, [4, 4], 100, 20).path).toContain(" 10.0");
  expect(sparkPath(undefined, [], 100, 20).path).toBe("");
});

test.each([["light", "#ffffff"], ["dark", "#14171a"]] as const)("every colour of the ramp is seen on %s paper", (theme, paper) => {
  for (let at = 0; at <= 1; at += 0.05) expect(contrast(ramp(at, theme), paper)).toBeGreaterThan(3);
  expect(contrast(ramp(NaN, theme), paper)).toBeGreaterThan(3);
}); // prettier-ignore

const shown = (one: Line) => [{ line: one, y: one.y }];
const way = { log: false, zoom: null };

test("a view holds every finite value, and what a zoom holds only of the part", () => {
  const one = line([0, 1, 2, 3], [5, NaN, 1, Infinity]);
  const all = viewOf(shown(one), way);
  expect(all.x).toEqual([0, 3]);
  expect(all.y[0]).toBeLessThan(1);
  expect(all.y[1]).toBeGreaterThan(5);
  expect(all.y[1]).toBeLessThan(6);
  expect(viewOf(shown(line([0, 1, 2], [9, 1, 2])), { ...way, zoom: [0.9, 2] }).y[1]).toBeLessThan(3);
});

test("a line that only passes through a zoom is still in sight", () => {
  const { y } = viewOf(shown(line([0, 100], [10, 20])), { ...way, zoom: [40, 60] });
  expect(y[0]).toBeLessThan(14);
  expect(y[1]).toBeGreaterThan(16);
  expect(y[1]).toBeLessThan(17);
});

test("few values far away stretch the view, unless they are cut", () => {
  const many = Array.from({ length: 200 }, (_, n) => n);
  const one = line(many, many.map((n) => (n === 100 ? 1000 : n % 10))); // prettier-ignore
  expect(viewOf(shown(one), way).y[1]).toBeGreaterThan(1000);
  expect(viewOf(shown(one), { ...way, cut: true }).y[1]).toBeLessThan(20);
});

test("logarithms leave out what is not above zero, and fixed ends hold", () => {
  const { y } = viewOf(shown(line([0, 1, 2], [-1, 0.01, 100])), { ...way, log: true });
  expect(y[0]).toBeCloseTo(-2.24, 2);
  expect(y[1]).toBeCloseTo(2.24, 2);
  expect(viewOf(shown(line([0, 1], [20, 30])), { ...way, yRange: [0, 100] }).y).toEqual([0, 100]);
});

test("without points, or with one, there is still something to draw on", () => {
  expect(viewOf([], way)).toEqual({ x: [0, 1], y: [-0.06, 1.06] });
  expect(viewOf(shown(line([5], [0.3])), way).x).toEqual([4.5, 5.5]);
});
