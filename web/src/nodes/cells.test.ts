import { expect, test } from "vitest";

import type { Schema } from "../api/client";
import { cells, matches, together } from "./cells";

function node(changes: object): Schema["NodeView"] {
  const all = { cpus_milli: 4000, memory_bytes: 8, gpus: 4, slots: 8 };
  return {
    name: "local", engine: "local", state: "ready", reason: "", capacity: all, reserve: all, free: all,
    gpu_model: "H200", rack: "r1", block: "", pool: "big", labels: ["isolation-1"], isolation: {}, jobs: [], gpus: [], used: {}, ...changes,
  };
} // prettier-ignore

test("what is held is in use though nobody says which GPU it is", () => {
  const found = cells(node({ free: { cpus_milli: 0, memory_bytes: 0, gpus: 1, slots: 0 } }));
  expect(found.map((each) => each.state)).toEqual(["used", "used", "used", "free"]);
  expect(found[0]?.busy).toBeNull();
});

test("a GPU that is named has its owner, and nothing is guessed", () => {
  const gpu = { jobs: [], percent: null, memory_bytes: null, watts: null, celsius: null };
  const otter = { id: "j1", name: "otter", members: 1 };
  const found = cells(
    node({
      capacity: { cpus_milli: 0, memory_bytes: 0, gpus: 2, slots: 0 },
      free: { cpus_milli: 0, memory_bytes: 0, gpus: 0, slots: 0 },
      gpus: [{ ...gpu, id: "0" }, { ...gpu, id: "1", jobs: [otter], percent: 87, celsius: 60 }],
    }),
  );
  expect(found.map((each) => each.state)).toEqual(["free", "used"]);
  expect(found[1]).toMatchObject({ busy: 87, celsius: 60, owners: [otter] });
});

test("the GPUs of a lost node are neither free nor used", () => {
  expect(new Set(cells(node({ state: "lost" })).map((each) => each.state))).toEqual(new Set(["down"]));
});

test("only ready nodes count together, and one that does not tell makes the sum unknown", () => {
  expect(together([node({}), node({ state: "lost" })], "gpus")).toEqual({ total: 4, free: 4 });
  expect(together([node({}), node({ free: null })], "gpus")).toEqual({ total: 8, free: null });
});

test("a node is found by any of its words", () => {
  expect(matches(node({}), "h200 ISOLATION")).toBe(true);
  expect(matches(node({}), "h200 r2")).toBe(false);
});
