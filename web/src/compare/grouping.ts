/** Jobs that share a parameter's value, as one line with a band: the mean of them, and one
 * standard deviation either way. */
import type { Side } from "./sides";

export interface Series {
  x: Float64Array;
  y: Float64Array;
}

export interface Band extends Series {
  low: Float64Array;
  high: Float64Array;
}

const PLACES = 400;

/** The jobs by the value that they have, in the order of values; none is "". */
export function groupBy(sides: readonly Side[], param: string): Map<string, Side[]> {
  const found = new Map<string, Side[]>();
  for (const side of sides) {
    const value = side.params[param] ?? "";
    found.set(value, [...(found.get(value) ?? []), side]);
  }
  return new Map([...found].sort(([a], [b]) => inOrder(a, b)));
}

/** Numbers by size and before words. */
export function inOrder(a: string, b: string): number {
  const [one, other] = [Number(a || NaN), Number(b || NaN)];
  if (Number.isNaN(one) || Number.isNaN(other)) {
    return Number(Number.isNaN(one)) - Number(Number.isNaN(other)) || a.localeCompare(b);
  }
  return one - other;
}

/** The mean of lines that were not told at the same places: each is read between its points, and
 * counts only from its first to its last. */
export function meanBand(lines: readonly Series[]): Band {
  const told = lines.map(finite).filter((each) => each.x.length);
  const x = placesOf(told);
  const y = new Float64Array(x.length);
  const low = new Float64Array(x.length);
  const high = new Float64Array(x.length);
  x.forEach((at, n) => {
    const values = told.map((each) => read(each, at)).filter((value) => !Number.isNaN(value));
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
    const spread = values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : 0;
    y[n] = mean;
    low[n] = mean - spread;
    high[n] = mean + spread;
  });
  return { x, y, low, high };
}

function finite(line: Series): Series {
  const kept: number[] = [];
  line.y.forEach((value, at) => {
    if (Number.isFinite(value) && Number.isFinite(line.x[at])) kept.push(at);
  });
  if (kept.length === line.x.length) return line;
  return { x: Float64Array.from(kept, (at) => line.x[at] as number), y: Float64Array.from(kept, (at) => line.y[at] as number) };
}

/** Every place where one was told, or evenly spread ones where those are too many. */
function placesOf(lines: readonly Series[]): Float64Array {
  const all = new Set<number>();
  for (const line of lines) for (const at of line.x) all.add(at);
  const sorted = Float64Array.from(all).sort();
  if (sorted.length <= PLACES) return sorted;
  const first = sorted[0] as number;
  const last = sorted[sorted.length - 1] as number;
  return Float64Array.from({ length: PLACES }, (_, n) => first + ((last - first) * n) / (PLACES - 1));
}

function read({ x, y }: Series, at: number): number {
  const last = x.length - 1;
  if (at < (x[0] as number) || at > (x[last] as number)) return NaN;
  let low = 0;
  let high = last;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((x[middle] as number) <= at) low = middle;
    else high = middle;
  }
  const [x0, x1] = [x[low] as number, x[high] as number];
  const [y0, y1] = [y[low] as number, y[high] as number];
  if (at >= x1 || x1 === x0) return y1;
  return y0 + ((y1 - y0) * (at - x0)) / (x1 - x0);
}
