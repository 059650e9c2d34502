import { expect, test } from "vitest";

import { ranksOf } from "./ranks";
import type { Spec } from "./asking";

const spec = (roles: object): Pick<Spec, "roles"> => ({ roles }) as Pick<Spec, "roles">;

test("ranks are numbered as the server numbers them", () => {
  const found = ranksOf(spec({ worker: { count: 2, nproc: 2, gpus: 0 }, chief: { count: 1, nproc: null, gpus: 0 } }));
  expect(found.map((each) => each.name)).toEqual(["chief-0-0", "worker-0-0", "worker-0-1", "worker-1-0", "worker-1-1"]);
});

test("a member has a rank for each of its GPUs", () => {
  expect(ranksOf(spec({ worker: { count: 1, nproc: null, gpus: 2 } })).length).toBe(2);
});

test("no spec makes the page count for ever", () => {
  expect(ranksOf(spec({ worker: { count: 1e9, nproc: 1, gpus: 0 } })).length).toBe(4096);
});
