/** Plain bars: stacked over days (`vertical`), or one below another with names (`horizontal`). */
import { Text } from "@mantine/core";
import { useState, type ReactNode } from "react";

import { useLanguage, useWords } from "../i18n";
import { value } from "../i18n/format";
import { Figure } from "./Figure";
import { lit, useHovered } from "./hover";
import { useWidth } from "./ink";
import { linear, stepOf, tickLabel } from "./scale";
import { ends, stacked, totalOf, type Bar, type BarKind } from "./stacking";
import { words } from "./words";
import styles from "./charts.module.css";

export type { Bar, BarKind, BarPart } from "./stacking";

export interface BarsProps {
  title: string;
  bars: readonly Bar[];
  kinds: readonly BarKind[];
  direction?: "vertical" | "horizontal";
  format?: (value: number) => string;
  height?: number;
  heading?: ReactNode;
  actions?: ReactNode;
  onPick?: (bar: Bar) => void;
}

export function Bars(props: BarsProps): ReactNode {
  const { title, bars, kinds, direction = "vertical" } = props;
  const w = useWords(words);
  const { language } = useLanguage();
  const format = props.format ?? ((each: number) => value(each, language));
  const said = bars.slice(0, 12).map((each) => w.bar(each.label, format(totalOf(each))));
  if (bars.length > 12) said.push(`${w.more(bars.length - 12)}.`);
  const several = kinds.length > 1;
  return (
    <Figure
      title={title}
      heading={props.heading}
      actions={props.actions}
      summary={`${w.bars(title, bars.length)} ${said.join(" ")}`}
      tables={() => [
        {
          head: [w.name, ...(several ? kinds.map((each) => each.label) : []), several ? w.total : w.value],
          rows: bars.map((bar) => [
            bar.label,
            ...(several
              ? kinds.map(({ kind }) => format(totalOf({ label: "", parts: bar.parts.filter((each) => each.kind === kind) })))
              : []),
            format(totalOf(bar)),
          ]),
        },
      ]}
    >
      {!bars.length ? (
        <Text size="sm" c="dimmed" py="md">
          {w.noPoints}
        </Text>
      ) : direction === "vertical" ? (
        <Upright {...props} format={format} />
      ) : (
        <Lying {...props} format={format} />
      )}
      {several && (
        <ul className={styles.legend} aria-label={w.legend}>
          {kinds.map((each) => (
            <li key={each.kind} className={styles.legendItem} {...lit(each.kind)}>
              <span className={styles.swatch} style={{ background: each.colour }} />
              <span className="clip">{each.label}</span>
            </li>
          ))}
        </ul>
      )}
    </Figure>
  );
}

type Drawn = BarsProps & { format: (value: number) => string };

function Upright({ title, bars, kinds, format, height = 200, onPick }: Drawn): ReactNode {
  const [box, width] = useWidth<HTMLDivElement>();
  const hovered = useHovered();
  const w = useWords(words);
  const [over, setOver] = useState<number | null>(null);
  const [low, high] = ends(bars, kinds);
  const many = Math.max(2, Math.floor(height / 45));
  const step = stepOf(high - low, many);
  const scale = linear(Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step);
  const below = 22;
  const ticks = scale.ticks(many);
  const left = 14 + 6.4 * Math.max(...ticks.map((each) => tickLabel(each, step).length));
  const each = Math.max(10, width - left - 4) / bars.length;
  const thick = Math.min(48, Math.max(1, each * 0.72));
  const every = Math.max(1, Math.ceil((Math.max(...bars.map((bar) => bar.label.length)) * 6.6 + 8) / each));
  const top = (at: number): number => 6 + (1 - scale.at(at)) * (height - below - 6);
  const shown = over === null ? null : bars[over];
  const someLit = hovered !== null && kinds.some(({ kind }) => kind === hovered);
  return (
    <div ref={box} className={styles.plot} style={{ height }}>
      {width > 0 && (
        <svg className={styles.svg} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={title}>
          {ticks.map((tick) => (
            <g key={tick}>
              <line className={styles.gridline} x1={left} x2={width} y1={top(tick)} y2={top(tick)} />
              <text x={left - 6} y={top(tick)} dy="0.35em" textAnchor="end">
                {tickLabel(tick, step)}
              </text>
            </g>
          ))}
          {bars.map((bar, at) => (
            <g
              key={at}
              onPointerEnter={() => setOver(at)}
              onPointerLeave={() => setOver(null)}
              onClick={onPick && (() => onPick(bar))}
              cursor={onPick ? "pointer" : undefined}
            >
              <rect x={left + at * each} y={0} width={each} height={height - below} fill="transparent" />
              {stacked(bar, kinds).map(({ kind, from, to }) => (
                <rect
                  key={kind.kind}
                  x={left + at * each + (each - thick) / 2}
                  width={thick}
                  y={top(Math.max(from, to))}
                  height={Math.max(0.5, top(Math.min(from, to)) - top(Math.max(from, to)) - (from ? 1 : 0))}
                  fill={bar.colour ?? kind.colour}
                  opacity={someLit && kind.kind !== hovered ? 0.3 : over === null || over === at ? 1 : 0.6}
                  rx={Math.min(2, thick / 4)}
                />
              ))}
              {at % every === 0 && (
                <text x={left + (at + 0.5) * each} y={height - 6} textAnchor="middle">
                  {bar.label}
                </text>
              )}
            </g>
          ))}
        </svg>
      )}
      {shown && (
        <div
          className={styles.tip}
          aria-hidden="true"
          style={
            (over as number) > bars.length / 2
              ? { top: 8, right: width - left - (over as number) * each + 4 }
              : { top: 8, left: left + ((over as number) + 1) * each + 4 }
          }
        >
          <div className={styles.tipHead}>{shown.label}</div>
          <table>
            <tbody>
              {stacked(shown, kinds).map(({ kind, from, to }) => (
                <tr key={kind.kind}>
                  <td>
                    <span className={styles.swatch} style={{ background: shown.colour ?? kind.colour }} /> {kind.label}
                  </td>
                  <td>{format(to - from)}</td>
                </tr>
              ))}
              {kinds.length > 1 && (
                <tr className={styles.tipLit}>
                  <td>{w.total}</td>
                  <td>{format(totalOf(shown))}</td>
                </tr>
              )}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

function Lying({ title, bars, kinds, format, onPick }: Drawn): ReactNode {
  const [box, width] = useWidth<HTMLDivElement>();
  const hovered = useHovered();
  const row = 26;
  const left = Math.min(Math.max(60, width * 0.38), 12 + 6.8 * Math.max(...bars.map((each) => each.label.length)));
  const right = 14 + 6.8 * Math.max(...bars.map((each) => format(totalOf(each)).length));
  const [low, high] = ends(bars, kinds);
  const scale = linear(low, high);
  const foot = left + (low < 0 ? right : 0);
  const inner = Math.max(10, width - foot - right);
  const px = (at: number): number => foot + scale.at(at) * inner;
  const height = bars.length * row + 4;
  const fits = Math.max(4, Math.floor((left - 10) / 6.6));
  const someLit = hovered !== null && bars.some((bar) => bar.id === hovered);
  return (
    <div ref={box} className={styles.plot} style={{ height }}>
      {width > 0 && (
        <svg className={styles.svg} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={title}>
          {low < 0 && <line x1={px(0)} x2={px(0)} y1={0} y2={height} stroke="var(--quiet)" />}
          {bars.map((bar, at) => {
            const total = totalOf(bar);
            const middle = at * row + row / 2;
            return (
              <g
                key={at}
                {...(bar.id ? lit(bar.id) : {})}
                onClick={onPick && (() => onPick(bar))}
                cursor={onPick ? "pointer" : undefined}
                opacity={someLit && bar.id !== hovered ? 0.45 : 1}
              >
                <title>{`${bar.label}: ${format(total)}`}</title>
                <rect x={0} y={at * row} width={width} height={row} fill="transparent" />
                <text className="strong" x={left - 8} y={middle} dy="0.35em" textAnchor="end" fontSize="12">
                  {bar.label.length > fits ? `${bar.label.slice(0, fits - 1)}…` : bar.label}
                </text>
                {stacked(bar, kinds).map(({ kind, from, to }) => (
                  <rect
                    key={kind.kind}
                    x={px(Math.min(from, to))}
                    y={at * row + 5}
                    width={Math.max(1, Math.abs(px(to) - px(from)))}
                    height={row - 10}
                    rx={3}
                    fill={bar.colour ?? kind.colour}
                  />
                ))}
                <text
                  x={total < 0 ? px(total) - 6 : px(Math.max(0, total)) + 6}
                  y={middle}
                  dy="0.35em"
                  fontSize="12"
                  textAnchor={total < 0 ? "end" : "start"}
                >
                  {format(total)}
                </text>
              </g>
            );
          })}
        </svg>
      )}
    </div>
  );
}
