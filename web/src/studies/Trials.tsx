/** Every trial, in the order asked for; those that were brushed, where some were. */
import { Anchor, Button, Group, Table, Text } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";

import type { Schema } from "../api/client";
import { lit, useHovered } from "../charts/hover";
import { useLanguage, useWords } from "../i18n";
import { count, value } from "../i18n/format";
import { Took } from "../look/Ago";
import { Icon } from "../look/Icon";
import { Part, Wide } from "../look/Part";
import { State } from "../look/State";
import { useUrl } from "../look/url";
import { inTrialOrder } from "./ordering";
import { counted, sign } from "./pareto";
import css from "./studies.module.css";
import { words } from "./words";

const PAGE = 100;
const COMPARED = 10;

export function Trials({ study, trials, best, chosen, clear }: {
  study: Schema["StudyDetail"];
  trials: readonly Schema["TrialView"][];
  best: ReadonlySet<number>;
  /** Jobs within the brush; null: nothing is brushed. */
  chosen: ReadonlySet<string> | null;
  clear: () => void;
}): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [url, change] = useUrl();
  const [pages, setPages] = useState(1);
  const params = Object.keys(study.spec.space);
  const sort = url.sort ?? "-number";
  const seen = chosen ? trials.filter((each) => chosen.has(each.job)) : trials;
  const ordered = [...seen].sort(inTrialOrder(sort));
  const page = ordered.slice(0, PAGE * pages);
  const goal = study.objectives[0];
  const top = counted(seen)
    .sort((a, b) => (goal ? sign(goal) : 1) * ((a.values[0] ?? 0) - (b.values[0] ?? 0)))
    .slice(0, COMPARED)
    .map((each) => each.job);

  const head = (key: string, label: string): ReactNode => {
    const up = sort === key;
    const down = sort === `-${key}`;
    return (
      <Table.Th key={key} scope="col" aria-sort={up ? "ascending" : down ? "descending" : "none"}>
        <button type="button" className={css.sort} title={w.sortBy(label)} onClick={() => change({ sort: up ? `-${key}` : key })}>
          {label}
          {(up || down) && <Icon name={up ? "up" : "down"} size={12} />}
        </button>
      </Table.Th>
    );
  };

  return (
    <Part
      title={w.trials}
      hint={chosen ? w.chosen(count(seen.length, language), count(trials.length, language)) : undefined}
      actions={
        <>
          {chosen && (
            <Button size="xs" variant="default" onClick={clear}>
              {w.clear}
            </Button>
          )}
          {top.length > 1 && (
            <Button
              size="xs"
              variant="default"
              leftSection={<Icon name="compare" size={14} />}
              component={Link}
              to="/compare"
              search={{ jobs: top.join(",") } as never}
            >
              {w.compareBest(count(top.length, language))}
            </Button>
          )}
        </>
      }
    >
      {!trials.length && <Text c="dimmed">{w.noTrials}</Text>}
      {trials.length > 0 && (
        <Wide label={w.trials}>
          <Table verticalSpacing={4} fz="sm" data-testid="trials">
            <Table.Thead>
              <Table.Tr>
                {head("number", w.trialWord)}
                {head("state", w.state)}
                {study.objectives.map((each, at) => head(`value.${at}`, each.metric))}
                {params.map((each) => head(`params.${each}`, each))}
                {head("step", w.step)}
                {study.pruner !== "none" && head("rung", w.rung)}
                <Table.Th scope="col">{w.took}</Table.Th>
                <Table.Th scope="col">{w.why}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {page.map((each) => (
                <Row key={each.number} trial={each} params={params} best={best.has(each.number)} rungs={study.pruner !== "none"} />
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
      {page.length < ordered.length && (
        <Group mt="xs">
          <Button size="xs" variant="subtle" onClick={() => setPages(pages + 1)}>
            {w.more(count(Math.min(PAGE, ordered.length - page.length), language))}
          </Button>
        </Group>
      )}
    </Part>
  );
}

function Row({ trial, params, best, rungs }: {
  trial: Schema["TrialView"];
  params: readonly string[];
  best: boolean;
  rungs: boolean;
}): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const hovered = useHovered() === trial.job;
  return (
    <Table.Tr {...lit(trial.job)} className={best ? css.best : ""} bg={hovered ? "var(--mantine-color-default-hover)" : undefined}>
      <Table.Th scope="row" className={css.number}>
        <Anchor component={Link} to={`/jobs/${trial.job}`} size="sm">
          {trial.number}
        </Anchor>
        {best && (
          <>
            {" "}
            <Text span size="xs" fw={600}>
              {w.best}
            </Text>
          </>
        )}
        {trial.parent !== null && trial.parent !== undefined && (
          <Text size="xs" c="dimmed">
            {w.parent(trial.parent)}
          </Text>
        )}
      </Table.Th>
      <Table.Td>
        <State state={trial.state} />
      </Table.Td>
      {trial.values.map((each, at) => (
        <Table.Td key={at} className={css.number}>
          {value(each, language)}
          {!trial.feasible && at === 0 && (
            <Text size="xs" c="dimmed">
              {w.infeasible}
            </Text>
          )}
        </Table.Td>
      ))}
      {params.map((name) => {
        const found = trial.params[name];
        return (
          <Table.Td key={name} className={css.number}>
            {typeof found === "number" ? value(found, language) : found === undefined ? "–" : String(found)}
          </Table.Td>
        );
      })}
      <Table.Td>{trial.step ?? "–"}</Table.Td>
      {rungs && <Table.Td>{trial.rung}</Table.Td>}
      <Table.Td className={css.number}>
        <Took from={trial.created} to={trial.ended ?? null} />
      </Table.Td>
      <Table.Td maw={320}>
        <div className="clip" title={trial.reason}>
          {trial.reason}
        </div>
      </Table.Td>
    </Table.Tr>
  );
}
