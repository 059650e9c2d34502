/** What is mine: what runs, what waits and where, what failed and why. */
import { Text, useComputedColorScheme } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { count, duration } from "../i18n/format";
import { favourite } from "../jobs/favourite";
import { JobCurve } from "../jobs/JobCurve";
import { Because } from "../jobs/Because";
import { useLines } from "../jobs/waiting";
import { Ago, Took, useNow } from "../look/Ago";
import { colourOf } from "../look/colours";
import { State } from "../look/State";
import { useWho } from "../shell/who";
import { money } from "../usage/money";
import css from "./home.module.css";
import { costNow, secondsLeft } from "./outlook";
import { words } from "./words";

type Job = Schema["JobView"];

export function Name({ job }: { job: Job }): ReactNode {
  const theme = useComputedColorScheme("light");
  return (
    <Link to="/jobs/$job" params={{ job: job.id }} className={css.name} title={job.command}>
      <span className="dot" style={{ background: colourOf(job.id, theme) }} />
      <span className="clip">{job.name}</span>
    </Link>
  );
}

export function Running({ jobs }: { jobs: readonly Job[] }): ReactNode {
  const ids = jobs.map((each) => each.id).join(",");
  const keys = useQuery({
    queryKey: ["runs", "home", ids],
    queryFn: () => got(api.GET("/api/v1/runs", { params: { query: { id: ids, limit: 100 } } })),
    enabled: ids !== "",
    staleTime: 5000,
  });
  const metrics = useMemo(
    () => new Map((keys.data?.items ?? []).map((run) => [String(run.id), favourite(Object.keys((run.metrics ?? {}) as object))])),
    [keys.data],
  );
  const costs = useCosts(jobs);
  return (
    <ul className={css.rows}>
      {jobs.map((job) => (
        <RunningJob key={job.id} job={job} metric={metrics.get(job.id) ?? null} cost={costs?.(job.id) ?? null} />
      ))}
    </ul>
  );
}

interface Cost {
  micro: number;
  untilMs: number;
  currency: string;
}

/** What the running jobs were charged with, where there are prices and it may be known. */
function useCosts(jobs: readonly Job[]): ((id: string) => Cost | null) | null {
  const who = useWho();
  const started = jobs.flatMap((each) => (each.started ? [each.started] : [])).sort()[0];
  const { data } = useQuery({
    queryKey: ["usage", "home", started],
    queryFn: async () =>
      (await got(api.GET("/api/v1/usage", { params: { query: { by: "job", user: who.user, from: started } } }))) as Schema["UsageReport"],
    enabled: started !== undefined && who.may("usage.read"),
  });
  if (!data || !data.total.cost_micro) return null;
  const report = data;
  return (id) => {
    const row = report.rows.find((each) => each.key === id && each.line === "charged");
    return row?.cost_micro ? { micro: row.cost_micro, untilMs: Date.parse(report.until), currency: report.currency } : null;
  };
}

function RunningJob({ job, metric, cost }: { job: Job; metric: string | null; cost: Cost | null }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const now = useNow();
  const started = job.started ? Date.parse(job.started) : null;
  const left = started === null ? null : secondsLeft(started, job.progress, now);
  const percent = typeof job.progress === "number" ? `${Math.round(job.progress * 100)}%` : null;
  return (
    <li data-job={job.name}>
      <div className={css.line}>
        <Name job={job} />
        <State state={job.state} />
        <span className={css.grow}>{metric && <JobCurve job={job.id} metric={metric} told width={120} />}</span>
      </div>
      {percent && (
        <div className={css.bar} role="progressbar" aria-label={job.name} aria-valuenow={Math.round((job.progress as number) * 100)} aria-valuemin={0} aria-valuemax={100}>
          <span style={{ width: percent }} />
        </div>
      )}
      <div className={css.facts}>
        {percent && <span>{percent}</span>}
        {left !== null && <span>{w.left(duration(left, language))}</span>}
        {typeof job.step === "number" && <span>{w.step(count(job.step, language))}</span>}
        {job.started && (
          <span>
            <Took from={job.started} to={null} />
          </span>
        )}
        {job.gpus > 0 && <span>{w.gpus(count(job.gpus, language))}</span>}
        {cost && started !== null && <span>{w.soFar(`${money(costNow(cost.micro, started, cost.untilMs, now) / 1e6, language)} ${cost.currency}`)}</span>}
        {job.state !== "running" && job.reason && <span><Because said={job.reason} code={job.outcome} /></span>}
      </div>
    </li>
  );
}

/** In the order of the line, with why each waits. */
export function Waiting({ jobs }: { jobs: readonly Job[] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const queued = jobs.filter((each) => each.state === "queued");
  const lines = useLines([...new Set(queued.map((each) => each.queue))].sort());
  const ordered = [...jobs].sort((one, other) => placeOf(lines, one) - placeOf(lines, other));
  return (
    <ul className={css.rows}>
      {ordered.map((job) => {
        const entry = job.state === "queued" ? lines.get(job.id) : undefined;
        return (
          <li key={job.id} data-job={job.name}>
            <div className={css.line}>
              <Name job={job} />
              <State state={job.state} />
              {entry && <Text size="sm">{entry.position === 1 ? w.next(job.queue) : w.place(count(entry.position, language), job.queue)}</Text>}
            </div>
            <div className={css.facts}>
              <span>
                <Because said={entry?.sentence || job.reason} code={entry?.sentence ? entry.reason : job.outcome} missing={entry?.missing} />
              </span>
              {entry?.expected_start && (
                <span>
                  {w.expected} <Ago at={entry.expected_start} />
                </span>
              )}
            </div>
          </li>
        );
      })}
    </ul>
  );
}

function placeOf(lines: ReadonlyMap<string, Schema["QueuedJob"]>, job: Job): number {
  return (job.state === "queued" ? lines.get(job.id)?.position : undefined) ?? Infinity;
}

export function Ended({ jobs }: { jobs: readonly Job[] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  return (
    <ul className={css.rows}>
      {jobs.map((job) => (
        <li key={job.id} data-job={job.name} className={css.line}>
          <Name job={job} />
          <Text size="sm" c="dimmed" className={css.grow}>
            {job.step !== null && job.step !== undefined && w.step(count(job.step, language))}
          </Text>
          <Text size="sm" c="dimmed">
            {job.started && <Took from={job.started} to={job.ended ?? null} />}
          </Text>
          <Text size="sm" c="dimmed">
            {job.ended && <Ago at={job.ended} />}
          </Text>
        </li>
      ))}
    </ul>
  );
}

export function Failures({ jobs }: { jobs: readonly Job[] }): ReactNode {
  return (
    <ul className={css.rows}>
      {jobs.map((job) => (
        <li key={job.id} data-job={job.name}>
          <div className={css.line}>
            <Name job={job} />
            <Text size="sm" c="dimmed">
              {job.ended && <Ago at={job.ended} />}
            </Text>
          </div>
          <Text size="sm" lineClamp={3}>
            <Because said={job.reason} code={job.outcome} />
          </Text>
        </li>
      ))}
    </ul>
  );
}
