import { expect, test } from "vitest";

import { pinched } from "./touch";

const ALL: [number, number] = [0, 100];

test("what lies under each finger stays under it", () => {
  // at 40 and 60 of 100 pixels lie 40 and 60; apart to 20 and 80 they are three times as far
  const found = pinched(ALL, ALL, [40, 60], [20, 80], 100) as [number, number];
  expect(found[1] - found[0]).toBeCloseTo(100 / 3);
  expect(found[0] + ((found[1] - found[0]) * 20) / 100).toBeCloseTo(40);
  expect(found[0] + ((found[1] - found[0]) * 80) / 100).toBeCloseTo(60);
});

test("two fingers that go the same way move the picture, to its ends and no further", () => {
  expect(pinched([40, 60], ALL, [20, 80], [40, 100], 100)).toEqual([36, 56]);
  expect(pinched([40, 60], ALL, [20, 80], [1000, 1060], 100)).toEqual([0, 20]);
  expect(pinched([40, 60], ALL, [20, 80], [-1000, -940], 100)).toEqual([80, 100]);
});

test("together they show more, in the end all", () => {
  expect(pinched([40, 60], ALL, [20, 80], [35, 65], 100)).toEqual([30, 70]);
  expect(pinched([40, 60], ALL, [20, 80], [49, 51], 100)).toBeNull();
});

test("fingers on one place and a picture of one point make no number that is none", () => {
  for (const found of [pinched(ALL, ALL, [50, 50], [50, 50], 100), pinched([5, 5], [5, 5], [10, 20], [0, 90], 100)]) {
    expect(found === null || found.every(Number.isFinite)).toBe(true);
  }
});
