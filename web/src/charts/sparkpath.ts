/** A small line as an SVG path. Pure. */
import { lttb } from "./thin";

/** The path within the box, with room for the dot at its end. */
export function sparkPath(
  x: ArrayLike<number> | undefined,
  y: ArrayLike<number>,
  width: number,
  height: number,
): { path: string; end: [number, number] | null; first: number; last: number } {
  const many = y.length;
  const values = Float64Array.from(y);
  const over = x ? Float64Array.from(x) : Float64Array.from({ length: many }, (_, n) => n);
  const places = lttb(over, values, Math.max(8, Math.floor(width / 2)));
  if (!places.length) return { path: "", end: null, first: NaN, last: NaN };
  const from = over[places[0] as number] as number;
  const whole = (over[places[places.length - 1] as number] as number) - from || 1;
  let low = Infinity;
  let high = -Infinity;
  for (const at of places) {
    low = Math.min(low, values[at] as number);
    high = Math.max(high, values[at] as number);
  }
  const room = 3;
  const left = (at: number): number => room + (((over[at] as number) - from) / whole) * (width - 2 * room);
  const top = (at: number): number =>
    high === low ? height / 2 : room + (1 - ((values[at] as number) - low) / (high - low)) * (height - 2 * room);
  let path = "";
  let before = -1;
  for (const at of places) {
    let gap = before < 0;
    for (let n = before + 1; n < at && before >= 0 && !gap; n++) gap = !Number.isFinite(values[n]);
    path += `${gap ? "M" : "L"}${left(at).toFixed(1)} ${top(at).toFixed(1)}`;
    before = at;
  }
  const final = places[places.length - 1] as number;
  return { path, end: [left(final), top(final)], first: values[places[0] as number] as number, last: values[final] as number };
}
