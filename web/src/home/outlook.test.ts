import { expect, test } from "vitest";

import { amount, costNow, secondsLeft } from "./outlook";

test("half of it in a minute leaves a minute", () => {
  expect(secondsLeft(0, 0.5, 60_000)).toBe(60);
  expect(secondsLeft(0, 0.25, 60_000)).toBe(180);
});

test("nobody can say at the start, without progress, or at the end", () => {
  expect(secondsLeft(0, 0.5, 1000)).toBeNull();
  expect(secondsLeft(0, null, 60_000)).toBeNull();
  expect(secondsLeft(0, 0, 60_000)).toBeNull();
  expect(secondsLeft(0, 0.001, 60_000)).toBeNull();
  expect(secondsLeft(0, 1, 60_000)).toBeNull();
});

test("cost goes on at its rate", () => {
  expect(costNow(2, 0, 100, 150)).toBe(3);
  expect(costNow(2, 0, 100, 90)).toBe(2);
  expect(costNow(0, 100, 100, 200)).toBe(0);
});

test("amounts as quotas write them", () => {
  expect([amount(4), amount("64GiB"), amount("512MiB"), amount("10")]).toEqual([4, 64 * 2 ** 30, 512 * 2 ** 20, 10]);
});
