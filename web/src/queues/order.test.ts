import { expect, test } from "vitest";

import { lacks } from "./missing";
import { moved, moveTo, step } from "./order";

const LINE = ["a", "b", "c", "d"];

test("each way is told by the neighbour it leads to", () => {
  expect(step(LINE, 2, "first")).toEqual({ first: true });
  expect(step(LINE, 2, "up")).toEqual({ before: "b" });
  expect(step(LINE, 1, "up")).toEqual({ first: true });
  expect(step(LINE, 0, "down")).toEqual({ before: "c" });
  expect(step(LINE, 2, "down")).toEqual({ last: true });
  expect(step(LINE, 0, "last")).toEqual({ last: true });
});

test("who is at the end goes no further", () => {
  expect(step(LINE, 0, "up")).toBeNull();
  expect(step(LINE, 0, "first")).toBeNull();
  expect(step(LINE, 3, "down")).toBeNull();
  expect(step(["a"], 0, "last")).toBeNull();
});

test("what the server is told makes the line that is shown", () => {
  for (let from = 0; from < 4; from++)
    for (let to = 0; to < 4; to++) {
      const told = moveTo(LINE, from, to);
      const rest = LINE.filter((_, at) => at !== from);
      const at = !told ? from : "first" in told ? 0 : "last" in told ? 3 : rest.indexOf(told.before);
      rest.splice(at, 0, LINE[from] as string);
      expect(moved(LINE, from, to)).toEqual(rest);
    }
});

test("nobody is put before a job whose id is not told", () => {
  expect(moveTo(["a", "b", null, "d"], 0, 1)).toBeNull();
});

test("what is missing is told in whole units", () => {
  expect(lacks({ gpus: 4000, "gpus:H200": 500, memory: 1024 })).toEqual([
    { kind: "gpus", name: "", amount: 4 },
    { kind: "gpus", name: "H200", amount: 0.5 },
    { kind: "memory", name: "", amount: 1024 },
  ]);
  expect(lacks(undefined)).toEqual([]);
});
