import { expect, test } from "vitest";

import type { Detail } from "./asking";
import { asTyped, bodyOf, cliOf } from "./changing";

const job = { id: "j1", name: "otter", spec: { roles: { worker: { count: 2, gpus: 1, memory: "8GiB" } } } } as unknown as Detail;
const before = asTyped(job.spec, { lr: "0.1", opt: "sgd" });

test("what is as it was is not sent", () => {
  expect(bodyOf(job, before, before)).toEqual({ params: {}, changes: {} });
  expect(cliOf(job, before, before)).toBe("windlass rerun otter");
});

test("changes are sent typed, and spelt as the command line takes them", () => {
  const after = { ...before, params: { ...before.params, lr: "0.01", note: "a b" }, gpus: 2, memory: "12GiB", from: "4000", name: "two" };
  expect(bodyOf(job, before, after)).toEqual({
    params: { lr: 0.01, note: "a b" },
    changes: { name: "two", roles: { worker: { gpus: 2, memory: "12GiB" } }, start_from: { job: "j1", step: 4000, model: null, resume: true } },
  });
  expect(cliOf(job, before, after)).toBe("windlass rerun otter --name two --gpus 2 --memory 12GiB --from step=4000 lr=0.01 'note=a b'");
});
