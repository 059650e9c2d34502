import { expect, test } from "vitest";

import type { Attempt, Event } from "./asking";
import { phasesOf } from "./phases";

const WORDS = { job: "job", attempt: (n: number) => `attempt ${n}`, state: (state: string) => state };
const event = (kind: string, state: string | null, at: string, reason = ""): Event =>
  ({ kind, state, at, reason, seq: 0, data: {}, attempt: null, cursor: "", job: "", job_name: "" }) as Event;

test("each state lasts until the next, and the last goes on", () => {
  const found = phasesOf(
    [event("submitted", "queued", "t1"), event("moved", "starting", "t2", "placed"), event("attempt", "starting", "t2b"), event("moved", "running", "t3")],
    [], WORDS,
  ); // prettier-ignore
  expect(found.map((each) => [each.label, each.from, each.to])).toEqual([
    ["queued", "t1", "t2"],
    ["starting", "t2", "t3"],
    ["running", "t3", null],
  ]);
  expect(found[0]?.note).toBe("placed");
});

test("an end is no phase; attempts have lanes where there are several", () => {
  const attempt = (number: number, outcome: string | null): Attempt =>
    ({ number, outcome, created: `c${number}`, ended: outcome && `e${number}`, reason: "" }) as unknown as Attempt;
  const found = phasesOf([event("moved", "running", "t1"), event("moved", "failed", "t2")], [attempt(1, "lost"), attempt(2, "failed")], WORDS);
  expect(found.map((each) => [each.lane, each.label, each.to])).toEqual([
    ["job", "running", "t2"],
    ["attempt 1", "lost", "e1"],
    ["attempt 2", "failed", "e2"],
  ]);
});
