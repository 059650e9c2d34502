import { expect, it } from "vitest";

import { few } from "./few";
import { withValues } from "./sides";

it("lets so many run at once, all in order, also when one fails", async () => {
  let now = 0;
  let most = 0;
  const order: number[] = [];
  const call = few(3, async (n: number) => {
    now += 1;
    most = Math.max(most, now);
    order.push(n);
    await Promise.resolve();
    now -= 1;
    if (n === 2) throw new Error("no");
    return n;
  });
  const found = await Promise.allSettled(Array.from({ length: 10 }, (_, n) => call(n)));
  expect(most).toBe(3);
  expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  expect(found.filter((each) => each.status === "fulfilled")).toHaveLength(9);
});

it("writes in what was just logged, with its extremes", () => {
  const row = { id: "r", name: "r", user: "u", status: "RUNNING", job: "r", params: {}, metrics: { loss: { last: 2, min: 1, max: 3, step: 7 } } };
  const after = withValues(row, { loss: 0.5, acc: 0.1, bad: "NaN" });
  expect(after.metrics).toEqual({
    loss: { last: 0.5, min: 0.5, max: 3, step: 7 },
    acc: { last: 0.1, min: 0.1, max: 0.1 },
    bad: { last: "NaN" },
  });
  expect(row.metrics.loss.last).toBe(2);
});
