/** The columns of the table: a job's own facts, and any parameter or metric. */
import type { Schema } from "../api/client";

export interface Told {
  last: number | string;
  min: number | string | null;
  max: number | string | null;
}
export type Row = Schema["JobView"] & {
  params?: Record<string, { value: string }>;
  metrics?: Record<string, Told>;
};

export const FACTS = [
  "user", "reason", "progress", "step", "gpus", "members", "submitted", "started", "ended", "duration", "framework",
  "queue", "priority", "work", "attempt", "outcome", "exit_code", "engine", "command", "id",
] as const; // prettier-ignore
export type Fact = (typeof FACTS)[number];

export type Column =
  | { kind: "fact"; key: Fact; word: string }
  | { kind: "params" | "metrics" | "min" | "max"; key: string; word: string };

export const DEFAULT_COLUMNS = "user,progress,gpus,submitted,duration,reason";
const KINDS = ["params", "metrics", "min", "max"] as const;
/** What the server sorts by. */
const SORTED: ReadonlySet<string> = new Set([
  "name", "state", "user", "queue", "priority", "framework", "work", "members", "gpus", "submitted", "started",
  "ended", "duration", "outcome", "exit_code",
]); // prettier-ignore

const WIDTHS: Partial<Record<Fact, number>> = {
  reason: 210, command: 260, progress: 116, gpus: 60, members: 84, step: 84, attempt: 64, priority: 80, exit_code: 72,
  user: 84, duration: 96, submitted: 136, started: 136, ended: 136, id: 120,
}; // prettier-ignore

/** What the address says; words that mean nothing are passed over: the link may be an old one. */
export function columnsOf(text: string | undefined): Column[] {
  const found: Column[] = [];
  for (const word of words(text ?? DEFAULT_COLUMNS)) {
    if (found.some((each) => each.word === word)) continue;
    const dot = word.indexOf(".");
    const kind = KINDS.find((each) => each === word.slice(0, dot));
    if (kind && dot < word.length - 1) found.push({ kind, key: unquoted(word.slice(dot + 1)), word });
    else if ((FACTS as readonly string[]).includes(word)) found.push({ kind: "fact", key: word as Fact, word });
  }
  return found;
}

/** Split at commas that are in no quotes. */
function words(text: string): string[] {
  return (text.match(/(?:"[^"]*"|[^,"])+/g) ?? []).map((each) => each.trim()).filter(Boolean);
}

function unquoted(key: string): string {
  return /^".*"$/.test(key) ? key.slice(1, -1) : key;
}

/** The part of the columns that the server has to look up. */
export function askedColumns(columns: readonly Column[]): string {
  return columns.filter((each) => each.kind !== "fact").map((each) => each.word).join(",");
}

export function widthOf(column: Column): number {
  return column.kind === "fact" ? (WIDTHS[column.key] ?? 110) : 120;
}

export function isNumber(column: Column): boolean {
  if (column.kind === "fact") return ["gpus", "members", "step", "attempt", "priority", "exit_code", "duration"].includes(column.key);
  return column.kind !== "params";
}

export function sortable(word: string): boolean {
  return word.includes(".") || SORTED.has(word);
}

/** A click on a head: down first, then up, then as it was. */
export function nextSort(sort: string | undefined, word: string): string | undefined {
  if (sort === `-${word}`) return word;
  return sort === word ? undefined : `-${word}`;
}

export function measured(row: Row, column: Column): number | string | null {
  if (column.kind === "fact") return null;
  if (column.kind === "params") return row.params?.[column.key]?.value ?? null;
  const told = row.metrics?.[column.key];
  return told?.[column.kind === "metrics" ? "last" : column.kind] ?? null;
}
