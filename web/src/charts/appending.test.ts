import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { expect, test } from "vitest";

import { Appender } from "./appending";
import type { Asked } from "./reading";
import type { Series } from "./wire";

function series(key: string, ...steps: number[]): Series {
  const of = Float64Array.from(steps);
  return { job: "j", key, rank: 0, source: "", thinned: false, step: of, at: of.map((n) => 1_000_000 + n * 1000), value: of };
}

interface Call {
  keys: readonly string[];
  asked: Asked;
  answer: (found: Series[]) => void;
  fail: () => void;
}

function page(shown: Record<string, Series[]>): { appender: Appender; calls: Call[]; go: () => void; steps: (key: string) => number[] } {
  const queries = new QueryClient();
  for (const [key, data] of Object.entries(shown)) {
    queries.setQueryData(["series", "j", key], data);
    new QueryObserver(queries, { queryKey: ["series", "j", key], staleTime: Infinity }).subscribe(() => undefined);
  }
  const calls: Call[] = [];
  let go = (): void => undefined;
  const appender = new Appender(
    queries,
    (_, keys, asked) => new Promise((take, refuse) => calls.push({ keys, asked, answer: take, fail: () => refuse(new Error("gone")) })),
    (then) => (go = then),
  );
  const steps = (key: string): number[] => [...((queries.getQueryData(["series", "j", key]) as Series[])[0] as Series).step];
  return { appender, calls, go: () => go(), steps };
}

const tell = (...keys: string[]) => ({ job: "j", values: Object.fromEntries(keys.map((key) => [key, 1])), more: false });
const settled = (): Promise<void> => new Promise((then) => setTimeout(then, 0));

test("only what is new is asked for, of the keys that changed and are shown", async () => {
  const { appender, calls, steps } = page({ loss: [series("loss", 0, 1)], acc: [series("acc", 0, 1)] });
  appender.note(tell("loss", "hidden"));
  expect(calls.map(({ keys, asked }) => [keys, asked.by, asked.from])).toEqual([[["loss"], "time", 999_000]]);
  calls[0]?.answer([series("loss", 1, 2)]);
  await settled();
  expect(steps("loss")).toEqual([0, 1, 2]);
  expect(steps("acc")).toEqual([0, 1]);
});

test("notices that come while one is asked for make one more request, not many", async () => {
  const { appender, calls, go } = page({ loss: [series("loss", 0)] });
  for (let times = 0; times < 5; times++) appender.note(tell("loss"));
  expect(calls).toHaveLength(1);
  calls[0]?.answer([]);
  await settled();
  expect(calls).toHaveLength(1);
  go();
  expect(calls).toHaveLength(2);
  calls[1]?.answer([]);
  await settled();
  go();
  expect(calls).toHaveLength(2);
});

test("after a failure the next notice asks for every key again, and nothing asks by itself", async () => {
  const { appender, calls, go } = page({ loss: [series("loss", 0)], acc: [series("acc", 0)] });
  appender.note(tell("loss"));
  calls[0]?.fail();
  await settled();
  go();
  expect(calls).toHaveLength(1);
  appender.note(tell("acc"));
  expect(calls[1]?.keys).toEqual(["loss", "acc"]);
});

test("a job that is not shown is not asked for", () => {
  const { appender, calls } = page({ loss: [series("loss", 0)] });
  appender.note({ ...tell("loss"), job: "other" });
  appender.note({ ...tell("loss"), job: null });
  expect(calls).toHaveLength(0);
});
