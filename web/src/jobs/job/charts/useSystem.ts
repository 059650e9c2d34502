/** What a job's ranks used, live: read once, then only what is new, when the feed tells of it. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

import { fetched } from "../../../look/save";
import { useFeed } from "../../../shell/feed";
import { grown, lastAt, type SystemSeries } from "./system";

const POINTS = 1000;
const LONGEST = 4000;
const NOT_MORE_OFTEN_MS = 1000;

async function read(id: string, from?: number): Promise<SystemSeries[]> {
  const answer = await fetched(`jobs/${id}/system`, { points: String(POINTS), from: from ? new Date(from).toISOString() : undefined });
  return ((await answer.json()) as { series: SystemSeries[] }).series;
}

export function useSystem(id: string): readonly SystemSeries[] {
  const queries = useQueryClient();
  const { data } = useQuery({ queryKey: ["system", id], queryFn: () => read(id), staleTime: Infinity, structuralSharing: false });
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  useFeed({
    system: (notice) => {
      if (notice.job !== id) return;
      timer.current ??= setTimeout(() => {
        timer.current = undefined;
        const held = queries.getQueryData<SystemSeries[]>(["system", id]) ?? [];
        const long = held.some((each) => each.points.length > LONGEST);
        const from = long || !held.length ? undefined : lastAt(held);
        read(id, from).then(
          (fresh) => queries.setQueryData<SystemSeries[]>(["system", id], (now) => (from ? grown(now ?? [], fresh) : fresh)),
          () => undefined, // the next notice asks again
        );
      }, NOT_MORE_OFTEN_MS);
    },
  });
  return data ?? NOTHING;
}

const NOTHING: readonly SystemSeries[] = [];
