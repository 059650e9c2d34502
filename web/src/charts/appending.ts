/** New points of jobs that are shown: asked for when the feed tells of them, from the last point
 * that is known on, all keys of a job together, one request at a time. */
import type { QueryClient } from "@tanstack/react-query";

import type { MetricsNotice } from "../shell/feed";
import { appended, thinned } from "./merge";
import type { readMany } from "./reading";
import type { Series } from "./wire";

const PACE_MS = 250;
/** Clocks of ranks differ: a little is read again. */
const OVERLAP_MS = 2_000;
const FRESH_MS = 30_000;
/** Of new points at once, and of a series in all; beyond that it is thinned here. */
const NEW_POINTS = 2_000;
const MOST_POINTS = 6_000;

type Read = typeof readMany;

export class Appender {
  private readonly busy = new Set<string>();
  /** By job the keys that have new points; null: any may. */
  private readonly wanted = new Map<string, Set<string> | null>();
  /** Jobs whose last request failed: the next notice asks for all keys, from the same point on. */
  private readonly missed = new Set<string>();

  constructor(
    private readonly queries: QueryClient,
    private readonly read: Read,
    private readonly pace: (then: () => void) => void = (then) => void setTimeout(then, PACE_MS),
  ) {}

  note({ job, values, more }: Pick<MetricsNotice, "job" | "values" | "more">): void {
    if (job === null) return;
    const before = this.wanted.get(job);
    const keys = more || before === null ? null : new Set([...(before ?? []), ...Object.keys(values)]);
    this.wanted.set(job, keys);
    if (!this.busy.has(job)) this.follow(job);
  }

  private follow(job: string): void {
    const keys = this.missed.delete(job) ? null : (this.wanted.get(job) ?? null);
    this.wanted.delete(job);
    this.busy.add(job);
    void this.append(job, keys)
      .catch(() => void this.missed.add(job))
      .then(() =>
        this.pace(() => {
          this.busy.delete(job);
          if (this.wanted.has(job)) this.follow(job);
        }),
      );
  }

  private async append(job: string, keys: ReadonlySet<string> | null): Promise<void> {
    const known = new Map<string, Series[]>();
    for (const query of this.queries.getQueryCache().findAll({ queryKey: ["series", job], type: "active" })) {
      const key = query.queryKey[2] as string;
      const data = query.state.data as Series[] | undefined;
      if (data && (!keys || keys.has(key))) known.set(key, data);
    }
    for (const { keys: some, from } of groups(known)) {
      const since = from === null ? {} : { by: "time" as const, from };
      const fresh = await this.read(job, some, { points: NEW_POINTS, ...since });
      for (const key of some) {
        const mine = fresh.filter((each) => each.key === key);
        if (mine.length) this.queries.setQueryData<Series[]>(["series", job, key], (old) => together(old ?? [], mine));
      }
    }
  }
}

/** Keys that are asked for together: those that are still being logged, those that were not for a
 * while (each epoch, say), those that have no point yet. */
export function groups(known: ReadonlyMap<string, readonly Series[]>): { keys: string[]; from: number | null }[] {
  const last = new Map<string, number>();
  for (const [key, series] of known) {
    let most = -Infinity;
    for (const each of series) for (const at of each.at) if (at > most) most = at;
    last.set(key, most);
  }
  const newest = Math.max(...last.values());
  const found = { fresh: [] as string[], old: [] as string[], none: [] as string[] };
  for (const [key, at] of last) found[at === -Infinity ? "none" : at >= newest - FRESH_MS ? "fresh" : "old"].push(key);
  const since = (keys: string[]): number => Math.min(...keys.map((key) => last.get(key) as number)) - OVERLAP_MS;
  return [
    ...(found.fresh.length ? [{ keys: found.fresh, from: since(found.fresh) }] : []),
    ...(found.old.length ? [{ keys: found.old, from: since(found.old) }] : []),
    ...(found.none.length ? [{ keys: found.none, from: null }] : []),
  ];
}

/** Each rank with its new points, and ranks that are new. */
export function together(old: readonly Series[], fresh: readonly Series[]): Series[] {
  const found = old.map((each) => {
    const more = fresh.find((one) => one.rank === each.rank);
    return more ? thinned(appended(each, more), MOST_POINTS) : each;
  });
  const ranks = new Set(old.map((each) => each.rank));
  return [...found, ...fresh.filter((each) => !ranks.has(each.rank))].sort((a, b) => a.rank - b.rank);
}

const made = new WeakMap<QueryClient, Appender>();

/** The one of this page: charts share it, so each point is asked for once. */
export function appenderOf(queries: QueryClient, read: Read): Appender {
  const found = made.get(queries) ?? new Appender(queries, read);
  made.set(queries, found);
  return found;
}
