/** One job: what it is doing and why, and everything about it, a tab each. */
import { Skeleton, Tabs } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useRef, useState, type ReactNode } from "react";

import { useWords } from "../../i18n";
import { Page } from "../../look/Page";
import { Told } from "../../look/Told";
import { useUrl } from "../../look/url";
import { useFeed } from "../../shell/feed";
import { Failure } from "./Failure";
import { Facts, Head } from "./Header";
import { isOver, useJob, type Detail } from "./asking";
import css from "./job.module.css";
import { Rerun } from "./Rerun";
import { words } from "./words";

const TABS = {
  charts: lazy(() => import("./charts/Charts")),
  logs: lazy(() => import("./logs/Logs")),
  config: lazy(() => import("./Config")),
  files: lazy(() => import("./Files")),
  processes: lazy(() => import("./Processes")),
  timeline: lazy(() => import("./Timeline")),
} as const;
type Tab = keyof typeof TABS;
/** How long what a metric changes of the job's own facts may be old. */
const FACTS_MS = 2000;

export default function Job(): ReactNode {
  const { job: ref } = useParams({ strict: false }) as { job: string };
  const w = useWords(words);
  const { data: job, error, refetch } = useJob(ref);
  if (error && !job) return <Page title={w.job}><Told error={error} again={() => void refetch()} /></Page>; // prettier-ignore
  if (!job) return <Page title={w.job}><Skeleton h={140} radius="md" mb="md" /><Skeleton h={320} radius="md" /></Page>; // prettier-ignore
  return <One key={job.id} job={job} />;
}

function One({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const [url, change] = useUrl();
  const queries = useQueryClient();
  const tab: Tab = url.tab && url.tab in TABS ? (url.tab as Tab) : "charts";
  const Shown = TABS[tab];

  const [step, setStep] = useState<number | null>(null);
  // Points move its step and progress on; those are asked anew, now and then, when points came.
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  useFeed({
    metrics: (notice) => {
      if (notice.job !== job.id) return;
      if (notice.step !== null) setStep(notice.step);
      timer.current ??= setTimeout(() => {
        timer.current = undefined;
        for (const part of ["detail", "why"]) void queries.invalidateQueries({ predicate: ({ queryKey }) => queryKey[0] === "job" && queryKey[2] === part });
      }, FACTS_MS);
    },
  });
  useEffect(() => {
    document.title = `${job.name} · Windlass`;
  }, [job.name]);

  return (
    <article>
      <Head job={job} />
      <Facts job={job} step={isOver(job.state) ? null : step} />
      {url.rerun !== undefined && <Rerun key={url.rerun} job={job} close={() => change({ rerun: undefined, memory: undefined, from: undefined })} />}
      {job.state === "failed" && <Failure job={job} />}
      <Tabs value={tab} onChange={(value) => change({ tab: value === "charts" ? undefined : (value ?? undefined) })} keepMounted={false}>
        <Tabs.List aria-label={w.tabs} mb="sm" className={css.tabs}>
          {(Object.keys(TABS) as Tab[]).map((each) => (
            <Tabs.Tab key={each} value={each}>
              {w[each]}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        {(Object.keys(TABS) as Tab[]).map((each) => (
          <Tabs.Panel key={each} value={each}>
            {each === tab && (
              <Suspense fallback={<Skeleton h={320} radius="md" />}>
                <Shown job={job} />
              </Suspense>
            )}
          </Tabs.Panel>
        ))}
      </Tabs>
    </article>
  );
}
