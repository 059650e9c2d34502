/** What is brushed, in the address: `b.lr=0.01..0.1`, open ends left out, `b.opt=is:adam|sgd`. */
import type { Limit, Limits } from "../charts/coordinates";
import type { Query } from "../look/url";

const MARK = "b.";

export function limitsOf(query: Query): Limits {
  const found: Record<string, Limit> = {};
  for (const [name, text] of Object.entries(query)) {
    const limit = name.startsWith(MARK) ? limitOf(text) : null;
    if (limit) found[name.slice(MARK.length)] = limit;
  }
  return found;
}

function limitOf(text: string): Limit | null {
  if (text.startsWith("is:")) return { of: text.slice(3).split("|").map(decoded) };
  const [, low, high] = /^([^.]*(?:\.\d[^.]*)?)\.\.(.*)$/.exec(text) ?? [];
  if (low === undefined || high === undefined) return null;
  const ends = [low, high].map((end) => (end === "" ? null : Number(end))) as [number | null, number | null];
  return ends.some(Number.isNaN) ? null : { low: ends[0], high: ends[1] };
}

/** The changes that make the address say these limits and no others. */
export function limitsToUrl(limits: Limits, before: Query): Record<string, string | undefined> {
  const changes: Record<string, string | undefined> = {};
  for (const name of Object.keys(before)) if (name.startsWith(MARK)) changes[name] = undefined;
  for (const [key, limit] of Object.entries(limits)) {
    changes[MARK + key] =
      "of" in limit
        ? `is:${limit.of.map((name) => encodeURIComponent(name)).join("|")}`
        : `${said(limit.low)}..${said(limit.high)}`;
  }
  return changes;
}

function said(end: number | null): string {
  return end === null ? "" : String(Number(end.toPrecision(6)));
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // written by hand
  }
}
