import { expect, test } from "vitest";

import { failureOf, frameOf, nextMemory, sizeOf } from "./failing";
import type { Detail, Why } from "./asking";

const TRACE = `Traceback (most recent call last):
  File "/x/work/train.py", line 14, in <module>
    step()
  File "/x/lib/python3.11/site-packages/torch/nn.py", line 9, in forward
    raise RuntimeError("nan")
RuntimeError: nan`;
const job = (over: object): Detail =>
  ({ attempts: [], outcome: "failed", spec: { roles: { worker: { memory: "32GiB" } } }, ...over }) as unknown as Detail;
const why = (evidence: string[]): Why => ({ job: "j", name: "n", state: "failed", code: "failed", missing: {}, sentence: "rank 1 exited", evidence, next: "" });

test("the server's evidence is taken apart", () => {
  const found = failureOf(
    job({}),
    why(["first to fail: rank 1 (worker-1) on node local, exit code 1", "at 2026-11-16T10:25:25.419Z", TRACE, "attempt 1: lost: node g3"]),
  );
  expect(found).toMatchObject({
    rank: 1, member: "worker-1", node: "local", how: "exit code 1", at: "2026-11-16T10:25:25.419Z",
    frame: "train.py:14 in <module>", others: ["attempt 1: lost: node g3"], memory: null,
  }); // prettier-ignore
});

test("evidence of another form is kept as it is", () => {
  const found = failureOf(job({}), why(["<script>alert(1)</script>"]));
  expect(found.others).toEqual(["<script>alert(1)</script>"]);
  expect(found.rank).toBeNull();
});

test("who ran out of memory is offered half as much again", () => {
  expect(failureOf(job({ outcome: "oom" }), why([])).memory).toBe(48 * 1024 ** 3);
  expect(nextMemory({ worker: { memory: 0 } } as unknown as Detail["spec"]["roles"])).toBeNull();
});

test("sizes are read as people write them", () => {
  expect(sizeOf("8GiB")).toBe(8 * 1024 ** 3);
  expect(sizeOf("512MB")).toBe(512e6);
  expect(sizeOf(1024)).toBe(1024);
  expect(sizeOf("much")).toBe(0);
});

test("without a frame of its own the innermost counts", () => {
  expect(frameOf('File "/lib/python3.11/json.py", line 3, in loads')).toBe("json.py:3 in loads");
  expect(frameOf("no frames")).toBeNull();
});
