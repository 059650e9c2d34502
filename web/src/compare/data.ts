/** The jobs of a comparison, as they are now. Details are asked once for each; then only of the
 * job that the feed tells of, and what it logs is written in without asking. */
import { useQueries, useQuery, useQueryClient, type QueryClient } from "@tanstack/react-query";
import { useMemo } from "react";

import { api, got, Refused, type Schema } from "../api/client";
import { useFeed, type MetricsNotice } from "../shell/feed";
import { few } from "./few";
import { sideOf, withValues, type RunRow, type Side } from "./sides";

/** So many jobs in one picture. */
export const MOST = 500;
const CHUNK = 100;

export interface Found {
  sides: readonly Side[];
  /** By job, when it began, UTC ms. */
  starts: Readonly<Record<string, number>>;
  /** How many were asked for, before the limit. */
  total: number;
  missing: readonly string[];
  loading: boolean;
  error: unknown;
}

interface Asked {
  refs: readonly string[];
  where: string;
  from: number;
}

const detail = few(6, async (ref: string): Promise<Schema["JobDetail"] | null> => {
  try {
    return await got(api.GET("/api/v1/jobs/{ref}", { params: { path: { ref } } }));
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null; // a run that MLflow's client made
    throw error;
  }
});

async function rows(ids: readonly string[]): Promise<RunRow[]> {
  const page = await got(api.GET("/api/v1/runs", { params: { query: { id: ids.join(","), columns: "*", limit: CHUNK } } }));
  return page.items as unknown as RunRow[];
}

export function useSides({ refs, where, from }: Asked): Found {
  const queries = useQueryClient();
  const chosen = useQuery({
    queryKey: ["compare", "where", where, from],
    queryFn: () => got(api.GET("/api/v1/runs", { params: { query: { filter: where, columns: "params.none", limit: MOST, offset: from } } })),
    enabled: where !== "",
  });
  const all = where ? (chosen.data?.items ?? []).map((each) => String(each.id)) : refs.slice(from, from + MOST);
  const known = useMemo(() => [...new Set(all)], [all.join()]);

  const details = useQueries({
    queries: known.map((ref) => ({
      queryKey: ["compare", "job", ref],
      queryFn: () => detail(ref),
      staleTime: Infinity, // the feed tells
    })),
    combine: (found) => ({
      data: found.map((each) => each.data),
      loading: found.some((each) => each.isPending),
      error: found.find((each) => each.error)?.error ?? null,
    }),
  });
  const ids = useMemo(() => known.map((ref, at) => details.data[at]?.id ?? ref), [known, details.data]);
  const chunks = useMemo(() => {
    if (details.loading && known.some((ref) => !/^[0-9a-f]{32}$/.test(ref))) return [];
    return Array.from({ length: Math.ceil(ids.length / CHUNK) }, (_, at) => ids.slice(at * CHUNK, (at + 1) * CHUNK));
  }, [ids.join(), details.loading]);
  const runs = useQueries({
    queries: chunks.map((chunk) => ({
      queryKey: ["compare", "runs", chunk.join()],
      queryFn: () => rows(chunk),
      staleTime: Infinity,
    })),
    combine: (found) => ({
      data: found.flatMap((each) => each.data ?? []),
      loading: found.some((each) => each.isPending),
      error: found.find((each) => each.error)?.error ?? null,
    }),
  });

  useFeed({
    event: (event) => {
      const at = event.job ? ids.indexOf(event.job) : -1;
      if (at < 0 || event.kind === "checkpoint") return;
      void queries.invalidateQueries({ queryKey: ["compare", "job", known[at]] });
      if (event.state) void queries.invalidateQueries({ queryKey: ["compare", "runs", chunks.find((each) => each.includes(ids[at] ?? ""))?.join()] });
    },
    metrics: (notice) => {
      const chunk = chunks.find((each) => each.includes(notice.run));
      if (chunk) note(queries, chunk, notice);
    },
  });

  const found = useMemo(() => {
    const told = new Map(runs.data.map((each) => [each.id, each]));
    const sides: Side[] = [];
    const missing: string[] = [];
    const starts: Record<string, number> = {};
    ids.forEach((id, at) => {
      const job = details.data[at];
      if (job === undefined) return; // not there yet
      if (job === null && !told.has(id)) {
        if (chunks.length && !runs.loading) missing.push(id);
        return;
      }
      sides.push(sideOf(id, job, told.get(id)));
      if (job?.started) starts[id] = Date.parse(job.started);
    });
    return { sides, missing, starts };
  }, [ids, details.data, runs.data, runs.loading, chunks]);

  return {
    ...found,
    total: where ? (chosen.data?.total ?? 0) : refs.length,
    loading: (where !== "" && chosen.isPending) || details.loading || runs.loading,
    error: chosen.error ?? details.error ?? runs.error,
  };
}

/** Writes what was just logged into what is known of the run. */
function note(queries: QueryClient, chunk: readonly string[], notice: MetricsNotice): void {
  queries.setQueryData<RunRow[]>(["compare", "runs", chunk.join()], (before) =>
    before?.map((row) => (row.id === notice.run ? withValues(row, notice.values) : row)),
  );
}
