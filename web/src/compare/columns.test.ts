import { expect, it } from "vitest";

import { axisOf, cellOf, columnsOf, metricsInOrder, numericColumns, rowOf } from "./columns";
import type { Side } from "./sides";

const told = (last: number): Side["metrics"][string] => ({ last, min: last, max: last });
const side = (id: string, params: Record<string, string>, metrics: Record<string, number>, goal: string | null = null): Side => ({
  id, name: id, state: "succeeded", goal, params, facts: {}, environment: {}, code: {},
  metrics: Object.fromEntries(Object.entries(metrics).map(([key, value]) => [key, told(value)])),
}); // prettier-ignore
const jobs = [
  side("a", { lr: "0.001", opt: "sgd", seed: "1" }, { loss: 1, acc: 0.5 }, "max acc"),
  side("b", { lr: "1", opt: "adam", seed: "1" }, { loss: 2, acc: 0.7 }),
  side("c", { lr: "0.1", opt: "adam", seed: "1" }, { loss: 3 }),
];

it("has a column for each parameter that differs and each metric", () => {
  expect(columnsOf(jobs)).toEqual(["params.lr", "params.opt", "metrics.acc", "metrics.loss"]);
  expect(numericColumns(jobs)).toEqual(["params.lr", "metrics.acc", "metrics.loss"]);
});

it("draws numbers over many powers of ten by their logarithm, and words as categories", () => {
  expect(axisOf(jobs, "params.lr").kind).toBe("log");
  expect(axisOf(jobs, "params.opt").kind).toBe("category");
  expect(rowOf(jobs[2] as Side, ["params.lr", "metrics.acc"]).values).toEqual({ "params.lr": 0.1, "metrics.acc": null });
  expect(cellOf(jobs[0] as Side, "params.none")).toBeNull();
});

it("puts the metric that counts first, then those that most jobs have", () => {
  expect(metricsInOrder(jobs)).toEqual(["acc", "loss"]);
  expect(metricsInOrder(jobs.slice(1))).toEqual(["loss", "acc"]);
});
