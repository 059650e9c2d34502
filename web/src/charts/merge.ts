/** Series put together: what came since, what is finer, what is too much. Pure. */
import { perPixel } from "./thin";
import type { Series } from "./wire";

export type By = "step" | "time";

/** The older with the newer points. Of a step that is in both, the newer counts: a later attempt
 * did it again. */
export function appended(old: Series, fresh: Series): Series {
  if (!fresh.value.length) return old;
  const steps = new Set<number>();
  const moments = new Set<number>();
  for (let at = 0; at < fresh.step.length; at++) {
    const step = fresh.step[at] as number;
    if (Number.isNaN(step)) moments.add(fresh.at[at] as number);
    else steps.add(step);
  }
  const kept = placesWhere(old, (at) => {
    const step = old.step[at] as number;
    return Number.isNaN(step) ? !moments.has(old.at[at] as number) : !steps.has(step);
  });
  return joined({ ...old, thinned: old.thinned || fresh.thinned }, [[old, kept], [fresh, null]]);
}

/** The whole, with finer points between the ends of the part. */
export function spliced(whole: Series, part: Series, by: By): Series {
  if (!part.value.length) return whole;
  const axis = by === "step" ? "step" : "at";
  let low = Infinity;
  let high = -Infinity;
  for (const each of part[axis]) {
    if (each < low) low = each;
    if (each > high) high = each;
  }
  const kept = placesWhere(whole, (at) => !((whole[axis][at] as number) >= low && (whole[axis][at] as number) <= high));
  return joined(whole, [[whole, kept], [part, null]]);
}

/** At most about `limit` points: the smallest and largest of each stretch. */
export function thinned(series: Series, limit: number): Series {
  if (series.value.length <= limit) return series;
  const over = stepless(series) ? series.at : series.step;
  const last = over[over.length - 1] as number;
  const places = perPixel(over, series.value, over[0] as number, last, Math.max(1, limit / 4));
  return { ...taken(series, places), thinned: true };
}

export function stepless(series: Series): boolean {
  return series.step.some(Number.isNaN);
}

function placesWhere(series: Series, good: (at: number) => boolean): Uint32Array {
  const found = new Uint32Array(series.value.length);
  let count = 0;
  for (let at = 0; at < found.length; at++) if (good(at)) found[count++] = at;
  return found.subarray(0, count);
}

function taken(series: Series, places: Uint32Array | null): Series {
  if (!places) return series;
  const of = (from: Float64Array): Float64Array => Float64Array.from(places, (at) => from[at] as number);
  return { ...series, step: of(series.step), at: of(series.at), value: of(series.value) };
}

/** One after another, in order of step, or of time where there are no steps. */
function joined(like: Series, parts: readonly (readonly [Series, Uint32Array | null])[]): Series {
  const pieces = parts.map(([series, places]) => taken(series, places));
  const of = (name: "step" | "at" | "value"): Float64Array => {
    const found = new Float64Array(pieces.reduce((sum, each) => sum + each.value.length, 0));
    let at = 0;
    for (const each of pieces) {
      found.set(each[name], at);
      at += each.value.length;
    }
    return found;
  };
  const whole: Series = { ...like, step: of("step"), at: of("at"), value: of("value") };
  return sorted(whole, stepless(whole) ? whole.at : whole.step);
}

/** In order of these numbers, one for each point. */
export function sorted(series: Series, over: Float64Array): Series {
  let inOrder = true;
  for (let at = 1; at < over.length && inOrder; at++) inOrder = (over[at - 1] as number) <= (over[at] as number);
  if (inOrder) return series;
  const places = Uint32Array.from(over, (_, at) => at);
  places.sort((a, b) => (over[a] as number) - (over[b] as number) || a - b);
  return taken(series, places);
}
