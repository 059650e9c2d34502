import { expect, test } from "vitest";

import { askedColumns, columnsOf, measured, nextSort, sortable, type Row } from "./columns";

test("columns come from the address; what means nothing is passed over", () => {
  const found = columnsOf('user,params.lr,nonsense,metrics.,max.val/acc,metrics."a, b",user');
  expect(found.map((each) => [each.kind, each.key])).toEqual([
    ["fact", "user"],
    ["params", "lr"],
    ["max", "val/acc"],
    ["metrics", "a, b"],
  ]);
  expect(askedColumns(found)).toBe('params.lr,max.val/acc,metrics."a, b"');
});

test("without a word in the address there are the usual ones", () => {
  expect(columnsOf(undefined).length).toBeGreaterThan(3);
  expect(columnsOf("none")).toEqual([]);
});

test("a head is clicked down, up, and away", () => {
  expect(nextSort(undefined, "gpus")).toBe("-gpus");
  expect(nextSort("-gpus", "gpus")).toBe("gpus");
  expect(nextSort("gpus", "gpus")).toBeUndefined();
  expect(nextSort("-user", "gpus")).toBe("-gpus");
  expect(sortable("metrics.loss")).toBe(true);
  expect(sortable("command")).toBe(false);
});

test("a cell has the last, the smallest or the largest value", () => {
  const row = { params: { lr: { value: "0.1" } }, metrics: { loss: { last: 2, min: 1, max: "NaN" } } } as unknown as Row;
  const cells = columnsOf("params.lr,metrics.loss,min.loss,max.loss,metrics.none").map((each) => measured(row, each));
  expect(cells).toEqual(["0.1", 2, 1, "NaN", null]);
});
