/** State, why, how far, how long, how much; and what can be done about it. */
import { Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { api, got, type Schema } from "../../api/client";
import { useTheme } from "../../charts/ink";
import { useLanguage, useWords } from "../../i18n";
import { bytes, count, duration } from "../../i18n/format";
import { Ago, Took, useNow } from "../../look/Ago";
import { colourOf } from "../../look/colours";
import { State } from "../../look/State";
import { useWho } from "../../shell/who";
import { Because } from "../Because";
import { Actions } from "./Actions";
import { isOver, useWhy, type Detail } from "./asking";
import css from "./job.module.css";
import { words } from "./words";

export function Head({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const theme = useTheme();
  const why = useWhy(job.id).data;
  const told = why && why.state === job.state && why.sentence !== job.state ? why : null;
  return (
    <header className={css.head}>
      <div className={css.name}>
        <div className={css.title}>
          <span className={css.swatch} style={{ background: colourOf(job.id, theme) }} />
          <Title order={1} title={job.name}>
            <span className="seen-only-by-readers">{w.job} </span>
            {job.name}
          </Title>
          <State state={job.state} />
        </div>
        <p className={css.why} role="status" data-testid="why">
          {job.state === "succeeded" ? w.outcomes.succeeded : <Because said={told?.sentence ?? job.reason} code={told ? told.code : job.outcome} missing={told?.missing} />}
        </p>
      </div>
      <Actions job={job} />
    </header>
  );
}

/** `step`: of points that came just now, ahead of what the job's own facts say. */
export function Facts({ job, step: told }: { job: Detail; step: number | null }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const over = isOver(job.state);
  const facts: [string, ReactNode][] = [];
  if (job.progress !== null && job.progress !== undefined) facts.push([w.progress, <Progress key="p" job={job} />]);
  const step = told ?? job.step ?? null;
  if (step !== null) facts.push([w.step, count(step, language)]);
  if (job.started) facts.push([w.took, <Took key="t" from={job.started} to={job.ended ?? null} />]);
  else if (!over) facts.push([w.waits, <Took key="w" from={job.queued ?? job.submitted} to={null} />]);
  facts.push([w.submitted, <Ago key="s" at={job.submitted} />]);
  facts.push([w.by, job.user]);
  facts.push([w.queue, <Link key="q" to="/queues" search={{ queue: job.queue } as never}>{`${job.queue} · ${job.priority}`}</Link>]);
  if (job.members > 1) facts.push([w.members, count(job.members, language)]);
  if (job.gpus) facts.push([w.gpus, count(job.gpus, language)]);
  if (job.attempt > 1) facts.push([w.attemptN, count(job.attempt, language)]);
  if (over && job.exit_code !== null && job.exit_code !== undefined && job.exit_code !== 0) facts.push([w.exitCode, String(job.exit_code)]);
  return (
    <dl className={css.facts}>
      {facts.map(([name, value]) => (
        <div key={name} className={css.fact}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      <Cost job={job} />
    </dl>
  );
}

function Progress({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const now = useNow();
  const part = Math.min(1, Math.max(0, job.progress ?? 0));
  const taken = job.started ? (now - Date.parse(job.started)) / 1000 : 0;
  const left = part > 0.005 && part < 1 && !isOver(job.state) ? (taken / part) * (1 - part) : null;
  return (
    <>
      {`${Math.round(part * 1000) / 10} %`}
      {left !== null && <span className="quiet">{` · ${w.left(duration(left, language))}`}</span>}
      <span className={css.bar} role="progressbar" aria-label={w.progress} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(part * 100)}>
        <span style={{ width: `${part * 100}%` }} />
      </span>
    </>
  );
}

/** What it costs by the second: what the ledger said, and what was held since. */
function Cost({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const { may } = useWho();
  const now = useNow();
  const { data, dataUpdatedAt } = useQuery({
    queryKey: ["job", job.id, "usage", job.state],
    enabled: may("usage.read") && Boolean(job.started),
    queryFn: async () =>
      (await got(api.GET("/api/v1/usage", { params: { query: { by: "job", job: job.id, from: job.submitted } } }))) as Schema["UsageReport"],
  });
  const total = data?.total;
  if (!total || !job.started) return null;
  const over = isOver(job.state);
  const taken = (job.ended ? Date.parse(job.ended) : dataUpdatedAt) - Date.parse(job.started);
  const since = over || taken <= 0 ? 0 : (now - dataUpdatedAt) / taken;
  const cost = (total.cost_micro / 1e6) * (1 + Math.max(0, since));
  const gpus = total.gpu_seconds + (over ? 0 : (job.gpus * Math.max(0, now - dataUpdatedAt)) / 1000);
  const money = new Intl.NumberFormat(language === "zh" ? "zh-CN" : "en-GB", { style: "currency", currency: data.currency, maximumFractionDigits: cost < 1 ? 4 : 2 });
  return (
    <>
      {total.cost_micro > 0 && (
        <div className={css.fact}>
          <dt>{over ? w.costEnd : w.cost}</dt>
          <dd>{money.format(cost)}</dd>
        </div>
      )}
      {gpus > 0 && (
        <div className={css.fact}>
          <dt>{w.gpuTime}</dt>
          <dd>{duration(gpus, language)}</dd>
        </div>
      )}
      {total.peak_memory_bytes > 0 && (
        <div className={css.fact}>
          <dt>{w.peak}</dt>
          <dd>{bytes(total.peak_memory_bytes, language)}</dd>
        </div>
      )}
    </>
  );
}
