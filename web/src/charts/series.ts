/** Metrics of several jobs as curves: read once, thinned; then only what is new, as the feed tells
 * of it; and finer where the reader zooms in.
 *
 *   ["series", job, key]                      the whole, thinned by the server; new points are
 *                                             appended here (appending.ts)
 *   ["series-part", job, key, by, from, to]   what a zoom shows, finer */
import { useQueries, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";

import { useFeed } from "../shell/feed";
import { appenderOf } from "./appending";
import type { Axis, Zoom } from "./line";
import { endsOf, startOf } from "./lines";
import { spliced, type By } from "./merge";
import { readMany, readSeries } from "./reading";
import type { Series } from "./wire";

export { linesOf, startOf, type Drawn } from "./lines";
export type { Series } from "./wire";

/** Points of each series at first: two for a pixel of a wide screen. */
export const POINTS = 2000;

export interface SeriesWanted {
  /** Ids of jobs. */
  jobs: readonly string[];
  keys: readonly string[];
  /** Where the reader zoomed to, on which axis: thinned series are read finer there. */
  axis?: Axis;
  zoom?: Zoom | null;
  /** By job, when its time began (UTC ms), for the axis `relative`; else its first point. */
  starts?: Readonly<Record<string, number>>;
  enabled?: boolean;
}

export interface SeriesFound {
  /** By job, key and rank, as far as they are there. */
  series: readonly Series[];
  loading: boolean;
  error: Error | null;
}

/** Followed as long as the component is shown. */
export function useSeries({ jobs, keys, axis = "step", zoom = null, starts, enabled = true }: SeriesWanted): SeriesFound {
  const queries = useQueryClient();
  useFeed({ metrics: (notice) => appenderOf(queries, readMany).note(notice) });

  const pairs = useMemo(() => jobs.flatMap((job) => keys.map((key) => ({ job, key }))), [jobs.join(), keys.join()]);
  const whole = useQueries({
    queries: pairs.map(({ job, key }) => ({
      queryKey: ["series", job, key],
      queryFn: () => readSeries(job, key, { points: POINTS }),
      structuralSharing: false as const,
      staleTime: Infinity, // the feed tells what is new
      enabled,
    })),
    combine: combined,
  });

  const by: By = axis === "step" ? "step" : "time";
  const wanted = !zoom
    ? []
    : pairs.flatMap(({ job, key }, at) => {
        const known = whole.data[at];
        if (!known?.some((each) => each.thinned)) return [];
        const ends = endsOf(zoom, axis, starts?.[job] ?? startOf(known));
        return [{ job, key, from: ends[0], to: ends[1] }];
      });
  const parts = useQueries({
    queries: wanted.map(({ job, key, from, to }) => ({
      queryKey: ["series-part", job, key, by, from, to],
      queryFn: () => readSeries(job, key, { points: POINTS, by, from, to }),
      structuralSharing: false as const,
      staleTime: Infinity,
      gcTime: 60_000,
      enabled,
    })),
    combine: combined,
  });

  const series = useMemo(
    () =>
      whole.data.flatMap((found) =>
        (found ?? []).map((each) => {
          const finer = parts.data.flatMap((part) => part ?? []).find((part) => same(part, each));
          return finer ? spliced(each, finer, by) : each;
        }),
      ),
    [whole.data, parts.data, by],
  );
  return { series, loading: whole.loading, error: whole.error };
}

interface Answer {
  data: Series[] | undefined;
  isPending: boolean;
  fetchStatus: string;
  error: Error | null;
}

function combined(found: readonly Answer[]): { data: (Series[] | undefined)[]; loading: boolean; error: Error | null } {
  return {
    data: found.map((each) => each.data),
    loading: found.some((each) => each.isPending && each.fetchStatus !== "idle"),
    error: found.find((each) => each.error)?.error ?? null,
  };
}

function same(one: Series, other: Series): boolean {
  return one.job === other.job && one.key === other.key && one.rank === other.rank;
}
