/** Series as lines of a chart: over steps, over time. Pure. */
import { strokes, type Theme } from "../look/colours";
import type { Axis, Line, Zoom } from "./line";
import { sorted, stepless } from "./merge";
import type { Series } from "./wire";

/** When the first of the points was, UTC ms. */
export function startOf(series: readonly Series[]): number {
  let found = Infinity;
  for (const each of series) for (const at of each.at) if (at < found) found = at;
  return Number.isFinite(found) ? found : 0;
}

/** A zoom as the server takes it: whole steps, or milliseconds. */
export function endsOf(zoom: Zoom, axis: Axis, start: number): [number, number] {
  const [low, high] = axis === "step" ? zoom : zoom.map((each) => each * 1000 + (axis === "relative" ? start : 0));
  return [Math.floor(low as number), Math.ceil(high as number)];
}

export interface Drawn {
  axis: Axis;
  theme: Theme;
  /** By job, what it is called. */
  names: Readonly<Record<string, string>>;
  starts?: Readonly<Record<string, number>>;
  /** Where one job has several keys in one chart, they are told apart by key. */
  byKey?: boolean;
}

const placed = new WeakMap<Series, Map<string, { x: Float64Array; y: Float64Array }>>();

/** Series as lines of one chart: a colour for each job, the rank named where there are several. */
export function linesOf(series: readonly Series[], { axis, theme, names, starts, byKey }: Drawn): Line[] {
  const styles = strokes([...new Set(series.map((each) => each.job))], theme);
  const first = new Map<string, number>();
  if (axis === "relative") {
    for (const each of series) {
      const known = starts?.[each.job] ?? Math.min(first.get(each.job) ?? Infinity, startOf([each]));
      first.set(each.job, known);
    }
  }
  const ranked = new Set(series.filter((each) => each.rank > 0).map((each) => each.job + each.key));
  return series.map((each) => {
    const { x, y } = placesOf(each, axis, first.get(each.job) ?? 0);
    const style = styles.get(each.job);
    const label = [
      names[each.job] ?? each.job,
      byKey ? each.key : "",
      ranked.has(each.job + each.key) ? `#${each.rank}` : "",
    ];
    return {
      id: each.job,
      label: label.filter(Boolean).join(" · "),
      colour: style?.colour ?? "#888888",
      dash: style?.dash ?? [],
      x,
      y,
    };
  });
}

function placesOf(series: Series, axis: Axis, start: number): { x: Float64Array; y: Float64Array } {
  const known = placed.get(series) ?? new Map<string, { x: Float64Array; y: Float64Array }>();
  placed.set(series, known);
  const name = `${axis} ${start}`;
  const found = known.get(name);
  if (found) return found;
  let made: { x: Float64Array; y: Float64Array };
  if (axis === "step") {
    // points without a step are counted
    const x = stepless(series) ? Float64Array.from(series.at, (_, at) => at) : series.step;
    made = { x, y: series.value };
  } else {
    const inTime = sorted(series, series.at);
    made = { x: Float64Array.from(inTime.at, (at) => (at - start) / 1000), y: inTime.value };
  }
  known.set(name, made);
  return made;
}
