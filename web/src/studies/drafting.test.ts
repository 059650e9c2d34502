import { expect, it } from "vitest";

import type { Schema } from "../api/client";
import { changesOf } from "./changes";
import { around, baseOf, goalOf, kindOf, spaceOf, withGoal, withKind, withSpace } from "./drafting";
import { inTrialOrder } from "./ordering";
import { surfaceOf } from "./surface";

it("reads and writes the goal of a file in any of its forms", () => {
  expect(goalOf({ maximize: ["acc", "f1"] })).toEqual({ metric: "acc", way: "maximize" });
  expect(goalOf({ objectives: [{ metric: "loss", goal: "minimize" }] })).toEqual({ metric: "loss", way: "minimize" });
  expect(withGoal({ minimize: "loss" }, { metric: "acc", way: "maximize" })).toEqual({ objectives: undefined, minimize: undefined, maximize: "acc" });
});

it("keeps conditions that only a file can say", () => {
  const file = { space: { opt: ["sgd", "adam"], beta: { range: "float:0..1", when: { opt: "adam" } } } };
  const rows = spaceOf(file);
  expect(rows).toEqual([
    { name: "opt", text: "sgd,adam", bound: false },
    { name: "beta", text: "float:0..1", bound: true },
  ]);
  expect(withSpace(file, rows)).toEqual({ opt: "sgd,adam", beta: { range: "float:0..1", when: { opt: "adam" } } });
});

it("changes the kind of a pruner and keeps what else was said", () => {
  expect(kindOf("asha")).toBe("asha");
  expect(withKind({ kind: "asha", factor: 4 }, "halving")).toEqual({ kind: "halving", factor: 4 });
  expect(withKind("asha", "")).toBeUndefined();
});

it("makes a study of a job: its own settings, ranges around its numbers, its goal", () => {
  const usual = { retry: { times: 3 }, queue: { name: "default" } };
  const spec = { kind: "job", name: "a", project: "p", run: ["python", "t.py"], params: { lr: 0.01, epochs: 5, opt: "sgd" }, retry: { times: 3 }, queue: { name: "gpu" } };
  expect(baseOf(spec, usual, ["speed", "val_acc"])).toEqual({
    job: { run: ["python", "t.py"], params: { opt: "sgd" }, queue: { name: "gpu" } },
    space: { lr: "log:0.001..0.1", epochs: "int:1..10" },
    goal: { metric: "val_acc", way: "maximize" },
  });
  expect(baseOf({ run: ["x"], metrics: { goal: "min wer" } }, usual, []).goal).toEqual({ metric: "wer", way: "minimize" });
  expect(around(1)).toBe("int:1..2");
});

it("reads changed parameters, and names the line that is none", () => {
  expect(changesOf("epochs=100\n lr = 1e-3\nopt=adam\nfast=true")).toEqual([{ epochs: 100, lr: 0.001, opt: "adam", fast: true }, ""]);
  expect(changesOf("epochs")[1]).toBe("epochs");
  expect(changesOf("name=0x10")[0]).toEqual({ name: "0x10" });
});

it("sorts trials by any column, those without a value last either way", () => {
  const trial = (number: number, value: number | null, params: object = {}): Schema["TrialView"] =>
    ({ number, values: [value], params, state: "succeeded", step: null, rung: 0 }) as unknown as Schema["TrialView"];
  const trials = [trial(0, 2, { n: 10 }), trial(1, null, { n: 9 }), trial(2, 1)];
  const order = (sort: string): number[] => [...trials].sort(inTrialOrder(sort)).map((each) => each.number);
  expect(order("value.0")).toEqual([2, 0, 1]);
  expect(order("-value.0")).toEqual([0, 2, 1]);
  expect(order("params.n")).toEqual([1, 0, 2]);
  expect(order("-number")).toEqual([2, 1, 0]);
});

it("guesses a surface that meets its spots and lies between them", () => {
  const found = surfaceOf([{ x: 0.25, y: 0.5, value: 0 }, { x: 0.75, y: 0.5, value: 1 }], 2, 1);
  expect([...found]).toEqual([0, 1]);
  expect(surfaceOf([{ x: 0, y: 0, value: 0 }, { x: 1, y: 1, value: 1 }], 1, 1)[0]).toBeCloseTo(0.5);
});
