/** The stretch of time a report is about, as the address says it. */
export type Range = "24h" | "7d" | "30d" | "month" | "last" | "own";
export const RANGES: readonly Range[] = ["24h", "7d", "30d", "month", "last", "own"];

export interface Span {
  from: string;
  to: string | undefined;
}

const HOUR = 3_600_000;

/** Whole hours for "the last …", so that a page that is drawn anew asks the same; months are UTC,
 * as budgets count them. */
export function span(range: string, own: { from?: string; to?: string }, now: number): Span {
  const back = (hours: number): Span => ({ from: stamp(Math.floor(now / HOUR) * HOUR - hours * HOUR), to: undefined });
  const today = new Date(now);
  const month = (offset: number): string => stamp(Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + offset, 1));
  if (range === "24h") return back(24);
  if (range === "30d") return back(30 * 24);
  if (range === "month") return { from: month(0), to: undefined };
  if (range === "last") return { from: month(-1), to: month(0) };
  if (range === "own") {
    const from = day(own.from) ?? back(7 * 24).from;
    return { from, to: day(own.to, 1) };
  }
  return back(7 * 24);
}

/** Midnight (UTC) of a day as an input gives it, or of one so many days later. */
function day(text: string | undefined, later = 0): string | undefined {
  if (!text || !/^\d{4}-\d{2}-\d{2}$/.test(text)) return undefined;
  const found = Date.parse(`${text}T00:00:00Z`);
  return Number.isNaN(found) ? undefined : stamp(found + later * 24 * HOUR);
}

function stamp(ms: number): string {
  return new Date(ms).toISOString().replace(".000Z", "Z");
}

/** How the command line says the same. */
export function asFlags(range: string, found: Span): string[] {
  if (range === "24h" || range === "30d" || range === "7d") return ["--from", range];
  return ["--from", found.from, ...(found.to ? ["--to", found.to] : [])];
}
