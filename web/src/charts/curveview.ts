/** Which part of the plane is shown of some curves. y is as it is drawn: its logarithm, where
 * logarithms are wanted. Pure. */
import { placeOf, type Line, type Zoom } from "./line";

export interface Shown {
  line: Line;
  /** As drawn: smoothed where that is asked for, else the line's own. */
  y: Float64Array;
}

export interface Ways {
  log: boolean;
  zoom: Zoom | null;
  /** Ends of y that do not follow the data. */
  yRange?: readonly [number | null, number | null];
  /** y leaves out the few that lie far from the rest. */
  cut?: boolean;
}

export interface View {
  x: Zoom;
  y: Zoom;
}

export function viewOf(shown: readonly Shown[], ways: Ways): View {
  let [low, high] = ways.zoom ?? wholeOf(shown);
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  return { x: [low, high], y: yView(shown, ways, low, high) };
}

/** Where the first of all points is, and the last. */
export function wholeOf(shown: readonly Shown[]): Zoom {
  let low = Infinity;
  let high = -Infinity;
  for (const { line } of shown) {
    if (!line.x.length) continue;
    low = Math.min(low, line.x[0] as number);
    high = Math.max(high, line.x[line.x.length - 1] as number);
  }
  return low > high ? [0, 1] : [low, high];
}

function yView(shown: readonly Shown[], { log, yRange, cut }: Ways, from: number, to: number): Zoom {
  let low = Infinity;
  let high = -Infinity;
  const widen = (value: number): void => {
    if (value < low && value > (log ? 0 : -Infinity)) low = value;
    if (value > high && value < Infinity && (!log || value > 0)) high = value;
  };
  const take = (x: Float64Array, values: Float64Array): void => {
    const start = placeOf(x, from);
    let at = start;
    for (; at < x.length && (x[at] as number) <= to; at++) widen(values[at] as number);
    widen(between(x, values, start, from)); // a line that comes in at the left
    widen(between(x, values, at, to)); // and goes out at the right
  };
  for (const { line, y } of shown) {
    take(line.x, y);
    if (y !== line.y) take(line.x, line.y);
    if (line.low && line.high) {
      take(line.x, line.low);
      take(line.x, line.high);
    }
  }
  if (cut) [low, high] = usual(shown, from, to, [low, high]);
  if (low > high) [low, high] = log ? [0.1, 1] : [0, 1];
  if (log) [low, high] = [Math.log10(low), Math.log10(high)];
  const room = (high - low) * 0.06 || (log ? 0.2 : Math.abs(high) * 0.1 || 0.5);
  const [least, most] = yRange ?? [null, null];
  const fixed = (value: number | null): number | null =>
    value === null ? null : log ? (value > 0 ? Math.log10(value) : null) : value;
  return [fixed(least) ?? low - room, fixed(most) ?? high + room];
}

/** Between the lowest and the highest twentieth with room for half as much, within the whole. */
function usual(shown: readonly Shown[], from: number, to: number, whole: Zoom): Zoom {
  const values: number[] = [];
  for (const { line, y } of shown) {
    const [start, end] = [placeOf(line.x, from), placeOf(line.x, to)];
    const every = Math.max(1, Math.floor((end - start) / 1000));
    for (let at = start; at < end; at += every) if (Number.isFinite(y[at])) values.push(y[at] as number);
  }
  values.sort((a, b) => a - b);
  const low = values[Math.floor(values.length * 0.05)] ?? Number.NaN;
  const high = values[Math.floor(values.length * 0.95)] ?? Number.NaN;
  const room = (high - low) * 0.5;
  if (!(room > 0)) return whole;
  return [Math.max(whole[0], low - room), Math.min(whole[1], high + room)];
}

/** The value at `here`, on the line to the point at `after` from the one before it. */
function between(x: Float64Array, y: Float64Array, after: number, here: number): number {
  if (after === 0 || after >= x.length) return Number.NaN;
  const [from, to] = [x[after - 1] as number, x[after] as number];
  const [low, high] = [y[after - 1] as number, y[after] as number];
  return to > from ? low + ((high - low) * (here - from)) / (to - from) : low;
}
