import { expect, test } from "vitest";

import { brushed, brushOf, chosen, kindOf, placed, type Limits, type ParallelRow } from "./coordinates";
import { rungsOf } from "./halving";

const ROWS: ParallelRow[] = [
  { id: "a", label: "a", values: { lr: 1e-4, depth: 2, opt: "adam" } },
  { id: "b", label: "b", values: { lr: 1e-2, depth: 4, opt: "sgd" } },
  { id: "c", label: "c", values: { lr: 1, depth: 6, opt: "adam" } },
  { id: "d", label: "d", values: { lr: null, depth: 8 } },
];
const LR = placed({ key: "lr", label: "lr", kind: "log" }, ROWS);
const OPT = placed({ key: "opt", label: "opt", kind: "category" }, ROWS);

test("values have places, categories too, and none has none", () => {
  expect(ROWS.map((row) => LR.at(row.values.lr))).toEqual([0, 0.5, 1, NaN]);
  expect(OPT.names).toEqual(["adam", "sgd"]);
  expect([OPT.at("adam"), OPT.at("sgd"), OPT.at(undefined)]).toEqual([0, 1, NaN]);
});

test("rows within all limits are chosen; without a value one is within none", () => {
  const of = (limits: Limits): string[] => [...chosen(ROWS, limits)];
  expect(of({})).toEqual(["a", "b", "c", "d"]);
  expect(of({ lr: { low: null, high: 0.01 } })).toEqual(["a", "b"]);
  expect(of({ lr: { low: null, high: 0.01 }, opt: { of: ["adam"] } })).toEqual(["a"]);
  expect(of({ opt: { of: ["sgd", "adam"] } })).toEqual(["a", "b", "c"]);
});

test("a brush becomes a limit, open where it goes beyond the end, and is drawn there again", () => {
  const limit = brushed(LR, 0.9, 0.25);
  expect(limit).toMatchObject({ low: expect.closeTo(1e-3, 6), high: expect.closeTo(10 ** -0.4, 6) });
  expect(brushOf(LR, limit as never)).toEqual([expect.closeTo(0.25, 6), expect.closeTo(0.9, 6)]);
  expect(brushed(LR, 0.5, 1)).toMatchObject({ high: null });
  expect(brushed(LR, 0.5, 0.501)).toBeNull();
  expect(brushed(OPT, 0.8, 1)).toEqual({ of: ["sgd"] });
});

test("what an axis is follows from its values", () => {
  expect(kindOf([1e-5, 1e-2])).toBe("log");
  expect(kindOf([1, 2, 3, null])).toBe("linear");
  expect(kindOf([0, 1e6])).toBe("linear");
  expect(kindOf(["adam", "sgd"])).toBe("category");
  expect(kindOf([true, false])).toBe("category");
  expect(kindOf([])).toBe("category");
});

test("each rung counts all that came there, and how they left it", () => {
  const trial = (id: string, rung: number, state: "running" | "done" | "stopped") => ({ id, label: id, rung, value: 1, state });
  const found = rungsOf([trial("a", 0, "stopped"), trial("b", 0, "running"), trial("c", 1, "stopped"), trial("d", 2, "done")]);
  expect(found.map(({ rung, trials, wentOn, stopped, still }) => [rung, trials.length, wentOn, stopped, still])).toEqual([
    [0, 4, 2, 1, 1],
    [1, 2, 1, 1, 0],
    [2, 1, 0, 0, 1],
  ]);
  expect(rungsOf([])).toEqual([]);
});
