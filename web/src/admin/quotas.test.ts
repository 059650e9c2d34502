import { expect, test } from "vitest";

import type { Schema } from "../api/client";
import { parseAmounts, parseCaps, size, tree, writeAmounts, writeCaps } from "./quotas";

function quota(name: string, parent: string | null, cohort = false): Schema["QuotaView"] {
  return { name, parent, cohort, revision: 1, changed: "", exists: true, nominal: {}, borrow: {}, lend: {}, used: {}, weight: 1, reclaim_any: false, caps: [] };
}

test("members stand below their cohort, cohorts before projects", () => {
  const found = tree([quota("vision", "research"), quota("alone", null), quota("research", null, true), quota("deep", "research", true), quota("nlp", "deep")]);
  expect(found.map((each) => [each.quota.name, each.depth])).toEqual([["research", 0], ["deep", 1], ["nlp", 2], ["vision", 1], ["alone", 0]]);
});

test("a project whose cohort is not seen stands by itself, and a circle ends", () => {
  expect(tree([quota("vision", "hidden")]).map((each) => each.depth)).toEqual([0]);
  expect(tree([quota("a", "b", true), quota("b", "a", true)])).toEqual([]);
});

test("amounts are read as they are written", () => {
  expect(parseAmounts("gpus=8, memory=64GiB gpus:H200=0.5")).toEqual({ amounts: { gpus: 8, memory: "64GiB", "gpus:H200": 0.5 }, wrong: null });
  expect(parseAmounts("gpus").wrong).toBe("gpus");
  expect(parseAmounts("=4").wrong).toBe("=4");
  expect(parseAmounts("gpus=lots").amounts).toEqual({ gpus: "lots" }); // the server says what it wants
  expect(writeAmounts({ gpus: 8, memory: "64GiB" })).toBe("gpus=8 memory=64GiB");
});

test("caps come back as they were", () => {
  const text = "notebook:gpus=2\nuser=ann:gpus=4 cpus=8\nserve,user=bob:gpus=1";
  const { caps, wrong } = parseCaps(text);
  expect(wrong).toBeNull();
  expect(caps[2]).toEqual({ kind: "serve", user: "bob", limits: { gpus: 1 } });
  expect(writeCaps(caps)).toBe(text);
  expect(parseCaps("everybody:gpus=2").wrong).toBe("everybody:gpus=2");
  expect(parseCaps("notebook").wrong).toBe("notebook");
});

test("a size is a number for a bar", () => {
  expect(size("64GiB")).toBe(64 * 2 ** 30);
  expect(size(3)).toBe(3);
  expect(size(undefined)).toBe(0);
});
