import { expect, test } from "vitest";

import { lttb, perPixel } from "./thin";

const count = (many: number): Float64Array => Float64Array.from({ length: many }, (_, n) => n);

test("few points are all drawn, with one beyond each end", () => {
  const x = count(100);
  expect([...perPixel(x, x, 10, 12, 500)]).toEqual([9, 10, 11, 12, 13]);
  expect([...perPixel(x, x, -5, 2, 500)]).toEqual([0, 1, 2, 3]);
  expect(perPixel(count(0), count(0), 0, 1, 10)).toHaveLength(0);
});

test("of many, the highest and the lowest of each pixel stay", () => {
  const x = count(100_000);
  const y = x.map((n) => Math.sin(n / 1000));
  y[55_555] = 40;
  y[55_560] = -40;
  const places = perPixel(x, y, 0, 99_999, 300);
  expect(places.length).toBeLessThan(300 * 4 + 8);
  expect(places).toContain(55_555);
  expect(places).toContain(55_560);
  expect(places[0]).toBe(0);
  expect(places[places.length - 1]).toBe(99_999);
  for (let at = 1; at < places.length; at++) expect(places[at]).toBeGreaterThan(places[at - 1] as number);
});

test("a gap among many points stays a gap, once for each run of it", () => {
  const x = count(10_000);
  const y = x.map(() => 1);
  y.fill(NaN, 5000, 5020);
  const places = perPixel(x, y, 0, 9999, 100);
  const gaps = [...places].filter((at) => Number.isNaN(y[at]));
  expect(gaps.length).toBeGreaterThanOrEqual(1);
  expect(gaps.length).toBeLessThanOrEqual(2);
  expect(places).toContain(4999);
  expect(places).toContain(5020);
});

test("as many gaps as points do not push the rest out", () => {
  const x = count(10_000);
  const y = x.map((n) => (n % 2 ? NaN : n));
  const places = perPixel(x, y, 0, 9999, 100);
  expect(places[places.length - 1]).toBeGreaterThan(9990);
});

test("the shape of a small line keeps its ends and its peak", () => {
  const x = count(1000);
  const y = x.map((n) => (n === 400 ? 9 : 0));
  const places = lttb(x, y, 20);
  expect(places).toHaveLength(20);
  expect(places[0]).toBe(0);
  expect(places[19]).toBe(999);
  expect(places).toContain(400);
});

test("a small line leaves out what is not finite", () => {
  expect([...lttb(count(4), Float64Array.of(1, NaN, 2, Infinity), 10)]).toEqual([0, 2]);
  expect(lttb(count(2), Float64Array.of(NaN, NaN), 10)).toHaveLength(0);
});
