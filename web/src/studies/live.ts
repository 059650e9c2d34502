/** A study as it is now: asked anew when it, one of its jobs, or what they log changes. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

import { api, got, type Schema } from "../api/client";
import { useFeed } from "../shell/feed";

export interface Live {
  study: Schema["StudyDetail"] | undefined;
  trials: readonly Schema["TrialView"][];
  error: unknown;
  again: () => void;
}

const NONE: readonly Schema["TrialView"][] = [];
const EVERY_MS = 1000;

export function useStudy(ref: string): Live {
  const queries = useQueryClient();
  const study = useQuery({
    queryKey: ["study", ref],
    queryFn: () => got(api.GET("/api/v1/studies/{ref}", { params: { path: { ref } } })),
  });
  const trials = useQuery({
    queryKey: ["study", ref, "trials"],
    queryFn: () => got(api.GET("/api/v1/studies/{ref}/trials", { params: { path: { ref } } })),
  });
  const items = trials.data?.items ?? NONE;
  const mine = useRef(new Set<string>());
  mine.current = new Set(items.map((each) => each.job));
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  /** Many in a burst ask once a second. */
  const soon = (): void => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      void queries.invalidateQueries({ queryKey: ["study", ref] });
    }, EVERY_MS);
  };
  useFeed({
    event: (event) => {
      // a new trial is a job that we do not know yet, named after the study
      const named = study.data && event.job_name?.startsWith(`${study.data.name}-`);
      if (event.job && (mine.current.has(event.job) || named)) soon();
    },
    metrics: (notice) => {
      if (notice.job && mine.current.has(notice.job)) soon();
    },
  });
  return {
    study: study.data as Schema["StudyDetail"] | undefined,
    trials: items,
    error: study.error ?? trials.error,
    again: () => void queries.invalidateQueries({ queryKey: ["study", ref] }),
  };
}
