/** What a study has found, worked out from its trials. */
import type { Schema } from "../api/client";

type Trial = Schema["TrialView"];
type Objective = Schema["Objective"];

/** Those that can be the best: with a value for every objective, within bounds, not failed. */
export function counted(trials: readonly Trial[]): Trial[] {
  return trials.filter(
    (each) =>
      each.feasible &&
      each.state !== "failed" &&
      each.values.length > 0 &&
      each.values.every((value) => value !== null && Number.isFinite(value)),
  );
}

/** Times this, less is better. */
export function sign(objective: Objective): number {
  return objective.goal === "maximize" ? -1 : 1;
}

/** Numbers of the trials that no other beats in every objective. */
export function front(objectives: readonly Objective[], trials: readonly Trial[]): Set<number> {
  const found = counted(trials).map((trial) => ({
    number: trial.number,
    scores: objectives.map((objective, at) => sign(objective) * (trial.values[at] as number)),
  }));
  // In the order of the first score only one that stands before can beat another, or one alike.
  found.sort((a, b) => order(a.scores, b.scores));
  const kept: typeof found = [];
  for (const each of found) if (!kept.some((other) => beats(other.scores, each.scores))) kept.push(each);
  return new Set(kept.map((each) => each.number));
}

function order(one: readonly number[], other: readonly number[]): number {
  for (let at = 0; at < one.length; at++) {
    const difference = (one[at] as number) - (other[at] as number);
    if (difference) return difference;
  }
  return 0;
}

function beats(one: readonly number[], other: readonly number[]): boolean {
  return one.every((score, at) => score <= (other[at] as number)) && one.some((score, at) => score < (other[at] as number));
}

/** The best value after each trial, from the places where it changed. */
export function bestSoFar(curve: readonly (readonly [number, number])[], made: number): { x: Float64Array; y: Float64Array } {
  const first = curve[0]?.[0];
  if (first === undefined) return { x: new Float64Array(0), y: new Float64Array(0) };
  const last = Math.max(made - 1, curve[curve.length - 1]?.[0] ?? 0);
  const x = Float64Array.from({ length: last - first + 1 }, (_, n) => first + n);
  const y = new Float64Array(x.length);
  let at = 0;
  x.forEach((number, n) => {
    while (at + 1 < curve.length && (curve[at + 1] as readonly [number, number])[0] <= number) at += 1;
    y[n] = (curve[at] as readonly [number, number])[1];
  });
  return { x, y };
}

/** The steps of the rungs that a trial can come to, up to the first that none has passed. */
export function milestones(pruner: Schema["PrunerSpec"], highest: number): number[] {
  const { min_step: first = 1, factor = 3, max_step: end } = pruner;
  const found: number[] = [];
  for (let at = 0; at <= highest; at++) {
    const step = first * factor ** at;
    if (end !== null && end !== undefined && step >= end) {
      found.push(end);
      break;
    }
    found.push(step);
  }
  return found;
}

export const OVER = new Set(["succeeded", "pruned", "failed", "cancelled"]);

/** How many trials are over, by the counts of their states. */
export function ended(counts: Readonly<Record<string, number>>): number {
  return Object.entries(counts).reduce((sum, [state, count]) => sum + (OVER.has(state) ? count : 0), 0);
}

/** `1h30m` in seconds; null of what is not so. */
export function secondsOf(text: string | number | null | undefined): number | null {
  if (text === null || text === undefined) return null;
  if (typeof text === "number") return text;
  const sizes: Readonly<Record<string, number>> = { d: 86_400, h: 3600, m: 60, s: 1, ms: 0.001 };
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|[dhms])/g)];
  if (!parts.length || parts.map(([whole]) => whole).join("") !== text) return null;
  return parts.reduce((sum, [, digits, unit]) => sum + Number(digits) * (sizes[unit ?? "s"] ?? 1), 0);
}
