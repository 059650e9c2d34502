/** The pictures of a study. */
import { Paper, Text } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, type ReactNode } from "react";

import type { Schema } from "../api/client";
import { Bars } from "../charts/Bars";
import { Curves } from "../charts/Curves";
import { useTheme } from "../charts/ink";
import { Parallel, type Limits, type ParallelAxis, type ParallelRow } from "../charts/Parallel";
import { kindOf } from "../charts/coordinates";
import { Rungs, type RungTrial } from "../charts/Rungs";
import { Scatter } from "../charts/Scatter";
import { useLanguage, useWords } from "../i18n";
import { PALETTE } from "../look/colours";
import { bestSoFar, milestones } from "./pareto";
import { words } from "./words";

type Detail = Schema["StudyDetail"];
type Trial = Schema["TrialView"];

/** The objective's key among the axes: a parameter may be called the same. */
export function valueKey(at: number): string {
  return `value ${at}`;
}

export function axesOf(study: Detail, trials: readonly Trial[]): ParallelAxis[] {
  const params = Object.entries(study.spec.space).map(([name, each]): ParallelAxis => ({
    key: name,
    label: name,
    kind: each.kind === "choice" ? "category" : each.log ? "log" : "linear",
  }));
  const values = study.objectives.map((each, at): ParallelAxis => {
    const kind = kindOf(trials.map((trial) => trial.values[at]));
    return { key: valueKey(at), label: each.metric, kind: kind === "category" ? "linear" : kind };
  });
  return [...params, ...values];
}

export function rowsOf(study: Detail, trials: readonly Trial[], label: (number: number) => string): ParallelRow[] {
  return trials
    .filter((each) => each.values.some((value) => value !== null))
    .map((each) => ({
      id: each.job,
      label: label(each.number),
      values: { ...each.params, ...Object.fromEntries(study.objectives.map((_, at) => [valueKey(at), each.values[at] ?? null])) },
    }));
}

export function direction(study: Detail, at = 0): "min" | "max" {
  return study.objectives[at]?.goal === "maximize" ? "max" : "min";
}

function Frame({ children }: { children: ReactNode }): ReactNode {
  return (
    <Paper withBorder p="sm" radius="md" miw={0}>
      {children}
    </Paper>
  );
}

export function BestSoFar({ study }: { study: Detail }): ReactNode {
  const w = useWords(words);
  const theme = useTheme();
  const metric = study.objectives[0]?.metric ?? "";
  const lines = useMemo(() => {
    const curve = study.curve as readonly (readonly [number, number])[];
    return [{ id: study.id, label: metric, colour: PALETTE[theme][0] as string, ...bestSoFar(curve, study.made) }];
  }, [study, metric, theme]);
  return (
    <Frame>
      <Curves title={w.bestSoFar(metric)} lines={lines} height={230} legend={false} />
    </Frame>
  );
}

export function Importance({ study }: { study: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const theme = useTheme();
  const bars = Object.entries(study.importance)
    .sort(([, a], [, b]) => b - a)
    .map(([name, share]) => ({ label: name, parts: [{ kind: "share", value: share }] }));
  const percent = new Intl.NumberFormat(language === "zh" ? "zh-CN" : "en-GB", { style: "percent", maximumFractionDigits: 1 });
  return (
    <Frame>
      {bars.length ? (
        <Bars
          title={w.importance}
          bars={bars}
          kinds={[{ kind: "share", label: w.importance, colour: PALETTE[theme][0] as string }]}
          direction="horizontal"
          format={(each) => percent.format(each)}
        />
      ) : (
        <Text size="sm" fw={600}>
          {w.importance}
        </Text>
      )}
      <Text size="xs" c="dimmed" mt={4}>
        {bars.length ? w.importanceHint : w.importanceLater}
      </Text>
    </Frame>
  );
}

export function Space({ study, axes, rows, limits, onLimits }: {
  study: Detail;
  axes: readonly ParallelAxis[];
  rows: readonly ParallelRow[];
  limits: Limits;
  onLimits: (limits: Limits) => void;
}): ReactNode {
  const w = useWords(words);
  const navigate = useNavigate();
  if (rows.length < 2) return null;
  return (
    <Paper withBorder p="sm" radius="md" mb="md">
      <Parallel
        title={w.parallel}
        axes={axes}
        rows={rows}
        objective={valueKey(0)}
        direction={direction(study)}
        limits={limits}
        onLimits={onLimits}
        onPick={(id) => void navigate({ to: `/jobs/${id}` as never })}
      />
      <Text size="xs" c="dimmed" mt={4}>
        {w.brushHint}
      </Text>
    </Paper>
  );
}

const RUNG_STATE: Readonly<Record<string, RungTrial["state"]>> = {
  succeeded: "done", pruned: "stopped", failed: "stopped", cancelled: "stopped", stopping: "stopped",
}; // prettier-ignore

export function RungDiagram({ study, trials }: { study: Detail; trials: readonly Trial[] }): ReactNode {
  const w = useWords(words);
  const navigate = useNavigate();
  const highest = Math.max(0, ...trials.map((each) => each.rung));
  const dots = useMemo(
    () =>
      trials.map((each): RungTrial => ({
        id: each.job,
        label: w.trial(each.number),
        rung: each.rung,
        value: each.values[0] ?? null,
        state: RUNG_STATE[each.state] ?? "running",
      })),
    [trials, w],
  );
  if (!dots.length) return null;
  return (
    <Frame>
      <Rungs
        title={w.rungs}
        trials={dots}
        budgets={milestones(study.spec.pruner, highest)}
        direction={direction(study)}
        onPick={(id) => void navigate({ to: `/jobs/${id}` as never })}
      />
    </Frame>
  );
}

export function Pareto({ study, trials, best }: { study: Detail; trials: readonly Trial[]; best: ReadonlySet<number> }): ReactNode {
  const w = useWords(words);
  const navigate = useNavigate();
  const [x, y] = study.objectives;
  const points = useMemo(
    () =>
      trials.flatMap((each) => {
        const [a, b] = each.values;
        if (a === null || a === undefined || b === null || b === undefined) return [];
        return [{ id: each.job, label: w.trial(each.number), x: a, y: b, ...(each.values.length > 2 ? { value: each.values[2] ?? null } : {}) }];
      }),
    [trials, w],
  );
  const chosen = useMemo(() => new Set(trials.filter((each) => best.has(each.number)).map((each) => each.job)), [trials, best]);
  return (
    <Frame>
      <Scatter
        title={w.pareto}
        points={points}
        xLabel={x?.metric ?? ""}
        yLabel={y?.metric ?? ""}
        {...(study.objectives[2] ? { valueLabel: study.objectives[2].metric } : {})}
        chosen={chosen}
        onPick={(id) => void navigate({ to: `/jobs/${id}` as never })}
        height={230}
      />
      <Text size="xs" c="dimmed" mt={4}>
        {w.paretoHint}
      </Text>
    </Frame>
  );
}
