/** A report's rows as stacked bars: what was used, what lay idle, what nobody is charged for. */
import type { Schema } from "../api/client";

type Row = Schema["UsageRow"];
export type Of = "gpu" | "cpu" | "memory" | "cost";
export const OFS: readonly Of[] = ["gpu", "cpu", "memory", "cost"];
export type PartName = "used" | "idle" | "held" | "charged" | "grace" | "lost";

export const PARTS: readonly PartName[] = ["used", "held", "charged", "idle", "grace", "lost"];

export interface Bar {
  key: string;
  label: string;
  total: number;
  parts: readonly { name: PartName; amount: number }[];
}

const GIB_HOUR = 2 ** 30 * 3600;

/** Hours of GPUs and CPUs, GiB hours of memory, units of money. */
export function amounts(row: Row, of: Of): { held: number; used: number | null } {
  if (of === "gpu") return { held: row.gpu_seconds / 3600, used: null };
  if (of === "cpu") return { held: row.cpu_seconds / 3600, used: row.used_cpu_seconds / 3600 };
  if (of === "memory") {
    return { held: row.memory_byte_seconds / GIB_HOUR, used: row.used_memory_byte_seconds / GIB_HOUR };
  }
  return { held: row.cost_micro / 1e6, used: null };
}

/** One bar for each key, in the report's order; days by time, the rest largest first. */
export function bars(rows: readonly Row[], of: Of, by: string): Bar[] {
  const found = new Map<string, { label: string; parts: Map<PartName, number> }>();
  for (const row of rows) {
    const bar = found.get(row.key) ?? { label: row.job ?? row.key, parts: new Map<PartName, number>() };
    found.set(row.key, bar);
    const add = (name: PartName, amount: number): void => {
      if (amount > 0) bar.parts.set(name, (bar.parts.get(name) ?? 0) + amount);
    };
    const { held, used } = amounts(row, of);
    if (row.line !== "charged") add(row.line === "lost" ? "lost" : "grace", held);
    else if (of === "cost") add("charged", held);
    else if (used === null) add("held", held);
    else {
      // what was used over what was held is used all the same
      add("used", used);
      add("idle", held - used);
    }
  }
  const made = [...found].map(([key, { label, parts }]) => ({
    key,
    label: label || key || "–",
    total: [...parts.values()].reduce((sum, each) => sum + each, 0),
    parts: [...parts].map(([name, amount]) => ({ name, amount })),
  }));
  return by === "day"
    ? made.sort((one, other) => (one.key < other.key ? -1 : 1))
    : made.sort((one, other) => other.total - one.total);
}

/** The share of what was held that was not used; null where nothing was held. */
export function idle(row: Row, of: "cpu" | "memory"): number | null {
  const { held, used } = amounts(row, of);
  return held > 0 ? Math.max(0, 1 - (used ?? 0) / held) : null;
}
