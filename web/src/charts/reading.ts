/** Series from the server. What several charts of a page want of one job in the same moment is
 * one request. */
import { BASE, headers, logIn, refusal } from "../api/client";
import type { By } from "./merge";
import { decoded, type Series } from "./wire";

export interface Asked {
  points: number;
  by?: By;
  /** Steps, or UTC milliseconds. */
  from?: number;
  to?: number;
}

interface Waiting {
  key: string;
  take: (series: Series[]) => void;
  fail: (error: unknown) => void;
}

const KEYS_AT_ONCE = 40;
const waiting = new Map<string, Waiting[]>();

/** One key of one job, a series for each rank. */
export function readSeries(job: string, key: string, asked: Asked): Promise<Series[]> {
  return new Promise((take, fail) => {
    const group = JSON.stringify([job, asked]);
    const others = waiting.get(group);
    if (others) {
      others.push({ key, take, fail });
      return;
    }
    waiting.set(group, [{ key, take, fail }]);
    setTimeout(() => {
      const all = waiting.get(group) ?? [];
      waiting.delete(group);
      for (let at = 0; at < all.length; at += KEYS_AT_ONCE) void send(job, all.slice(at, at + KEYS_AT_ONCE), asked);
    }, 0);
  });
}

async function send(job: string, wanted: readonly Waiting[], asked: Asked): Promise<void> {
  try {
    const found = await readMany(job, [...new Set(wanted.map((each) => each.key))], asked);
    for (const each of wanted) each.take(found.filter((series) => series.key === each.key));
  } catch (error) {
    for (const each of wanted) each.fail(error);
  }
}

/** Several keys of one job in one request. */
export async function readMany(job: string, keys: readonly string[], asked: Asked): Promise<Series[]> {
  const query = new URLSearchParams({ key: keys.join(","), points: String(asked.points), format: "binary" });
  if (asked.by) query.set("by", asked.by);
  if (asked.from !== undefined) query.set("from", String(asked.from));
  if (asked.to !== undefined) query.set("to", String(asked.to));
  const answer = await fetch(`${BASE}api/v1/jobs/${encodeURIComponent(job)}/metrics?${query}`, { headers: headers() });
  if (answer.status === 401) logIn();
  if (!answer.ok) throw await refusal(answer);
  return decoded(job, await answer.arrayBuffer());
}
