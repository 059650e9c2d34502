import { expect, test } from "vitest";

import { grown, keysInOrder, lastAt } from "./system";

test("an answer that overlaps adds its end, and the newest seconds win", () => {
  const held = [{ key: "cpu_percent", rank: 0, points: [[1000, 1], [2000, 2], [3000, 3]] as const }];
  const after = grown(held, [
    { key: "cpu_percent", rank: 0, points: [[3000, 4], [4000, 5]] },
    { key: "cpu_percent", rank: 1, points: [[4000, 9]] },
  ]);
  expect(after[0]?.points).toEqual([[1000, 1], [2000, 2], [3000, 4], [4000, 5]]);
  expect(after[1]?.rank).toBe(1);
  expect(lastAt(after)).toBe(4000);
});

test("what matters most is first", () => {
  const keys = ["processes", "node_cpu_percent", "gpu0_percent", "memory_bytes", "cpu_percent"];
  expect(keysInOrder(keys.map((key) => ({ key, rank: 0, points: [] })))).toEqual(["cpu_percent", "memory_bytes", "gpu0_percent", "processes", "node_cpu_percent"]);
});
