/** What the page asks about a job, by name of the query. */
import { useQuery, type UseQueryResult } from "@tanstack/react-query";

import { api, got, type Schema } from "../../api/client";

export type Detail = Schema["JobDetail"];
export type Spec = Schema["JobSpec"];
export type Why = Schema["Why"];
export type Event = Schema["EventView"];
export type Attempt = Schema["AttemptView"];

const OVER: ReadonlySet<string> = new Set(["succeeded", "failed", "cancelled"]);

export function isOver(state: string): boolean {
  return OVER.has(state);
}

export function useJob(ref: string): UseQueryResult<Detail> {
  return useQuery({
    queryKey: ["job", ref, "detail"],
    queryFn: () => got(api.GET("/api/v1/jobs/{ref}", { params: { path: { ref } } })),
  });
}

export function useWhy(id: string): UseQueryResult<Why> {
  return useQuery({
    queryKey: ["job", id, "why"],
    queryFn: () => got(api.GET("/api/v1/jobs/{ref}/why", { params: { path: { ref: id } } })),
  });
}

export function useEvents(id: string): UseQueryResult<readonly Event[]> {
  return useQuery({
    queryKey: ["job", id, "events"],
    queryFn: async () => (await got(api.GET("/api/v1/jobs/{ref}/events", { params: { path: { ref: id } } }))).items,
  });
}

export function useCheckpoints(id: string): UseQueryResult<readonly Schema["Checkpoint"][]> {
  return useQuery({
    queryKey: ["checkpoints", id],
    queryFn: async () => (await got(api.GET("/api/v1/jobs/{ref}/checkpoints", { params: { path: { ref: id } } }))).items,
  });
}

export interface RunFacts {
  params: Readonly<Record<string, { value: string; source: string }>>;
  metrics: Readonly<Record<string, { last: number | string; step: number | null; min: number; max: number; count: number }>>;
}

/** Parameters as they were found (in the spec, in the command, told by the script) and metrics. */
export function useFacts(id: string): UseQueryResult<RunFacts> {
  return useQuery({
    queryKey: ["job", id, "facts"],
    queryFn: async () => {
      const page = await got(api.GET("/api/v1/runs", { params: { query: { id, columns: "*" } } }));
      return (page.items[0] ?? { params: {}, metrics: {} }) as unknown as RunFacts;
    },
  });
}
