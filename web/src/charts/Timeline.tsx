/** Phases one after another on one axis of time: queued, starting, running, each attempt. What is
 * not over goes on by itself. */
import { useMemo, type ReactNode } from "react";

import { useLanguage, useWords } from "../i18n";
import { duration, moment } from "../i18n/format";
import { useNow } from "../look/Ago";
import { Figure } from "./Figure";
import { useWidth } from "./ink";
import { durationLabel, durationTicks } from "./scale";
import { words } from "./words";
import styles from "./charts.module.css";

export interface Phase {
  /** Its row: phases of one lane stand beside one another ("attempt 1"). */
  lane: string;
  label: string;
  /** ISO-8601; `to` null: still so. */
  from: string;
  to: string | null;
  /** A colour of the theme: yellow, cyan, teal, green, red, orange, gray. */
  tone: string;
  /** More for the tooltip: why it ended. */
  note?: string;
}
export interface TimelineProps {
  title: string;
  phases: readonly Phase[];
  heading?: ReactNode;
  actions?: ReactNode;
}

const ROW = 34;
const BELOW = 22;

export function Timeline({ title, phases, heading, actions }: TimelineProps): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [box, width] = useWidth<HTMLDivElement>();
  const live = phases.some((each) => each.to === null);
  const tick = useNow();
  const now = live ? tick : 0;
  const lanes = useMemo(() => [...new Set(phases.map((each) => each.lane))], [phases]);
  const start = Math.min(...phases.map((each) => Date.parse(each.from)));
  const end = Math.max(...phases.map((each) => (each.to ? Date.parse(each.to) : now)));
  const whole = Math.max(1, (end - start) / 1000);
  const left = Math.min(160, 16 + 7 * Math.max(0, ...lanes.map((each) => widthOf(each))));
  const inner = Math.max(10, width - left - 16);
  const px = (seconds: number): number => left + (seconds / whole) * inner;
  const height = lanes.length * ROW + BELOW;
  const ticks = durationTicks(0, whole, Math.max(2, inner / 90));
  const step = (ticks[1] ?? 1) - (ticks[0] ?? 0);
  const took = (each: Phase): number => ((each.to ? Date.parse(each.to) : now) - Date.parse(each.from)) / 1000;
  const said = (each: Phase): string =>
    `${each.label}: ${duration(took(each), language)}${each.to ? "" : ` (${w.now})`}${each.note ? ` · ${each.note}` : ""}`;
  return (
    <Figure
      title={title}
      heading={heading}
      actions={actions}
      summary={`${w.timeline(phases.length)} ${live ? "" : phases.map(said).join("; ")}`}
      tables={() => [
        {
          head: [w.phase, w.name, w.started, w.took, ""],
          rows: phases.map((each) => [
            each.lane,
            each.label,
            moment(each.from, language),
            `${duration(took(each), language)}${each.to ? "" : ` (${w.now})`}`,
            each.note ?? "",
          ]),
        },
      ]}
    >
      <div ref={box} className={styles.plot} style={{ height: phases.length ? height : 60 }}>
        {!phases.length && <div className={styles.empty}>{w.noPoints}</div>}
        {width > 0 && phases.length > 0 && (
          <svg className={styles.svg} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={title}>
            {ticks.map((each) => (
              <g key={each}>
                <line className={styles.gridline} x1={px(each)} x2={px(each)} y1={0} y2={height - BELOW} />
                <text x={px(each)} y={height - 6} textAnchor={each === 0 ? "start" : "middle"}>
                  {durationLabel(each, step)}
                </text>
              </g>
            ))}
            {lanes.map((lane, at) => (
              <text key={lane} className="strong" x={0} y={at * ROW + ROW / 2} dy="0.35em" fontSize="12">
                {lane}
              </text>
            ))}
            {phases.map((each, n) => {
              const at = lanes.indexOf(each.lane);
              const from = px((Date.parse(each.from) - start) / 1000);
              const size = Math.max(3, (took(each) / whole) * inner);
              const words = each.label;
              const fits = widthOf(words) * 6.8 + 12 < size;
              return (
                <g key={n}>
                  <title>{said(each)}</title>
                  <rect
                    x={from}
                    y={at * ROW + 5}
                    width={size}
                    height={ROW - 10}
                    rx={4}
                    fill={`color-mix(in srgb, var(--mantine-color-${each.tone}-5) 32%, var(--mantine-color-body))`}
                    stroke={`var(--mantine-color-${each.tone}-6)`}
                    strokeDasharray={each.to ? undefined : "4 3"}
                  />
                  {fits && (
                    <text className="strong" x={from + 7} y={at * ROW + ROW / 2} dy="0.35em" fontSize="12">
                      {words}
                    </text>
                  )}
                </g>
              );
            })}
          </svg>
        )}
      </div>
    </Figure>
  );
}

/** In letters of Latin width; Chinese ones are two. */
function widthOf(text: string): number {
  let width = 0;
  for (const letter of text) width += (letter.codePointAt(0) ?? 0) > 0x2e80 ? 1.8 : 1;
  return width;
}
