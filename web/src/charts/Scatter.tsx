/** Points over two values, coloured by a third where there is one. */
import { Group, Text } from "@mantine/core";
import { useState, type ReactNode } from "react";

import { useLanguage, useWords } from "../i18n";
import { value } from "../i18n/format";
import { Figure } from "./Figure";
import { lit, useHovered } from "./hover";
import { useTheme, useWidth } from "./ink";
import { ramp, rampGradient } from "./ramp";
import { scaleOf, tickLabel, type Scale } from "./scale";
import { words } from "./words";
import styles from "./charts.module.css";

export interface ScatterPoint {
  id: string;
  label: string;
  x: number;
  y: number;
  /** By default the colour of `value`, or one for all. */
  colour?: string;
  value?: number | null;
}
export interface ScatterProps {
  title: string;
  points: readonly ScatterPoint[];
  xLabel: string;
  yLabel: string;
  /** Of what `value` is, for the legend. */
  valueLabel?: string;
  xLog?: boolean;
  yLog?: boolean;
  /** Others are drawn faint; without it all are chosen. */
  chosen?: ReadonlySet<string>;
  onPick?: (id: string) => void;
  height?: number;
  heading?: ReactNode;
  actions?: ReactNode;
}

export function Scatter(props: ScatterProps): ReactNode {
  const { title, points, xLabel, yLabel, valueLabel, height = 260, chosen, onPick } = props;
  const w = useWords(words);
  const { language } = useLanguage();
  const theme = useTheme();
  const hovered = useHovered();
  const [box, width] = useWidth<HTMLDivElement>();
  const [over, setOver] = useState<ScatterPoint | null>(null);
  const x = wider(scaleOf(points.map((each) => each.x), props.xLog ? "log" : "linear")); // prettier-ignore
  const y = wider(scaleOf(points.map((each) => each.y), props.yLog ? "log" : "linear")); // prettier-ignore
  const tone = scaleOf(points.map((each) => each.value ?? NaN)); // prettier-ignore
  const valued = points.some((each) => typeof each.value === "number");
  const yTicks = y.ticks(Math.max(2, height / 50));
  const xTicks = x.ticks(Math.max(2, width / 90));
  const left = 30 + 6.4 * Math.max(2, ...yTicks.map((tick) => tickLabel(tick).length));
  const below = 40;
  const px = (at: number): number => left + x.at(at) * (width - left - 12);
  const py = (at: number): number => 8 + (1 - y.at(at)) * (height - below - 8);
  const drawn = points.filter((each) => Number.isFinite(px(each.x)) && Number.isFinite(py(each.y)));
  const said = (each: number): string => value(each, language);
  const one = theme === "light" ? "#0b6e6e" : "#4eb1ac";
  const colourOf = (each: ScatterPoint): string =>
    each.colour ?? (valued ? ramp(typeof each.value === "number" ? tone.at(each.value) : NaN, theme) : one);
  const order = hovered === null ? drawn : [...drawn.filter((p) => p.id !== hovered), ...drawn.filter((p) => p.id === hovered)];
  return (
    <Figure
      title={title}
      heading={props.heading}
      actions={props.actions}
      summary={w.scatter(xLabel, yLabel, points.length)}
      tables={() => [
        {
          head: [w.name, xLabel, yLabel, ...(valued ? [valueLabel ?? w.value] : [])],
          rows: points
            .slice(0, 500)
            .map((each) => [each.label, said(each.x), said(each.y), ...(valued ? [value(each.value, language)] : [])]),
        },
      ]}
    >
      <div ref={box} className={styles.plot} style={{ height }}>
        {!drawn.length && <div className={styles.empty}>{w.noPoints}</div>}
        {width > 0 && (
          <svg className={styles.svg} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={title}>
            {yTicks.map((tick) => (
              <g key={tick}>
                <line className={styles.gridline} x1={left} x2={width - 12} y1={py(tick)} y2={py(tick)} />
                <text x={left - 6} y={py(tick)} dy="0.35em" textAnchor="end">
                  {tickLabel(tick)}
                </text>
              </g>
            ))}
            {xTicks.map((tick) => (
              <g key={tick}>
                <line className={styles.gridline} x1={px(tick)} x2={px(tick)} y1={8} y2={height - below} />
                <text x={px(tick)} y={height - below + 15} textAnchor="middle">
                  {tickLabel(tick)}
                </text>
              </g>
            ))}
            <text x={left + (width - left) / 2} y={height - 5} textAnchor="middle" className="strong">
              {xLabel}
            </text>
            <text transform={`translate(11 ${(height - below) / 2}) rotate(-90)`} textAnchor="middle" className="strong">
              {yLabel}
            </text>
            {order.map((each) => {
              const on = !chosen || chosen.has(each.id);
              const { onPointerEnter, onPointerLeave } = lit(each.id);
              return (
                <circle
                  key={each.id}
                  cx={px(each.x)}
                  cy={py(each.y)}
                  r={each.id === hovered ? 7 : 4.5}
                  fill={colourOf(each)}
                  fillOpacity={on ? 0.85 : 0.15}
                  stroke="var(--mantine-color-body)"
                  strokeWidth="1"
                  cursor={onPick ? "pointer" : undefined}
                  onPointerEnter={() => {
                    onPointerEnter();
                    setOver(each);
                  }}
                  onPointerLeave={() => {
                    onPointerLeave();
                    setOver(null);
                  }}
                  onClick={onPick && (() => onPick(each.id))}
                />
              );
            })}
          </svg>
        )}
        {over && (
          <div
            className={styles.tip}
            aria-hidden="true"
            style={{
              top: Math.max(0, py(over.y) - 20),
              ...(px(over.x) > width / 2 ? { right: width - px(over.x) + 12 } : { left: px(over.x) + 12 }),
            }}
          >
            <div className={styles.tipLit}>{over.label}</div>
            <table>
              <tbody>
                {[
                  [xLabel, over.x],
                  [yLabel, over.y],
                  ...(valued ? [[valueLabel ?? w.value, over.value]] : []),
                ].map(([name, each]) => (
                  <tr key={String(name)}>
                    <td>{name}</td>
                    <td>{value(each as number, language)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </div>
      {valued && (
        <Group gap={6} mt={4} wrap="nowrap">
          <Text size="xs" c="dimmed">
            {valueLabel ?? w.value}
          </Text>
          <Text size="xs">{tickLabel(tone.low)}</Text>
          <span className={styles.rampBar} style={{ background: rampGradient(theme) }} />
          <Text size="xs">{tickLabel(tone.high)}</Text>
        </Group>
      )}
    </Figure>
  );
}

/** With room at both ends, so that no point is cut. */
function wider(scale: Scale): Scale {
  return scaleOf([scale.value(-0.04), scale.value(1.04)], scale.kind);
}
