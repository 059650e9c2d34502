/** One stream for the whole page: what happens in the project, as it happens. Whoever shows
 * something of it hears, or is asked anew through the queries of its noun; nothing polls. */
import { useQueryClient, type QueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import type { Schema } from "../api/client";
import { follow, type Health } from "../api/live";
import { useWho } from "./who";

export type Event = Schema["EventView"];
/** Points arrived for a run, of a job or not: the last value of each key that changed. */
export interface MetricsNotice {
  run: string;
  job: string | null;
  job_name: string | null;
  step: number | null;
  at: string;
  values: Readonly<Record<string, number | string>>;
  /** There were more keys than are told here. */
  more: boolean;
}
/** What the ranks of a job used was sampled again; it is read from the job's system series. */
export interface SystemNotice {
  job: string;
  job_name: string | null;
}
export interface Heard {
  event?: (event: Event) => void;
  metrics?: (notice: MetricsNotice) => void;
  system?: (notice: SystemNotice) => void;
}

const Stream = createContext<{ health: Health; listeners: Set<Heard> }>({
  health: "waiting",
  listeners: new Set(),
});

/** What an event makes stale. Many in a burst ask once: at most twice a second. */
class Staleness {
  private keys = new Set<string>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly queries: QueryClient) {}

  mark(...keys: string[]): void {
    keys.forEach((key) => this.keys.add(key));
    this.timer ??= setTimeout(() => {
      const stale = [...this.keys];
      this.keys.clear();
      this.timer = undefined;
      for (const key of stale) void this.queries.invalidateQueries({ queryKey: [key] });
    }, 500);
  }

  end(): void {
    clearTimeout(this.timer);
  }
}

/** Queries are named by their first word: `["jobs", …]` is stale when a job changed. */
export function staleAfter(kind: string): string[] {
  switch (kind) {
    case "study":
      return ["studies", "study"];
    case "checkpoint":
    case "bad-checkpoint":
      return ["job", "checkpoints"];
    case "people":
      return ["users", "projects", "keys", "tokens", "secrets", "limits", "sessions"];
    case "node":
      return ["nodes", "queues", "status"];
    case "rules":
    case "budget":
      return ["queues", "quotas", "usage"];
    case "requeued":
      return ["queues", "jobs", "job"];
    case "note":
    case "dropped":
      return ["job"];
    default:
      return ["jobs", "job", "nodes", "queues", "status"];
  }
}

function answered(query: { queryKey: readonly unknown[]; state: { dataUpdatedAt: number } }): boolean {
  return query.queryKey[0] !== "who" && query.state.dataUpdatedAt > 0;
}

export function Feed({ children }: { children: ReactNode }): ReactNode {
  const { project } = useWho();
  const queries = useQueryClient();
  const [health, setHealth] = useState<Health>("waiting");
  const listeners = useRef(new Set<Heard>());

  useEffect(() => {
    if (!project) return undefined;
    const stale = new Staleness(queries);
    let wasDown = false;
    let begun = false;
    const stop = follow(
      "feed",
      (message) => {
        if (message.kind === "event") {
          const event = message.data as Event;
          stale.mark(...staleAfter(event.kind));
          listeners.current.forEach((each) => each.event?.(event));
        } else if (message.kind === "metrics") {
          listeners.current.forEach((each) => each.metrics?.(message.data as MetricsNotice));
        } else if (message.kind === "system") {
          listeners.current.forEach((each) => each.system?.(message.data as SystemNotice));
        }
      },
      (now) => {
        // without a cursor what happened in between is not told: everything is asked anew
        if (now === "live" && wasDown) void queries.invalidateQueries();
        // as is what was answered before it began: a page may ask early
        else if (now === "live" && !begun) void queries.invalidateQueries({ predicate: answered });
        begun ||= now === "live";
        wasDown = now !== "live";
        setHealth(now);
      },
    );
    return () => {
      stop();
      stale.end();
    };
  }, [project, queries]);

  const value = useMemo(() => ({ health, listeners: listeners.current }), [health]);
  return <Stream value={value}>{children}</Stream>;
}

export function useHealth(): Health {
  return useContext(Stream).health;
}

/** Hear what happens as long as the component is shown. */
export function useFeed(heard: Heard): void {
  const { listeners } = useContext(Stream);
  const latest = useRef(heard);
  latest.current = heard;
  useEffect(() => {
    const mine: Heard = {
      event: (event) => latest.current.event?.(event),
      metrics: (notice) => latest.current.metrics?.(notice),
      system: (notice) => latest.current.system?.(notice),
    };
    listeners.add(mine);
    return () => void listeners.delete(mine);
  }, [listeners]);
}
