import { describe, expect, it } from "vitest";

import type { Schema } from "../api/client";
import { bestSoFar, counted, ended, front, milestones, secondsOf } from "./pareto";
import { createLine, fileOf, python, rangeOf, unusual } from "./spec";

function trial(number: number, values: (number | null)[], more: Partial<Schema["TrialView"]> = {}): Schema["TrialView"] {
  return {
    number, values, state: "succeeded", reason: "", job: `j${number}`, params: {}, feasible: true, step: 1, rung: 0, parent: null,
    created: "", ended: null, ...more,
  }; // prettier-ignore
}
const LESS = { metric: "loss", goal: "minimize", take: "last" } as const;
const MORE = { metric: "acc", goal: "maximize", take: "last" } as const;

describe("the trials that no other beats", () => {
  it("are one by one objective, and a front by two", () => {
    const trials = [trial(0, [3, 0.9]), trial(1, [1, 0.5]), trial(2, [2, 0.4]), trial(3, [2, 0.7])];
    expect(front([LESS], trials)).toEqual(new Set([1]));
    expect(front([LESS, MORE], trials)).toEqual(new Set([1, 3, 0]));
  });

  it("are both of two alike", () => {
    expect(front([LESS, MORE], [trial(0, [1, 1]), trial(1, [1, 1])]).size).toBe(2);
  });

  it("are never failed, out of bounds, or without a value", () => {
    const trials = [trial(0, [0], { state: "failed" }), trial(1, [0], { feasible: false }), trial(2, [null]), trial(3, [])];
    expect(counted(trials)).toEqual([]);
    expect(front([LESS], trials).size).toBe(0);
  });

  it("agree with comparing every two", () => {
    let seed = 7;
    const chance = (): number => (seed = (seed * 16807) % 2147483647) % 12;
    const trials = Array.from({ length: 80 }, (_, n) => trial(n, [chance(), chance(), chance()]));
    const goals = [LESS, MORE, LESS];
    const score = (each: Schema["TrialView"]): number[] => each.values.map((value, at) => (at === 1 ? -1 : 1) * (value as number));
    const slow = trials.filter((each) =>
      !trials.some((other) => {
        const [a, b] = [score(other), score(each)];
        return a.every((value, at) => value <= (b[at] as number)) && a.some((value, at) => value < (b[at] as number));
      }),
    );
    expect([...front(goals, trials)].sort((a, b) => a - b)).toEqual(slow.map((each) => each.number));
  });
});

it("fills the best so far between the places where it changed", () => {
  const found = bestSoFar([[1, 5], [3, 2]], 6);
  expect([...found.x]).toEqual([1, 2, 3, 4, 5]);
  expect([...found.y]).toEqual([5, 5, 2, 2, 2]);
  expect(bestSoFar([], 4).x.length).toBe(0);
});

it("knows the steps of the rungs", () => {
  const pruner = { kind: "asha", min_step: 2, factor: 3, max_step: 20, pause: true, startup: 5, quantile: 0.25, resample: 0.25 } as const;
  expect(milestones(pruner, 5)).toEqual([2, 6, 18, 20]);
  expect(milestones({ ...pruner, max_step: null }, 1)).toEqual([2, 6]);
});

it("counts what is over, and reads durations", () => {
  expect(ended({ running: 2, succeeded: 3, pruned: 1, paused: 4 })).toBe(4);
  expect(secondsOf("1h30m")).toBe(5400);
  expect(secondsOf("500ms")).toBe(0.5);
  expect(secondsOf("soon")).toBeNull();
});

describe("a study written down", () => {
  const spec = {
    kind: "study", name: "mnist", project: "default",
    job: { kind: "job", run: ["python", "train.py"], params: {}, retry: { times: 3, resume: true }, queue: { name: "gpu", priority: 50 } },
    space: {
      lr: { kind: "float", low: 0.0001, high: 0.1, log: true, choices: [], when: {} },
      opt: { kind: "choice", choices: ["sgd", "adam"], low: 0, high: 0, log: false, when: {} },
      beta: { kind: "float", low: 0.5, high: 0.99, log: false, step: 0.01, choices: [], when: [{ opt: ["adam"] }] },
    },
    objectives: [{ metric: "acc", goal: "maximize", take: "last" }], trials: 50, parallel: 4,
    sampler: { kind: "tpe", points: null, startup: 10 },
    pruner: { kind: "asha", min_step: 1, factor: 3, max_step: 27, pause: true, startup: 5, interval: null, quantile: 0.25, resample: 0.25 },
    constraints: [], seed: 0, max_time: null, max_failures: 10, give: "flags", warm_start: [],
  } as unknown as Schema["StudySpec"]; // prettier-ignore
  const usual = { kind: "job", run: ["true"], params: {}, retry: { times: 3, resume: true }, queue: { name: "default", priority: 50 } };

  it("leaves out what goes without saying", () => {
    expect(fileOf(spec, usual)).toEqual({
      kind: "study", name: "mnist",
      job: { run: ["python", "train.py"], queue: { name: "gpu" } },
      space: { lr: "log:0.0001..0.1", opt: ["sgd", "adam"], beta: { range: "float:0.5..0.99/0.01", when: [{ opt: ["adam"] }] } },
      maximize: "acc", trials: 50, parallel: 4, sampler: "tpe", pruner: { kind: "asha", max_step: 27 },
    }); // prettier-ignore
  });

  it("is a command", () => {
    expect(createLine(fileOf(spec, usual))).toBe(
      "windlass study create --name mnist --param lr=log:0.0001..0.1 --param opt=sgd,adam --param beta=float:0.5..0.99/0.01 " +
        "--maximize acc --trials 50 --parallel 4 --sampler tpe --pruner asha --max-step 27 -- python train.py",
    );
  });

  it("is Python", () => {
    expect(python({ a: [true, null], b: {} })).toBe('{\n    "a": [True, None],\n    "b": {},\n}');
  });

  it("writes whole and logarithmic ranges", () => {
    expect(rangeOf({ kind: "int", low: 1, high: 1024, log: true, choices: [], when: [] })).toBe("logint:1..1024");
    expect(rangeOf({ kind: "int", low: 32, high: 256, step: 32, log: false, choices: [], when: [] })).toBe("int:32..256/32");
    expect(unusual({ a: 1, b: { c: 1, d: 2 } }, { a: 1, b: { c: 1, d: 3 } })).toEqual({ b: { d: 2 } });
  });
});
