/** Parallel coordinates: a line for each trial or job, a brush on every axis. The same limits can
 * be typed: what a pointer can do, the keyboard can. */
import { Button, Collapse, Group, MultiSelect, NumberInput, SimpleGrid, Text } from "@mantine/core";
import { useEffect, useMemo, useRef, useState, type PointerEvent, type ReactNode } from "react";

import { useLanguage, useWords } from "../i18n";
import { value } from "../i18n/format";
import { Figure } from "./Figure";
import { setHovered, useHovered } from "./hover";
import { useTheme, useWidth } from "./ink";
import {
  brushed, brushOf, chosen, placed,
  type Limit, type Limits, type ParallelAxis, type ParallelRow, type Placed,
} from "./coordinates"; // prettier-ignore
import { ramp, rampGradient } from "./ramp";
import { tickLabel } from "./scale";
import { words } from "./words";
import styles from "./charts.module.css";

export type { Limit, Limits, ParallelAxis, ParallelRow } from "./coordinates";

export interface ParallelProps {
  title: string;
  axes: readonly ParallelAxis[];
  rows: readonly ParallelRow[];
  /** Key of the axis that gives the colours; without it all have one. */
  objective?: string;
  /** Whether little or much of it is good; best is the strong end of the ramp. */
  direction?: "min" | "max";
  /** Held by the caller (the URL) together with `onLimits`; else by the chart. */
  limits?: Limits;
  onLimits?: (limits: Limits) => void;
  /** The ids within all limits, as they change. */
  onChosen?: (ids: ReadonlySet<string>) => void;
  onPick?: (id: string) => void;
  height?: number;
  heading?: ReactNode;
  actions?: ReactNode;
}

const ABOVE = 34;
const BELOW = 14;
const SIDE = 56;
const NONE: Limits = {};

export function Parallel(props: ParallelProps): ReactNode {
  const { title, axes, rows, objective, direction = "min", onChosen } = props;
  const w = useWords(words);
  const { language } = useLanguage();
  const theme = useTheme();
  const [own, setOwn] = useState<Limits>(NONE);
  const limits = props.onLimits ? (props.limits ?? NONE) : own;
  const setLimits = props.onLimits ?? setOwn;
  const [typing, setTyping] = useState(false);
  const set = (key: string, limit: Limit | null): void => {
    const { [key]: _, ...rest } = limits;
    setLimits(limit ? { ...rest, [key]: limit } : rest);
  };
  const places = useMemo(() => axes.map((axis) => placed(axis, rows)), [axes, rows]);
  const ids = useMemo(() => chosen(rows, limits), [rows, limits]);
  useEffect(() => onChosen?.(ids), [ids, onChosen]);
  const coloured = places.find((each) => each.axis.key === objective);
  const colourOf = useMemo(() => {
    return (row: ParallelRow): string => {
      const at = coloured ? coloured.at(row.values[coloured.axis.key]) : 0.7;
      return ramp(coloured && direction === "min" ? 1 - at : at, theme);
    };
  }, [coloured, direction, theme]);

  return (
    <Figure
      title={title}
      heading={props.heading}
      actions={props.actions}
      summary={w.parallel(rows.length, axes.length, ids.size)}
      tables={() => [
        {
          head: [w.name, ...axes.map((axis) => axis.label)],
          rows: rows
            .filter((row) => ids.has(row.id))
            .slice(0, 200)
            .map((row) => [row.label, ...axes.map((axis) => cellSaid(row.values[axis.key], language))]),
        },
      ]}
    >
      <Lines {...props} places={places} limits={limits} set={set} ids={ids} colourOf={colourOf} />
      <Group justify="space-between" mt={6} gap="xs">
        {coloured ? <RampLegend of={coloured} direction={direction} /> : <span />}
        <Group gap="xs">
          <Text size="xs" c="dimmed" role="status">
            {w.chosen(ids.size, rows.length)}
          </Text>
          {Object.keys(limits).length > 0 && (
            <Button size="compact-xs" variant="default" onClick={() => setLimits(NONE)}>
              {w.clearAll}
            </Button>
          )}
          <Button size="compact-xs" variant="default" aria-expanded={typing} onClick={() => setTyping(!typing)}>
            {w.limits}
          </Button>
        </Group>
      </Group>
      <Collapse expanded={typing}>
        <SimpleGrid cols={{ base: 1, xs: 2, md: 3, lg: 4 }} mt="xs" spacing="xs">
          {places.map((each) => (
            <Typed key={each.axis.key} of={each} limit={limits[each.axis.key]} set={(to) => set(each.axis.key, to)} />
          ))}
        </SimpleGrid>
      </Collapse>
    </Figure>
  );
}

function cellSaid(cell: unknown, language: "en" | "zh"): string {
  if (cell === null || cell === undefined) return "–";
  return typeof cell === "number" ? value(cell, language) : String(cell);
}

/** One axis by keys: both ends, or which categories. */
function Typed({ of, limit, set }: { of: Placed; limit?: Limit; set: (limit: Limit | null) => void }): ReactNode {
  const w = useWords(words);
  const { label } = of.axis;
  if (of.axis.kind === "category") {
    return (
      <MultiSelect
        size="xs"
        label={w.oneOf(label)}
        placeholder={limit ? undefined : w.any}
        data={[...of.names]}
        value={limit && "of" in limit ? [...limit.of] : []}
        onChange={(names) => set(names.length ? { of: names } : null)}
        clearable
      />
    );
  }
  const ends = limit && "low" in limit ? limit : { low: null, high: null };
  const change = (which: "low" | "high", typed: number | string): void => {
    const next = { ...ends, [which]: typed === "" || Number.isNaN(Number(typed)) ? null : Number(typed) };
    set(next.low === null && next.high === null ? null : next);
  };
  const shown = (end: number | null): number | string => (end === null ? "" : Number(end.toPrecision(4)));
  return (
    <Group gap={6} wrap="nowrap" align="flex-end">
      <NumberInput
        size="xs"
        label={w.from(label)}
        placeholder={tickLabel(of.scale.low)}
        value={shown(ends.low)}
        onChange={(typed) => change("low", typed)}
        hideControls
      />
      <NumberInput
        size="xs"
        label={w.to(label)}
        placeholder={tickLabel(of.scale.high)}
        value={shown(ends.high)}
        onChange={(typed) => change("high", typed)}
        hideControls
      />
    </Group>
  );
}

function RampLegend({ of, direction }: { of: Placed; direction: "min" | "max" }): ReactNode {
  const theme = useTheme();
  const ends = [tickLabel(of.scale.low), tickLabel(of.scale.high)];
  if (direction === "min") ends.reverse();
  return (
    <Group gap={6} wrap="nowrap">
      <Text size="xs" c="dimmed">
        {of.axis.label}
      </Text>
      <Text size="xs">{ends[0]}</Text>
      <span className={styles.rampBar} style={{ background: rampGradient(theme) }} />
      <Text size="xs">{ends[1]}</Text>
    </Group>
  );
}

interface LinesProps extends ParallelProps {
  places: readonly Placed[];
  limits: Limits;
  set: (key: string, limit: Limit | null) => void;
  ids: ReadonlySet<string>;
  colourOf: (row: ParallelRow) => string;
}

function Lines({ title, places, rows, limits, set, ids, colourOf, height = 300, onPick }: LinesProps): ReactNode {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const { language } = useLanguage();
  const theme = useTheme();
  const hovered = useHovered();
  const [drag, setDrag] = useState<{ axis: number; from: number; to: number } | null>(null);
  const [tip, setTip] = useState<{ row: ParallelRow; x: number; y: number } | null>(null);
  const wide = Math.max(width, places.length * 84);
  const across = (at: number): number =>
    places.length > 1 ? SIDE + (at / (places.length - 1)) * (wide - 2 * SIDE) : wide / 2;
  const down = (at: number): number => ABOVE + (1 - at) * (height - ABOVE - BELOW);
  const spots = useMemo(
    () => rows.map((row) => places.map((place) => place.at(row.values[place.axis.key]))),
    [rows, places],
  );

  useEffect(() => {
    const element = canvas.current;
    const ctx = element?.getContext("2d");
    if (!element || !ctx || !width) return;
    const ratio = devicePixelRatio;
    element.width = wide * ratio;
    element.height = height * ratio;
    ctx.scale(ratio, ratio);
    ctx.clearRect(0, 0, wide, height);
    ctx.lineJoin = "round";
    const faded = theme === "light" ? "#c3c9d0" : "#3d444c";
    const draw = (at: number, colour: string, alpha: number, line: number): void => {
      ctx.strokeStyle = colour;
      ctx.globalAlpha = alpha;
      ctx.lineWidth = line;
      ctx.beginPath();
      let open = false;
      (spots[at] as number[]).forEach((spot, n) => {
        if (Number.isNaN(spot)) open = false;
        else if (open) ctx.lineTo(across(n), down(spot));
        else {
          ctx.moveTo(across(n), down(spot));
          open = true;
        }
      });
      ctx.stroke();
    };
    const many = ids.size;
    const alpha = many > 600 ? 0.3 : many > 100 ? 0.5 : 0.8;
    rows.forEach((row, at) => !ids.has(row.id) && draw(at, faded, many ? 0.35 : 0.6, 1));
    rows.forEach((row, at) => ids.has(row.id) && row.id !== hovered && draw(at, colourOf(row), alpha, 1.4));
    rows.forEach((row, at) => row.id === hovered && draw(at, colourOf(row), 1, 3));
  }, [rows, spots, ids, hovered, colourOf, wide, width, height, theme]);

  const placeOf = (event: PointerEvent): { x: number; y: number; at: number } => {
    const bounds = (event.currentTarget as Element).getBoundingClientRect();
    const y = event.clientY - bounds.top;
    const at = 1 - (y - ABOVE) / (height - ABOVE - BELOW);
    return { x: event.clientX - bounds.left, y, at: Math.min(1, Math.max(0, at)) };
  };
  const pointed = (event: PointerEvent): void => {
    const { x, y, at } = placeOf(event);
    if (drag) {
      setDrag({ ...drag, to: at });
      return;
    }
    const found = nearestRow(rows, spots, ids, places.map((_, n) => across(n)), x, y, down);
    setHovered(found?.id ?? null);
    setTip(found ? { row: found, x, y } : null);
  };
  const dropped = (): void => {
    if (!drag) return;
    const place = places[drag.axis] as Placed;
    set(place.axis.key, brushed(place, drag.from, drag.to));
    setDrag(null);
  };

  return (
    <div ref={box} className="scroll-x" tabIndex={wide > width ? 0 : undefined} role="group" aria-label={title}>
      <div className={styles.plot} style={{ height, width: wide > width ? wide : "100%" }}>
        <canvas ref={canvas} className={styles.canvas} style={{ width: wide, height }} aria-hidden="true" />
        {width > 0 && (
          <svg
            className={styles.over}
            width={wide}
            height={height}
            role="img"
            aria-label={title}
            onPointerMove={pointed}
            onPointerLeave={() => {
              setHovered(null);
              setTip(null);
            }}
            onPointerUp={dropped}
            onClick={() => tip && !drag && onPick?.(tip.row.id)}
          >
            {places.map((place, at) => {
              const x = across(at);
              const limit = limits[place.axis.key];
              const brush =
                drag?.axis === at
                  ? ([Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)] as const)
                  : limit && brushOf(place, limit);
              return (
                <g key={place.axis.key}>
                  <text className="strong" x={x} y={14} textAnchor="middle" fontWeight="600" fontSize="12">
                    <title>{place.axis.label}</title>
                    {clipped(place.axis.label, Math.max(8, (wide - 2 * SIDE) / Math.max(1, places.length - 1) / 7.4))}
                  </text>
                  <line x1={x} x2={x} y1={down(1)} y2={down(0)} stroke="var(--quiet)" strokeWidth="1" />
                  {(place.axis.kind === "category"
                    ? place.names.map((name) => [place.at(name), name] as const)
                    : place.scale
                        .ticks(Math.max(2, Math.floor(height / 60)))
                        .map((tick) => [place.scale.at(tick), tickLabel(tick)] as const)
                  ).map(([spot, name]) => (
                    <g key={name}>
                      <line x1={x - 3} x2={x + 3} y1={down(spot)} y2={down(spot)} stroke="var(--quiet)" />
                      <text
                        x={at === 0 ? x - 7 : x + 7}
                        y={down(spot)}
                        dy="0.35em"
                        textAnchor={at === 0 ? "end" : "start"}
                        className={styles.halo}
                      >
                        {clipped(name, at === 0 || at === places.length - 1 ? 7 : 12)}
                      </text>
                    </g>
                  ))}
                  {brush && (
                    <rect
                      className={styles.brush}
                      x={x - 9}
                      width={18}
                      y={down(Math.min(1.03, brush[1]))}
                      height={Math.max(2, down(Math.max(-0.03, brush[0])) - down(Math.min(1.03, brush[1])))}
                      rx={3}
                    />
                  )}
                  <rect
                    x={x - 16}
                    width={32}
                    y={ABOVE - 10}
                    height={height - ABOVE - BELOW + 20}
                    fill="transparent"
                    cursor="ns-resize"
                    onPointerDown={(event) => {
                      const { at: from } = placeOf({ ...event, currentTarget: event.currentTarget.ownerSVGElement } as never);
                      event.currentTarget.ownerSVGElement?.setPointerCapture(event.pointerId);
                      setDrag({ axis: at, from, to: from });
                      setTip(null); // the click that ends a brush picks nothing
                    }}
                    onDoubleClick={() => set(place.axis.key, null)}
                  />
                </g>
              );
            })}
          </svg>
        )}
        {tip && !drag && (
          <div
            className={styles.tip}
            aria-hidden="true"
            style={{
              top: Math.min(tip.y + 12, height - 60),
              ...(tip.x > wide / 2 ? { right: wide - tip.x + 14 } : { left: tip.x + 14 }),
            }}
          >
            <div className={styles.tipLit}>{tip.row.label}</div>
            <table>
              <tbody>
                {places.map(({ axis }) => (
                  <tr key={axis.key}>
                    <td>{axis.label}</td>
                    <td>{cellSaid(tip.row.values[axis.key], language)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </div>
    </div>
  );
}

function clipped(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, Math.max(1, Math.floor(most) - 1))}…` : text;
}

/** The chosen row whose line passes nearest to the pointer, within 12 pixels. */
export function nearestRow(
  rows: readonly ParallelRow[],
  spots: readonly (readonly number[])[],
  ids: ReadonlySet<string>,
  across: readonly number[],
  x: number,
  y: number,
  down: (at: number) => number,
): ParallelRow | null {
  let right = across.findIndex((each) => each >= x);
  if (right < 0) right = across.length - 1;
  const left = Math.max(0, right - 1);
  const [from, to] = [across[left] as number, across[right] as number];
  const part = to > from ? Math.min(1, Math.max(0, (x - from) / (to - from))) : 0;
  let best: ParallelRow | null = null;
  let least = 12;
  rows.forEach((row, n) => {
    if (!ids.has(row.id)) return;
    const [a, b] = [spots[n]?.[left] ?? Number.NaN, spots[n]?.[right] ?? Number.NaN];
    const away = Math.abs(down(a + (b - a) * part) - y);
    if (away < least) {
      least = away;
      best = row;
    }
  });
  return best;
}
