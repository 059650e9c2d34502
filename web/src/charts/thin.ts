/** Fewer points that draw the same: of each pixel the first, the smallest, the largest and the
 * last, in order. No peak is lost, and a gap stays a gap. */
import { placeOf } from "./line";

/** Places in `x` to draw between `low` and `high` on `width` pixels, with one beyond each end so
 * that the line leaves the picture. A value that is not finite is kept, one for each run. */
export function perPixel(x: Float64Array, y: Float64Array, low: number, high: number, width: number): Uint32Array {
  const from = Math.max(0, placeOf(x, low) - 1);
  const to = Math.min(x.length, upTo(x, high) + 1);
  const many = to - from;
  if (many <= 0) return new Uint32Array(0);
  if (many <= width * 2 || !(high > low)) return Uint32Array.from({ length: many }, (_, n) => from + n);
  const found = new Uint32Array(many);
  const per = width / (high - low);
  let count = 0;
  let column = Number.NaN;
  let first = -1;
  let least = -1;
  let most = -1;
  let last = -1;
  let gap = -1;
  let inGap = false; // what was put last is not finite
  const put = (place: number): void => {
    if (!count || found[count - 1] !== place) found[count++] = place;
  };
  const flush = (): void => {
    if (gap >= 0) {
      if (first < 0 && inGap) return;
      const places = first < 0 ? [gap] : [first, least, most, last, gap];
      places.sort((one, other) => one - other).forEach(put);
    } else if (first >= 0) {
      put(first);
      put(Math.min(least, most));
      put(Math.max(least, most));
      put(last);
    }
    inGap = count > 0 && found[count - 1] === gap;
  };
  for (let at = from; at < to; at++) {
    const here = Math.floor(((x[at] as number) - low) * per);
    if (here !== column) {
      if (at > from) flush();
      column = here;
      first = gap = -1;
    }
    const value = y[at] as number;
    if (!Number.isFinite(value)) {
      if (gap < 0) gap = at;
    } else if (first < 0) {
      first = least = most = last = at;
    } else {
      if (value < (y[least] as number)) least = at;
      if (value > (y[most] as number)) most = at;
      last = at;
    }
  }
  flush();
  return found.slice(0, count);
}

function upTo(x: ArrayLike<number>, value: number): number {
  let at = placeOf(x, value);
  while (at < x.length && x[at] === value) at += 1;
  return at;
}

/** Places of about `many` points that keep the shape: largest triangle, three buckets. For small
 * pictures, where extremes of each pixel would be a block. */
export function lttb(x: Float64Array, y: Float64Array, many: number): Uint32Array {
  const whole: number[] = [];
  for (let at = 0; at < y.length; at++) if (Number.isFinite(y[at])) whole.push(at);
  if (whole.length <= many || many < 3) return Uint32Array.from(whole);
  const found = new Uint32Array(many);
  const size = (whole.length - 2) / (many - 2);
  let chosen = 0;
  found[0] = whole[0] as number;
  for (let bucket = 0; bucket < many - 2; bucket++) {
    const from = Math.floor(bucket * size) + 1;
    const to = Math.floor((bucket + 1) * size) + 1;
    const end = Math.min(Math.floor((bucket + 2) * size) + 1, whole.length);
    let meanX = 0;
    let meanY = 0;
    for (let at = to; at < end; at++) {
      meanX += x[whole[at] as number] as number;
      meanY += y[whole[at] as number] as number;
    }
    meanX /= end - to || 1;
    meanY /= end - to || 1;
    const ax = x[whole[chosen] as number] as number;
    const ay = y[whole[chosen] as number] as number;
    let largest = -1;
    for (let at = from; at < to; at++) {
      const bx = x[whole[at] as number] as number;
      const by = y[whole[at] as number] as number;
      const area = Math.abs((ax - meanX) * (by - ay) - (ax - bx) * (meanY - ay));
      if (area > largest) {
        largest = area;
        chosen = at;
      }
    }
    found[bucket + 1] = whole[chosen] as number;
  }
  found[many - 1] = whole[whole.length - 1] as number;
  return found;
}
