/** Successive halving (ASHA): a column for each rung with all that came there; who went on is
 * full, who was stopped is hollow, who is still there is half. */
import { Group, Text } from "@mantine/core";
import { useMemo, type ReactNode } from "react";

import { useLanguage, useWords } from "../i18n";
import { count, value } from "../i18n/format";
import { Figure } from "./Figure";
import { lit, useHovered } from "./hover";
import { useTheme, useWidth } from "./ink";
import { ramp } from "./ramp";
import { rungsOf, type RungTrial } from "./halving";
import { scaleOf } from "./scale";
import { words } from "./words";
import styles from "./charts.module.css";

export type { RungTrial } from "./halving";

export interface RungsProps {
  title: string;
  trials: readonly RungTrial[];
  /** What a trial has spent at each rung: steps, epochs. */
  budgets?: readonly number[];
  direction?: "min" | "max";
  onPick?: (id: string) => void;
  heading?: ReactNode;
  actions?: ReactNode;
}

const DOT = 13;

export function Rungs({ title, trials, budgets, direction = "min", onPick, heading, actions }: RungsProps): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const theme = useTheme();
  const hovered = useHovered();
  const [box, width] = useWidth<HTMLDivElement>();
  const rungs = useMemo(() => rungsOf(trials), [trials]);
  const tone = useMemo(() => scaleOf(trials.map((each) => each.value ?? NaN)), [trials]);
  const colourOf = (each: RungTrial): string => {
    const at = each.value === null ? NaN : tone.at(each.value);
    return ramp(direction === "min" ? 1 - at : at, theme);
  };
  const best = (one: RungTrial, other: RungTrial): number => {
    const [a, b] = [one.value ?? NaN, other.value ?? NaN];
    if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
    return direction === "min" ? a - b : b - a;
  };
  const row = 44;
  const left = 118;
  const right = 130;
  const per = Math.max(1, Math.floor((width - left - right) / DOT));
  const heights = rungs.map((each) => Math.max(row, Math.ceil(each.trials.length / per) * DOT + 14));
  const height = heights.reduce((sum, each) => sum + each, 0);
  const spoken = rungs.map((each) => w.rungSaid(w.rung(each.rung), each.trials.length, each.wentOn));
  const budget = (rung: number): string => (budgets?.[rung] === undefined ? "" : count(budgets[rung], language));
  return (
    <Figure
      title={title}
      heading={heading}
      actions={actions}
      summary={`${w.rungs(rungs.length)} ${spoken.join(" ")}`}
      tables={() => [
        {
          head: [w.rung(0).replace(/\s*0/, ""), w.budget, w.trials, w.wentOn, w.stopped, w.still, w.best],
          rows: rungs.map((each) => [
            w.rung(each.rung),
            budget(each.rung) || "–",
            count(each.trials.length, language),
            count(each.wentOn, language),
            count(each.stopped, language),
            count(each.still, language),
            value([...each.trials].sort(best)[0]?.value, language),
          ]),
        },
      ]}
    >
      <div ref={box} className={styles.plot} style={{ minHeight: height || 60 }}>
        {!rungs.length && <div className={styles.empty}>{w.noPoints}</div>}
        {width > 0 && rungs.length > 0 && (
          <svg className={styles.svg} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={title}>
            {rungs.map((each, at) => {
              const top = heights.slice(0, at).reduce((sum, one) => sum + one, 0);
              const middle = top + (heights[at] as number) / 2;
              return (
                <g key={each.rung}>
                  {at > 0 && <line className={styles.gridline} x1={0} x2={width} y1={top} y2={top} />}
                  <text className="strong" x={0} y={middle - 2} fontSize="12" fontWeight="600">
                    {w.rung(each.rung)}
                  </text>
                  <text x={0} y={middle + 13}>
                    {budget(each.rung) && `${w.budget} ${budget(each.rung)}`}
                  </text>
                  {[...each.trials].sort(best).map((trial, n) => {
                    const on = trial.rung > each.rung;
                    const out = !on && trial.state === "stopped";
                    const x = left + (n % per) * DOT + DOT / 2;
                    const y = top + 7 + Math.floor(n / per) * DOT + DOT / 2;
                    const is = trial.id === hovered;
                    const { onPointerEnter, onPointerLeave } = lit(trial.id);
                    return (
                      <g
                        key={trial.id}
                        onPointerEnter={onPointerEnter}
                        onPointerLeave={onPointerLeave}
                        onClick={onPick && (() => onPick(trial.id))}
                        cursor={onPick ? "pointer" : undefined}
                      >
                        <title>{`${trial.label}: ${value(trial.value, language)} · ${on ? w.wentOn : out ? w.stopped : w.still}`}</title>
                        <circle
                          cx={x}
                          cy={y}
                          r={is ? 6 : 4.4}
                          fill={out ? "var(--mantine-color-body)" : colourOf(trial)}
                          fillOpacity={on || out ? 1 : 0.45}
                          stroke={colourOf(trial)}
                          strokeWidth={is ? 2.5 : 1.6}
                        />
                      </g>
                    );
                  })}
                  <text x={width} y={middle - 2} textAnchor="end" className="strong">
                    {`${count(each.trials.length, language)} ${w.trials.toLowerCase()}`}
                  </text>
                  <text x={width} y={middle + 13} textAnchor="end">
                    {`${count(each.wentOn, language)} ${w.wentOn.toLowerCase()}`}
                  </text>
                </g>
              );
            })}
          </svg>
        )}
      </div>
      <Group gap="md" mt={4}>
        {(
          [
            [w.wentOn, 1, true],
            [w.still, 0.45, true],
            [w.stopped, 1, false],
          ] as const
        ).map(([name, opacity, full]) => (
          <Group key={name} gap={5} wrap="nowrap">
            <svg width="12" height="12" aria-hidden="true">
              <circle
                cx="6"
                cy="6"
                r="4.4"
                fill={full ? "var(--quiet)" : "none"}
                fillOpacity={opacity}
                stroke="var(--quiet)"
                strokeWidth="1.6"
              />
            </svg>
            <Text size="xs">{name}</Text>
          </Group>
        ))}
      </Group>
    </Figure>
  );
}
