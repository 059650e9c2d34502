/** A study's file as a form sees it, and back. */
import { directionOf } from "../compare/goals";
import { unusual } from "./spec";

export type File = Record<string, unknown>;

export interface Range {
  name: string;
  text: string;
  /** It stands on a condition: that is written in the file. */
  bound: boolean;
}

export interface Goal {
  metric: string;
  way: "minimize" | "maximize";
}

/** The first objective; a form has one, a file may have several. */
export function goalOf(file: File): Goal {
  for (const way of ["minimize", "maximize"] as const) {
    const found = [file[way]].flat()[0];
    if (typeof found === "string") return { metric: found, way };
  }
  const listed = Array.isArray(file.objectives) ? (file.objectives[0] as { metric?: string; goal?: string }) : undefined;
  return { metric: listed?.metric ?? "", way: listed?.goal === "maximize" ? "maximize" : "minimize" };
}

/** The fields that say this goal, in the place of all that said another. */
export function withGoal(_file: File, goal: Goal): File {
  return { objectives: undefined, minimize: undefined, maximize: undefined, [goal.way]: goal.metric };
}

export function kindOf(part: unknown): string {
  if (typeof part === "string") return part;
  const kind = typeof part === "object" && part !== null ? (part as File).kind : "";
  return typeof kind === "string" ? kind : "";
}

/** A sampler or a pruner of this kind; what else was said of it stays. */
export function withKind(part: unknown, kind: string): unknown {
  if (!kind) return undefined;
  const known = typeof part === "object" && part !== null ? (part as File) : {};
  return Object.keys(known).some((name) => name !== "kind") ? { ...known, kind } : kind;
}

export function spaceOf(file: File): Range[] {
  const space = (typeof file.space === "object" && file.space !== null ? file.space : {}) as File;
  return Object.entries(space).map(([name, value]) => ({ name, text: textOf(value), bound: isBound(value) }));
}

export function withSpace(file: File, rows: readonly Range[]): File {
  const before = (file.space ?? {}) as File;
  return Object.fromEntries(rows.map((row) => [row.name, row.bound ? (before[row.name] ?? row.text) : row.text]));
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.map(String).join(",");
  if (typeof value === "object" && value !== null) {
    const { range, choices, low, high, kind } = value as File;
    return textOf(range ?? choices ?? `${String(kind)}:${String(low)}..${String(high)}`);
  }
  return String(value ?? "");
}

function isBound(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A job to repeat: what is its own of its spec, its numbers as first ranges, its metric as goal. */
export function baseOf(
  spec: File,
  usual: File,
  metrics: readonly string[],
): { job: File; space: File | null; goal: Goal | null } {
  const { name: _name, project: _project, params: given, kind: _kind, ...rest } = spec;
  const params = (given ?? {}) as Record<string, unknown>;
  const searched = Object.entries(params).filter(([, value]) => typeof value === "number" && value > 0);
  const fixed = Object.fromEntries(Object.entries(params).filter(([key]) => !searched.some(([name]) => name === key)));
  const job = { ...unusual(rest, usual), ...(Object.keys(fixed).length ? { params: fixed } : {}) };
  const goal = (rest.metrics as { goal?: string } | undefined)?.goal;
  const [, way, named] = /^(min|max) (.+)$/.exec(goal ?? "") ?? [];
  const told = named ?? metrics.find((key) => directionOf(key)) ?? metrics[0];
  const better = way ?? (told ? directionOf(told) : null);
  return {
    job,
    space: searched.length ? Object.fromEntries(searched.map(([name, value]) => [name, around(value as number)])) : null,
    goal: told ? { metric: told, way: better === "max" ? "maximize" : "minimize" } : null,
  };
}

/** A range around a value: ten times either way, or whole numbers up to twice as many. */
export function around(value: number): string {
  if (Number.isInteger(value) && value >= 1) return `int:1..${Math.max(2, value * 2)}`;
  const short = (each: number): string => String(Number(each.toPrecision(3)));
  return `log:${short(value / 10)}..${short(value * 10)}`;
}
