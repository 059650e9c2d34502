import { expect, it } from "vitest";

import { limitsOf, limitsToUrl } from "./limits";

it("keeps what is brushed in the address, and takes out what is not any more", () => {
  const limits = { lr: { low: 0.001, high: 0.1 }, layers: { low: null, high: 4 }, opt: { of: ["a|b", "sgd"] } };
  const written = limitsToUrl(limits, { "b.old": "1..2", tab: "x" });
  expect(written).toEqual({ "b.old": undefined, "b.lr": "0.001..0.1", "b.layers": "..4", "b.opt": "is:a%7Cb|sgd" });
  const { "b.old": _, ...kept } = written;
  expect(limitsOf(kept as Record<string, string>)).toEqual(limits);
});

it("reads any ends that it writes, and passes over what it cannot read", () => {
  for (const [low, high] of [[-1.5, 2.25], [1e-7, 1e21], [0, null], [null, -3]] as const) {
    const { "b.x": text } = limitsToUrl({ x: { low, high } }, {});
    expect(limitsOf({ "b.x": text as string })).toEqual({ x: { low, high } });
  }
  expect(limitsOf({ "b.x": "much", "b.y": "a..b", x: "1..2" })).toEqual({});
});
