/** Curves in words and numbers: for readers of the screen, and for who wants the values. Pure. */
import type { Language } from "../i18n";
import { count, duration, moment, value } from "../i18n/format";
import type { AsTable } from "./Figure";
import { nearest, placeOf, type Axis, type Line, type Zoom } from "./line";
import { words } from "./words";

type Said = (typeof words)["en"];
const SPOKEN_LINES = 5;
const ROWS = 100;

export interface Facts {
  points: number;
  first: number;
  last: number;
  low: number;
  high: number;
  notFinite: number;
}

/** Of the part between both ends, or of all. */
export function factsOf({ x, y }: Line, zoom: Zoom | null = null): Facts {
  const facts = { points: 0, first: NaN, last: NaN, low: NaN, high: NaN, notFinite: 0 };
  const from = zoom ? placeOf(x, zoom[0]) : 0;
  for (let at = from; at < y.length && !(zoom && (x[at] as number) > zoom[1]); at++) {
    const here = y[at] as number;
    facts.points += 1;
    if (!Number.isFinite(here)) {
      facts.notFinite += 1;
      continue;
    }
    if (Number.isNaN(facts.first)) facts.first = facts.low = facts.high = here;
    facts.last = here;
    if (here < facts.low) facts.low = here;
    if (here > facts.high) facts.high = here;
  }
  return facts;
}

export function xSaid(x: number, axis: Axis, language: Language): string {
  if (axis === "time") return moment(new Date(x * 1000).toISOString(), language);
  if (axis === "relative") return duration(x, language);
  return count(Math.round(x * 1000) / 1000, language);
}

export function curveSummary(
  title: string, lines: readonly Line[], axis: Axis, w: Said, language: Language,
  format: (value: number) => string = (each) => value(each, language),
): string {
  const said = [w.curves(title, w[axis].toLowerCase(), lines.length)];
  for (const line of lines.slice(0, SPOKEN_LINES)) {
    const { first, last, low, high, notFinite } = factsOf(line);
    if (Number.isNaN(first)) said.push(w.curveEmpty(line.label));
    else said.push(w.curve(line.label, format(first), format(last), format(low), format(high)));
    if (notFinite) said.push(`${w.gaps(notFinite)}.`);
  }
  if (lines.length > SPOKEN_LINES) said.push(`${w.more(lines.length - SPOKEN_LINES)}.`);
  return said.join(" ");
} // prettier-ignore

/** A row for each line, then the values: a row for each x, at most a hundred of them. */
export function curveTables(
  lines: readonly Line[], axis: Axis, zoom: Zoom | null, w: Said, language: Language,
  format: (value: number) => string = (each) => value(each, language),
): AsTable[] {
  const said = (each: number): string => (Number.isNaN(each) ? "–" : format(each));
  const whole: AsTable = {
    head: [w.line, w.points, w.first, w.last, w.lowest, w.highest, w.notFinite],
    rows: lines.map((line) => {
      const { points, first, last, low, high, notFinite } = factsOf(line, zoom);
      return [line.label, count(points, language), said(first), said(last), said(low), said(high), count(notFinite, language)];
    }),
  };
  const values: AsTable = {
    head: [w[axis], ...lines.map((line) => line.label)],
    rows: sampled(lines, zoom).map((x) => [
      xSaid(x, axis, language),
      ...lines.map((line) => {
        const at = nearest(line.x, x);
        return at >= 0 && line.x[at] === x ? format(line.y[at] as number) : "";
      }),
    ]),
  };
  return [whole, values];
} // prettier-ignore

/** At most a hundred of the x that there are, evenly chosen, the last always. */
export function sampled(lines: readonly Line[], zoom: Zoom | null): number[] {
  const all = new Set<number>();
  for (const { x } of lines) {
    const from = zoom ? placeOf(x, zoom[0]) : 0;
    const to = zoom ? placeOf(x, zoom[1]) : x.length;
    const every = Math.max(1, Math.floor((to - from) / ROWS));
    for (let at = from; at < to; at += every) all.add(x[at] as number);
    if (to > from) all.add(x[to - 1] as number);
  }
  const sorted = [...all].sort((a, b) => a - b);
  if (sorted.length <= ROWS) return sorted;
  const every = (sorted.length - 1) / (ROWS - 1);
  return Array.from({ length: ROWS }, (_, n) => sorted[Math.round(n * every)] as number);
}
