import { expect, test } from "vitest";

import type { Schema } from "../api/client";
import { asFlags, span } from "./range";
import { bars, idle } from "./stack";

function row(changes: Partial<Schema["UsageRow"]>): Schema["UsageRow"] {
  return {
    key: "ann", line: "charged", project: null, user: null, job: null, cpu_seconds: 0, memory_byte_seconds: 0,
    gpu_seconds: 0, used_cpu_seconds: 0, used_memory_byte_seconds: 0, peak_memory_bytes: 0, cost: "0.00", cost_micro: 0, ...changes,
  };
} // prettier-ignore

const NOW = Date.parse("2026-11-16T10:25:30Z");

test("a stretch begins at a whole hour, so that asking again is the same question", () => {
  expect(span("24h", {}, NOW)).toEqual({ from: "2026-11-15T10:00:00Z", to: undefined });
  expect(span("nonsense", {}, NOW)).toEqual(span("7d", {}, NOW));
});

test("months are calendar months of UTC", () => {
  expect(span("month", {}, NOW).from).toBe("2026-11-01T00:00:00Z");
  expect(span("last", {}, Date.parse("2027-01-05T00:00:00Z"))).toEqual({ from: "2026-12-01T00:00:00Z", to: "2027-01-01T00:00:00Z" });
});

test("an own range holds its last day whole, and a broken one is not sent", () => {
  expect(span("own", { from: "2026-11-01", to: "2026-11-02" }, NOW)).toEqual({ from: "2026-11-01T00:00:00Z", to: "2026-11-03T00:00:00Z" });
  expect(span("own", { from: "x", to: "2026-13-99" }, NOW)).toEqual({ from: span("7d", {}, NOW).from, to: undefined });
});

test("the command line says the same stretch", () => {
  expect(asFlags("30d", span("30d", {}, NOW))).toEqual(["--from", "30d"]);
  expect(asFlags("last", span("last", {}, NOW))).toEqual(["--from", "2026-10-01T00:00:00Z", "--to", "2026-11-01T00:00:00Z"]);
});

test("held is used and idle, and what is not charged stands beside it", () => {
  const found = bars(
    [row({ cpu_seconds: 7200, used_cpu_seconds: 1800 }), row({ line: "grace", cpu_seconds: 3600 })],
    "cpu",
    "user",
  );
  expect(found).toEqual([
    { key: "ann", label: "ann", total: 3, parts: [{ name: "used", amount: 0.5 }, { name: "idle", amount: 1.5 }, { name: "grace", amount: 1 }] },
  ]);
});

test("more used than held is no negative bar", () => {
  expect(bars([row({ cpu_seconds: 10, used_cpu_seconds: 20 })], "cpu", "user")[0]?.parts.map((each) => each.name)).toEqual(["used"]);
  expect(idle(row({ cpu_seconds: 10, used_cpu_seconds: 20 }), "cpu")).toBe(0);
  expect(idle(row({}), "cpu")).toBeNull();
});

test("days stand in their order, others by size", () => {
  const two = [row({ key: "2026-11-02", cost_micro: 1 }), row({ key: "2026-11-01", cost_micro: 2 })];
  expect(bars(two, "cost", "day").map((each) => each.key)).toEqual(["2026-11-01", "2026-11-02"]);
  expect(bars([row({ key: "a", cost_micro: 1 }), row({ key: "b", cost_micro: 2 })], "cost", "user").map((each) => each.key)).toEqual(["b", "a"]);
});
