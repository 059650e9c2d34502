/** Why jobs wait, from the line of their queue: a job itself has no reason as long as it waits. */
import { useQueries } from "@tanstack/react-query";

import { api, got, type Schema } from "../api/client";
import { useWho } from "../shell/who";

const MOST = 1000;

/** By the job's id, as far as the lines of these queues are known. */
export function useLines(queues: readonly string[]): ReadonlyMap<string, Schema["QueuedJob"]> {
  const who = useWho();
  return useQueries({
    queries: queues.map((name) => ({
      queryKey: ["queues", name, "line"],
      queryFn: () => got(api.GET("/api/v1/queues/{name}/jobs", { params: { path: { name }, query: { limit: MOST } } })),
      enabled: who.may("queue.read"),
    })),
    combine: (lines) =>
      new Map(lines.flatMap((each) => each.data?.waiting ?? []).flatMap((each) => (each.id ? [[each.id, each] as const] : []))),
  });
}
