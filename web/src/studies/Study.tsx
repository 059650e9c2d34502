/** One study: how far it is, what it found, what matters, and every trial. */
import { SimpleGrid, Text } from "@mantine/core";
import { Link, useParams } from "@tanstack/react-router";
import { useMemo, type ReactNode } from "react";

import { chosen as within } from "../charts/coordinates";
import { limitsOf, limitsToUrl } from "../compare/limits";
import type { Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { count, duration, value } from "../i18n/format";
import { Ago, useNow } from "../look/Ago";
import { Page } from "../look/Page";
import { Meter, Part, Waiting } from "../look/Part";
import { State } from "../look/State";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { Actions } from "./Actions";
import { axesOf, BestSoFar, Importance, Pareto, RungDiagram, rowsOf, Space } from "./Charts";
import { useStudy } from "./live";
import { ended, front, secondsOf } from "./pareto";
import css from "./studies.module.css";
import { Trials } from "./Trials";
import { TwoParams } from "./TwoParams";
import { words } from "./words";

export default function Study(): ReactNode {
  const w = useWords(words);
  const ref = useParams({ strict: false }).study ?? "";
  const [url, change] = useUrl();
  const { study, trials, error, again } = useStudy(ref);
  const limits = useMemo(() => limitsOf(url), [url]);
  const axes = useMemo(() => (study ? axesOf(study, trials) : []), [study, trials]);
  const rows = useMemo(() => (study ? rowsOf(study, trials, w.trial) : []), [study, trials, w]);
  const brushed = useMemo(
    () => (Object.keys(limits).length ? within(rows, limits) : null),
    [rows, limits],
  );
  if (error && !study) return <Told error={error} again={again} />;
  if (!study) return <Waiting rows={8} />;
  const several = study.objectives.length > 1;
  const best = several ? front(study.objectives, trials) : new Set(study.best);
  const rungs = study.pruner === "asha" || study.pruner === "halving";
  return (
    <Page
      name={study.name}
      title={
        <span className={css.title}>
          {study.name} <State state={study.state} />
        </span>
      }
      actions={<Actions.Buttons study={study} />}
    >
      {study.reason && (
        <Text size="sm" mb="sm">
          {study.reason}
        </Text>
      )}
      {Boolean(error) && <Told error={error} again={again} />}
      <Summary study={study} best={best} trials={trials} />
      <Actions.Panels study={study} trials={trials} best={best} />
      <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md" mb="md">
        {several ? <Pareto study={study} trials={trials} best={best} /> : <BestSoFar study={study} />}
        <Importance study={study} />
      </SimpleGrid>
      <Space
        study={study}
        axes={axes}
        rows={rows}
        limits={limits}
        onLimits={(next) => change(limitsToUrl(next, url), true)}
      />
      <SimpleGrid cols={{ base: 1, lg: rungs ? 2 : 1 }} spacing="md" mb="md">
        <TwoParams study={study} trials={trials} chosen={brushed} />
        {rungs && <RungDiagram study={study} trials={trials} />}
      </SimpleGrid>
      <Trials
        study={study}
        trials={trials}
        best={best}
        chosen={brushed}
        clear={() => change(limitsToUrl({}, url))}
      />
      <Asked study={study} />
    </Page>
  );
}

function Summary({ study, best, trials }: {
  study: Schema["StudyDetail"];
  best: ReadonlySet<number>;
  trials: readonly Schema["TrialView"][];
}): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const done = ended(study.counts);
  const first = trials.find((each) => best.has(each.number));
  const counts = Object.entries(study.counts).filter(([, many]) => many > 0);
  return (
    <dl className={css.summary}>
      <div>
        <dt>{w.bestValue}</dt>
        <dd className={css.big}>
          {study.objectives.length > 1
            ? w.notBeaten(count(best.size, language))
            : value(study.best_values[0] ?? null, language)}
        </dd>
        <dd className="quiet">
          {first && study.objectives.length === 1 ? (
            <>
              {study.objectives[0]?.metric} · <Link to={`/jobs/${first.job}` as never}>{w.trial(first.number)}</Link>
            </>
          ) : (
            study.objectives.map((each) => `${w[each.goal]} ${each.metric}`).join(", ")
          )}
        </dd>
      </div>
      <div>
        <dt>{w.done}</dt>
        <dd>
          <Meter
            quiet
            label={w.done}
            used={done}
            total={study.trials}
            said={w.doneOf(count(done, language), count(study.trials, language))}
          />
        </dd>
        <dd className={css.states}>
          {counts.map(([state, many]) => (
            <span key={state}>
              <State state={state} /> {count(many, language)}
            </span>
          ))}
        </dd>
      </div>
      <div>
        <dt>{w.left}</dt>
        <dd className={css.big}>
          <Left study={study} done={done} />
        </dd>
        <dd className="quiet">
          {w.sampler} {study.sampler}
          {study.pruner !== "none" && ` · ${w.pruner} ${study.pruner}`}
        </dd>
      </div>
    </dl>
  );
}

/** The budget that is left: trials, and time where it is bounded. */
function Left({ study, done }: { study: Schema["StudyDetail"]; done: number }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const now = useNow();
  if (study.ended) {
    return (
      <Text span size="sm">
        {w.over} <Ago at={study.ended} />
      </Text>
    );
  }
  const most = secondsOf(study.spec.max_time);
  const rest = most === null ? null : most - (now - Date.parse(study.created)) / 1000;
  return (
    <>
      {w.leftOf(count(Math.max(0, study.trials - done), language))}
      {rest !== null && (
        <Text size="sm">{rest > 0 ? w.leftTime(duration(rest, language)) : w.timeOver}</Text>
      )}
    </>
  );
}

/** The settings that are not seen elsewhere. */
function Asked({ study }: { study: Schema["StudyDetail"] }): ReactNode {
  const w = useWords(words);
  const { spec } = study;
  const run = spec.job.run;
  const command = Array.isArray(run) ? run.join(" ") : String(run ?? "");
  const bounds = spec.constraints.map((each) =>
    [each.least === null || each.least === undefined ? "" : `${each.least} ≤ `, each.metric, each.most === null || each.most === undefined ? "" : ` ≤ ${each.most}`].join(""),
  );
  return (
    <Part title={w.about}>
      <dl className={css.facts}>
        {command && (
          <>
            <dt>{w.command}</dt>
            <dd>
              <code className="mono">{command}</code>
            </dd>
          </>
        )}
        <dt>{w.parallelMany}</dt>
        <dd>{spec.parallel}</dd>
        <dt>{w.seed}</dt>
        <dd>{spec.seed}</dd>
        {bounds.length > 0 && (
          <>
            <dt>{w.constraints}</dt>
            <dd>{bounds.join(", ")}</dd>
          </>
        )}
        <dt>{w.by}</dt>
        <dd>
          {study.user} · <Ago at={study.created} />
        </dd>
      </dl>
    </Part>
  );
}
