/** A job as one side of a comparison: what it was given, how it was run, what it told. */
import type { Schema } from "../api/client";

/** What a run told under one key. */
export interface Told {
  last: number | null;
  min: number | null;
  max: number | null;
}

export interface Side {
  id: string;
  name: string;
  state: string;
  /** The metric that counts, as the job file says it. */
  goal: string | null;
  params: Readonly<Record<string, string>>;
  metrics: Readonly<Record<string, Told>>;
  /** How it was run: command, framework, size. */
  facts: Readonly<Record<string, string>>;
  /** Python, image, variables. */
  environment: Readonly<Record<string, string>>;
  /** Where its code came from. */
  code: Readonly<Record<string, string>>;
}

/** A row of /runs; the server's own form of it is open. */
export interface RunRow {
  id: string;
  name: string;
  user: string;
  status: string;
  job: string | null;
  params: Record<string, { value: string }>;
  metrics: Record<string, Record<string, unknown>>;
}

/** A number as the API spells it: NaN and infinities are words. */
export function numberOf(value: unknown): number | null {
  if (typeof value === "number") return value;
  if (typeof value !== "string" || !value.trim()) return null;
  if (value === "NaN") return NaN;
  const found = Number(value);
  return Number.isNaN(found) ? null : found;
}

export function sideOf(id: string, job: Schema["JobDetail"] | null, run: RunRow | undefined): Side {
  const spec = job?.spec;
  const params: Record<string, string> = {};
  for (const [name, value] of Object.entries(spec?.params ?? {})) params[name] = String(value);
  for (const [name, told] of Object.entries(run?.params ?? {})) params[name] = told.value;
  const metrics: Record<string, Told> = {};
  for (const [key, told] of Object.entries(run?.metrics ?? {})) {
    metrics[key] = { last: numberOf(told.last), min: numberOf(told.min), max: numberOf(told.max) };
  }
  return {
    id,
    name: job?.name ?? run?.name ?? id,
    state: job?.state ?? run?.status.toLowerCase() ?? "",
    goal: spec?.metrics?.goal ?? null,
    params,
    metrics,
    facts: job ? factsOf(job) : {},
    environment: environmentOf(spec),
    code: codeOf(job),
  };
}

function factsOf(job: Schema["JobDetail"]): Record<string, string> {
  return {
    command: job.command,
    framework: job.framework,
    members: String(job.members),
    gpus: String(job.gpus),
    queue: job.queue,
    user: job.user,
    ...(job.exit_code === null || job.exit_code === undefined ? {} : { exit_code: String(job.exit_code) }),
  };
}

function environmentOf(spec: Schema["JobDetail"]["spec"] | undefined): Record<string, string> {
  const told = spec?.environment;
  if (!told) return {};
  return {
    ...(told.python ? { python: told.python } : {}),
    ...(told.image ? { image: told.image } : {}),
    ...told.vars,
    ...Object.fromEntries((told.secrets ?? []).map((name) => [name, "•••"])),
  };
}

function codeOf(job: Schema["JobDetail"] | null): Record<string, string> {
  const code = job?.spec.code;
  const from = (job?.lineage ?? []).map((each) => `${each.name}${each.step === null || each.step === undefined ? "" : `@${each.step}`}`);
  return {
    ...(code?.git ? { git: code.git } : {}),
    ...(code?.ref ? { ref: code.ref } : {}),
    ...(code?.commit ? { commit: code.commit.slice(0, 12) } : {}),
    ...(code?.dir ? { dir: code.dir } : {}),
    ...(code?.bundle ? { bundle: code.bundle.slice(0, 12) } : {}),
    ...(from.length ? { start_from: from.join(" ← ") } : {}),
  };
}

/** All names of one kind that any side has, in order. */
export function namesOf(found: readonly Readonly<Record<string, unknown>>[]): string[] {
  return [...new Set(found.flatMap((each) => Object.keys(each)))].sort((a, b) => a.localeCompare(b));
}

/** Parameters whose values are not the same everywhere. */
export function differingParams(sides: readonly Side[]): string[] {
  const names = namesOf(sides.map((side) => side.params));
  return names.filter((name) => new Set(sides.map((side) => side.params[name] ?? "")).size > 1);
}

/** A run with what it just logged. */
export function withValues(row: RunRow, values: Readonly<Record<string, unknown>>): RunRow {
  const metrics = { ...row.metrics };
  for (const [key, value] of Object.entries(values)) {
    const before = metrics[key] ?? {};
    const numbers = (name: string): number[] => [before[name], value].filter((each): each is number => typeof each === "number");
    const [low, high] = [numbers("min"), numbers("max")];
    metrics[key] = {
      ...before,
      last: value,
      ...(low.length ? { min: Math.min(...low) } : {}),
      ...(high.length ? { max: Math.max(...high) } : {}),
    };
  }
  return { ...row, metrics };
}
