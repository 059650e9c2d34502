import { expect, test } from "vitest";

import { smooth, unitOf } from "./smoothing";

const evenly = (many: number): Float64Array => Float64Array.from({ length: many }, (_, n) => n);

/** As TensorBoard's line chart does it. */
function tensorboard(y: readonly number[], weight: number): number[] {
  let last = 0;
  let times = 0;
  return y.map((value) => {
    if (!Number.isFinite(value)) return value;
    last = last * weight + (1 - weight) * value;
    times += 1;
    return last / (1 - weight ** times);
  });
}

test("evenly spaced points are smoothed as TensorBoard smooths them", () => {
  const y = Array.from({ length: 500 }, (_, n) => Math.sin(n / 20) + ((n * 7919) % 13) / 13);
  const found = smooth(evenly(500), Float64Array.from(y), 0.9);
  tensorboard(y, 0.9).forEach((value, at) => expect(found[at]).toBeCloseTo(value, 10));
});

test("no weight leaves every value as it is, in an array of its own", () => {
  const y = Float64Array.of(3, 1, 2);
  expect([...smooth(evenly(3), y, 0)]).toEqual([3, 1, 2]);
  expect(smooth(evenly(3), y, 0)).not.toBe(y);
});

test("what is not finite stays a gap and changes nothing after it", () => {
  const with_ = smooth(Float64Array.of(0, 1, 2, 3, 4), Float64Array.of(1, 2, NaN, Infinity, 3), 0.5);
  expect(with_[2]).toBeNaN();
  expect(with_[3]).toBe(Infinity);
  expect(with_[4]).toBeGreaterThan(with_[1] as number);
  expect(with_[4]).toBeLessThan(3);
});

test("the same curve told with more points is as smooth", () => {
  const curve = (x: number): number => (x > 500 ? 1 : 0);
  const of = (many: number): Float64Array => {
    const x = Float64Array.from({ length: many }, (_, n) => (n * 1000) / (many - 1));
    const y = x.map(curve);
    return smooth(x, y, 0.99);
  };
  const coarse = of(1001);
  const fine = of(10_001);
  expect(fine[6000]).toBeCloseTo(coarse[600] as number, 1);
});

test("points far apart forget more than points close together", () => {
  const y = Float64Array.of(0, 0, 0, 1);
  const near = smooth(Float64Array.of(0, 1, 2, 3), y, 0.9);
  const far = smooth(Float64Array.of(0, 1, 2, 30), y, 0.9);
  expect(far[3]).toBeGreaterThan(near[3] as number);
});

test("a unit is the usual distance, at least a thousandth of the whole", () => {
  expect(unitOf(evenly(100))).toBe(1);
  expect(unitOf(evenly(100_001))).toBe(100);
  expect(unitOf(Float64Array.of(5))).toBe(1);
  expect(unitOf(Float64Array.of(5, 5, 5))).toBe(1);
});
