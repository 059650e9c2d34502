/** The order of trials in their table: `number`, `-value.0`, `params.lr`; who has no value is last. */
import type { Schema } from "../api/client";

type Trial = Schema["TrialView"];

export function inTrialOrder(sort: string): (one: Trial, other: Trial) => number {
  const down = sort.startsWith("-") ? -1 : 1;
  const key = sort.replace(/^-/, "");
  return (one, other) => {
    const [a, b] = [keyed(one, key), keyed(other, key)];
    if (a === undefined || b === undefined) return Number(a === undefined) - Number(b === undefined) || other.number - one.number;
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return down * order || other.number - one.number;
  };
}

function keyed(trial: Trial, key: string): string | number | undefined {
  const [, kind, name = ""] = /^(value|params)\.(.*)$/.exec(key) ?? [];
  if (kind === "value") return trial.values[Number(name)] ?? undefined;
  if (kind === "params") {
    const found = trial.params[name];
    return typeof found === "boolean" ? String(found) : found;
  }
  if (key === "state") return trial.state;
  if (key === "step") return trial.step ?? undefined;
  if (key === "rung") return trial.rung;
  return trial.number;
}
