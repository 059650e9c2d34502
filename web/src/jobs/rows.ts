/** The rows of the table as they are kept in the page: some pages from the start on, no gaps. Pure. */
import type { Row, Told } from "./columns";

export interface Loaded {
  rows: readonly Row[];
  /** The cursor behind the last row; null: that was all. */
  next: string | null;
}

/** The first page was asked anew. It stands for all rows up to its last one; what was loaded
 * behind that stays. Where its last row was not known before, what lay behind is unknown: it is
 * loaded again when somebody scrolls there. */
export function renewed(old: Loaded, first: Loaded): Loaded {
  const last = first.rows[first.rows.length - 1];
  const at = last && first.next !== null ? old.rows.findIndex((each) => each.id === last.id) : -1;
  if (at < 0) return first;
  const fresh = new Set(first.rows.map((each) => each.id));
  const behind = old.rows.slice(at + 1).filter((each) => !fresh.has(each.id));
  return behind.length ? { rows: [...first.rows, ...behind], next: old.next } : first;
}

/** The next page came. A job that moved over the border meanwhile is not shown twice. */
export function extended(old: Loaded, page: Loaded): Loaded {
  const known = new Set(old.rows.map((each) => each.id));
  return { rows: [...old.rows, ...page.rows.filter((each) => !known.has(each.id))], next: page.next };
}

/** Some rows were asked anew; one that was asked for and did not come is gone. */
export function replaced(old: Loaded, asked: readonly string[], found: readonly Row[]): Loaded {
  const fresh = new Map(found.map((each) => [each.id, each]));
  const gone = new Set(asked.filter((id) => !fresh.has(id)));
  return { ...old, rows: old.rows.filter((each) => !gone.has(each.id)).map((each) => fresh.get(each.id) ?? each) };
}

/** What an event said at once; the whole row is asked for later. */
export function moved(old: Loaded, id: string, change: Partial<Row>): Loaded {
  if (!old.rows.some((each) => each.id === id)) return old;
  return { ...old, rows: old.rows.map((each) => (each.id === id ? { ...each, ...change } : each)) };
}

/** New last values, as the stream tells them. */
export function measuredNow(old: Loaded, id: string, values: Readonly<Record<string, number | string>>, step?: number | null): Loaded {
  const row = old.rows.find((each) => each.id === id);
  if (!row) return old;
  const metrics: Record<string, Told> = { ...row.metrics };
  for (const [key, last] of Object.entries(values)) {
    const before = metrics[key];
    metrics[key] = { last, min: further(before?.min, last, Math.min), max: further(before?.max, last, Math.max) };
  }
  return moved(old, id, { metrics, ...(typeof step === "number" ? { step } : {}) });
}

type Maybe = number | string | null | undefined;

function further(before: Maybe, now: number | string, pick: (a: number, b: number) => number): number | string | null {
  if (typeof now !== "number") return before ?? null;
  return typeof before === "number" ? pick(before, now) : now;
}
