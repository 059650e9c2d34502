/** Two parameters against each other, or one against the value; as points, or as a surface. */
import { Group, Paper, Select, Switch } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, type ReactNode } from "react";

import type { Schema } from "../api/client";
import { Figure } from "../charts/Figure";
import { lit, useHovered } from "../charts/hover";
import { useTheme, useWidth } from "../charts/ink";
import { ramp } from "../charts/ramp";
import { scaleOf, tickLabel } from "../charts/scale";
import { Scatter, type ScatterPoint } from "../charts/Scatter";
import { useLanguage, useWords } from "../i18n";
import { value } from "../i18n/format";
import { useUrl } from "../look/url";
import { direction } from "./Charts";
import { surfaceOf } from "./surface";
import { words } from "./words";

interface Axis {
  key: string;
  label: string;
  log: boolean;
  of: (trial: Schema["TrialView"]) => number | null | undefined;
}

export function TwoParams({ study, trials, chosen }: {
  study: Schema["StudyDetail"];
  trials: readonly Schema["TrialView"][];
  chosen: ReadonlySet<string> | null;
}): ReactNode {
  const w = useWords(words);
  const [url, change] = useUrl();
  const navigate = useNavigate();
  const axes = useMemo(() => {
    const params = Object.entries(study.spec.space).filter(([name, each]) => each.kind !== "choice" || numeric(trials, name));
    return [
      ...params.map(([name, each]): Axis => ({ key: name, label: name, log: each.log, of: (trial) => Number(trial.params[name] ?? NaN) })),
      ...study.objectives.map((each, at): Axis => ({ key: `value ${at}`, label: each.metric, log: false, of: (trial) => trial.values[at] })),
      { key: "number", label: w.number, log: false, of: (trial: Schema["TrialView"]) => trial.number },
    ];
  }, [study, trials, w]);
  const important = Object.entries(study.importance).sort(([, a], [, b]) => b - a).map(([name]) => name);
  const known = (key: string | undefined): Axis | undefined => axes.find((each) => each.key === key);
  const x = known(url.x) ?? important.map(known).find(Boolean) ?? (axes[0] as Axis);
  const others = axes.filter((each) => each !== x);
  const y = known(url.y) ?? important.map(known).find((each) => each && each !== x) ?? (others[0] as Axis);
  const metric = study.objectives[0]?.metric ?? "";
  const points = useMemo(
    () =>
      trials.flatMap((trial): ScatterPoint[] => {
        const [a, b] = [x.of(trial), y.of(trial)];
        const found = trial.values[0];
        if (typeof a !== "number" || typeof b !== "number" || Number.isNaN(a) || Number.isNaN(b)) return [];
        return [{ id: trial.job, label: w.trial(trial.number), x: a, y: b, value: found ?? null }];
      }),
    [trials, x, y, w],
  );
  const shared = { points, x, y, metric, onPick: (id: string) => void navigate({ to: `/jobs/${id}` as never }) };
  return (
    <Paper withBorder p="sm" radius="md" miw={0}>
      <Group gap="xs" mb="xs" align="end">
        <Select
          size="xs"
          label={w.xAxis}
          data={axes.map((each) => ({ value: each.key, label: each.label }))}
          value={x.key}
          allowDeselect={false}
          onChange={(key) => key && change({ x: key })}
          w={150}
        />
        <Select
          size="xs"
          label={w.yAxis}
          data={axes.map((each) => ({ value: each.key, label: each.label }))}
          value={y.key}
          allowDeselect={false}
          onChange={(key) => key && change({ y: key })}
          w={150}
        />
        <Switch
          size="xs"
          mb={6}
          label={w.contour}
          checked={url.surface === "1"}
          onChange={(event) => change({ surface: event.currentTarget.checked ? "1" : undefined })}
        />
      </Group>
      {url.surface === "1" ? (
        <Surface {...shared} better={direction(study)} />
      ) : (
        <Scatter
          title={w.scatter(x.label, y.label)}
          points={points}
          xLabel={x.label}
          yLabel={y.label}
          valueLabel={metric}
          xLog={x.log}
          yLog={y.log}
          {...(chosen ? { chosen } : {})}
          onPick={shared.onPick}
          height={280}
        />
      )}
    </Paper>
  );
}

/** Whether all choices of a parameter are numbers. */
function numeric(trials: readonly Schema["TrialView"][], name: string): boolean {
  return trials.length > 0 && trials.every((each) => each.params[name] === undefined || typeof each.params[name] === "number");
}

const ACROSS = 28;
const UP = 18;
const LEFT = 56;
const BELOW = 40;

function Surface({ points, x, y, metric, better, onPick }: {
  points: readonly ScatterPoint[];
  x: Axis;
  y: Axis;
  metric: string;
  better: "min" | "max";
  onPick: (id: string) => void;
}): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const theme = useTheme();
  const hovered = useHovered();
  const [box, width] = useWidth<HTMLDivElement>();
  const height = 280;
  const valued = points.filter((each) => typeof each.value === "number" && Number.isFinite(each.value));
  const across = scaleOf(valued.map((each) => each.x), x.log ? "log" : "linear");
  const up = scaleOf(valued.map((each) => each.y), y.log ? "log" : "linear");
  const tone = scaleOf(valued.map((each) => each.value as number));
  const cells = useMemo(
    () => surfaceOf(valued.map((each) => ({ x: across.at(each.x), y: up.at(each.y), value: each.value as number })), ACROSS, UP),
    [points, x, y],
  );
  const colour = (found: number): string => ramp(better === "min" ? 1 - tone.at(found) : tone.at(found), theme);
  const inner = { width: Math.max(10, width - LEFT - 12), height: height - BELOW - 8 };
  const px = (at: number): number => LEFT + across.at(at) * inner.width;
  const py = (at: number): number => 8 + (1 - up.at(at)) * inner.height;
  const values = valued.map((each) => each.value as number);
  const ends = values.length ? [Math.min(...values), Math.max(...values)] : [0, 0];
  return (
    <Figure
      title={w.surface(x.label, y.label, metric)}
      summary={w.surfaceSaid(value(ends[0], language), value(ends[1], language))}
      tables={() => [
        {
          head: [w.trialWord, x.label, y.label, metric],
          rows: valued.map((each) => [each.label, value(each.x, language), value(each.y, language), value(each.value, language)]),
        },
      ]}
    >
      <div ref={box} style={{ height, position: "relative" }}>
        {width > 0 && valued.length > 0 && (
          <svg width={width} height={height} role="img" aria-label={w.surface(x.label, y.label, metric)} fill="currentColor" fontSize={11}>
            <g opacity={0.55}>
              {[...cells].map((found, at) => (
                <rect
                  key={at}
                  x={LEFT + ((at % ACROSS) / ACROSS) * inner.width}
                  y={8 + (1 - (Math.floor(at / ACROSS) + 1) / UP) * inner.height}
                  width={inner.width / ACROSS + 0.6}
                  height={inner.height / UP + 0.6}
                  fill={colour(found)}
                />
              ))}
            </g>
            {across.ticks(Math.max(2, width / 90)).map((tick) => (
              <text key={tick} x={px(tick)} y={height - BELOW + 15} textAnchor="middle">
                {tickLabel(tick)}
              </text>
            ))}
            {up.ticks(5).map((tick) => (
              <text key={tick} x={LEFT - 6} y={py(tick)} dy="0.35em" textAnchor="end">
                {tickLabel(tick)}
              </text>
            ))}
            <text x={LEFT + inner.width / 2} y={height - 5} textAnchor="middle" fontWeight={600}>
              {x.label}
            </text>
            <text transform={`translate(11 ${8 + inner.height / 2}) rotate(-90)`} textAnchor="middle" fontWeight={600}>
              {y.label}
            </text>
            {valued.map((each) => {
              const { onPointerEnter, onPointerLeave } = lit(each.id);
              return (
                <circle
                  key={each.id}
                  cx={px(each.x)}
                  cy={py(each.y)}
                  r={each.id === hovered ? 7 : 4}
                  fill={colour(each.value as number)}
                  stroke="var(--mantine-color-text)"
                  strokeWidth={1}
                  cursor="pointer"
                  onPointerEnter={onPointerEnter}
                  onPointerLeave={onPointerLeave}
                  onClick={() => onPick(each.id)}
                >
                  <title>{`${each.label}: ${metric} ${value(each.value, language)}`}</title>
                </circle>
              );
            })}
          </svg>
        )}
      </div>
    </Figure>
  );
}
