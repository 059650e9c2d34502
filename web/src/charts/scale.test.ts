import { expect, test } from "vitest";

import {
  durationLabel, durationTicks, linear, log, logTicks, scaleOf, stepOf, tickLabel, ticks, timeTicks,
} from "./scale"; // prettier-ignore

test.each([
  [0, 10, 5, [0, 2, 4, 6, 8, 10]],
  [0.12, 0.48, 4, [0.2, 0.3, 0.4]],
  [1.05, 1.97, 4.5, [1.2, 1.4, 1.6, 1.8]],
  [-1, 1, 4, [-1, -0.5, 0, 0.5, 1]],
  [0, 0.3, 3, [0, 0.1, 0.2, 0.3]],
  [5, 5, 4, [5]],
])("ticks from %d to %d", (low, high, many, wanted) => {
  expect(ticks(low, high, many)).toEqual(wanted);
});

test("steps are 1, 2 or 5 of a power of ten", () => {
  expect([7, 70, 0.07, 33, 12].map((whole) => stepOf(whole, 5))).toEqual([1, 10, 0.01, 5, 2]);
});

test("ticks of logarithms are powers of ten, thinned out over many, with 2 and 5 over few", () => {
  expect(logTicks(1e-4, 1, 5)).toEqual([1e-4, 1e-3, 1e-2, 1e-1, 1]);
  expect(logTicks(1e-12, 1, 5).length).toBeLessThanOrEqual(6);
  expect(logTicks(1, 100, 6)).toEqual([1, 2, 5, 10, 20, 50, 100]);
  expect(logTicks(0.5, 0.6, 4).length).toBeGreaterThan(1);
});

test("a value goes to its place and back", () => {
  for (const scale of [linear(-3, 9), log(1e-5, 10)]) {
    for (const at of [0, 0.25, 1]) expect(scale.at(scale.value(at))).toBeCloseTo(at, 12);
  }
  expect(log(1, 10).at(0)).toBeNaN();
});

test("a scale over values leaves out what it cannot place", () => {
  expect(scaleOf([NaN, 2, Infinity, 8])).toMatchObject({ low: 2, high: 8 });
  expect(scaleOf([0, -1, 1e-3, 1], "log")).toMatchObject({ kind: "log", low: 1e-3, high: 1 });
  expect(scaleOf([], "log")).toMatchObject({ kind: "linear", low: 0, high: 1 });
  expect(scaleOf([4])).toMatchObject({ low: 2, high: 6 });
});

test.each([
  [0, 0, "0"],
  [0.25, 0.05, "0.25"],
  [0.2, 0.05, "0.20"],
  [1500, 500, "1500"],
  [20_000, 5000, "20k"],
  [5000, 5000, "5k"],
  [2_500_000, 500_000, "2.5M"],
  [0.00001, 0, "1e-5"],
  [-0.5, 0.5, "-0.5"],
  [3, 1, "3"],
])("%d with a step of %d is written %s", (value, step, wanted) => {
  expect(tickLabel(value, step)).toBe(wanted);
});

test.each([
  [0, 60, "0"],
  [90, 30, "1m30s"],
  [7200, 3600, "2h"],
  [5400, 1800, "1h30m"],
  [0.5, 0.5, "0.5s"],
  [90_000, 43_200, "1d1h"],
  [86_460, 0, "1d"],
])("%d seconds are written %s", (seconds, step, wanted) => {
  expect(durationLabel(seconds, step)).toBe(wanted);
});

test("time that passed is cut at minutes and hours, not at hundreds of seconds", () => {
  expect(durationTicks(0, 600, 5)).toEqual([0, 120, 240, 360, 480, 600].filter((each) => each % 120 === 0));
  expect(durationTicks(0, 7000, 4)).toEqual([0, 1800, 3600, 5400]);
});

test("ticks on the clock fall on full units of the reader's zone", () => {
  const day = Date.UTC(2026, 10, 16) / 1000;
  for (const each of timeTicks(day + 100, day + 20_000, 5)) expect(new Date(each * 1000).getMinutes() % 30).toBe(0);
  for (const each of timeTicks(day, day + 6 * 86_400, 6)) expect(new Date(each * 1000).getHours()).toBe(0);
});
