/** The picture of some curves. uPlot gives canvas, axes, cursor and selection; the lines are drawn
 * here, each over its own x: to join 50 of them into one table of shared x, as uPlot would have it,
 * makes 25 million numbers out of half a million. y is handed to uPlot as it is drawn (its
 * logarithm, where logarithms are wanted), so nothing is made anew when the reader switches. */
import uPlot from "uplot";

import type { Language } from "../i18n";
import { bandPath, linePath, type Plane } from "./curvepaths";
import { viewOf, wholeOf, type Shown, type View, type Ways } from "./curveview";
import { hoveredNow, setHovered } from "./hover";
import { inkOf, type Ink } from "./ink";
import { nearest, placeOf, type Axis, type Line, type Zoom } from "./line";
import {
  durationLabel, durationTicks, logTicks, tickLabel, ticks, timeLabel, timeTicks,
} from "./scale"; // prettier-ignore
import { smooth } from "./smoothing";
import { follow } from "./touch";

export interface Picture extends Ways {
  lines: readonly Line[];
  axis: Axis;
  smoothing: number;
  language: Language;
}

export interface Reading {
  line: Line;
  x: number;
  y: number;
  /** Before smoothing, where there is any. */
  raw: number | null;
  lit: boolean;
  left: number;
  top: number;
}

/** What the cursor is on: all lines at this x, the nearest ones first. */
export interface Pointed {
  x: number;
  left: number;
  top: number;
  readings: Reading[];
  width: number;
  height: number;
}

export interface Calls {
  zoom: (zoom: Zoom | null) => void;
  pointed: (pointed: Pointed | null) => void;
  pick: (id: string) => void;
}

interface Drawn extends Shown {
  path: Path2D | null;
  raw: Path2D | null;
  band: Path2D | null;
  marks: Path2D | null;
  /** Points of the path. */
  size: number;
}

const NEAR_PIXELS = 40;
/** Beyond so many points in one picture lines are hairlines, which are drawn twenty times faster. */
const DENSE = 12_000;
const NOTHING: Picture = { lines: [], axis: "step", log: false, smoothing: 0, zoom: null, language: "en" };

export class CurvePlot {
  private readonly plot: uPlot;
  private ink: Ink;
  private picture = NOTHING;
  private drawn: Drawn[] = [];
  private view: View = { x: [0, 1], y: [0, 1] };
  private version = 0;
  private made = "";
  private inside = false;
  private lit: string | null = null;
  private byKeys = false;
  private readonly letGo: () => void;
  private smoothed = new WeakMap<Float64Array, { x: Float64Array; weight: number; y: Float64Array }>();

  constructor(
    private readonly box: HTMLElement,
    width: number,
    height: number,
    sync: string | undefined,
    private readonly calls: Calls,
  ) {
    this.ink = inkOf(box);
    const font = `11px ${this.ink.font}`;
    const ruled = { stroke: () => this.ink.grid, width: 1 };
    this.plot = new uPlot(
      {
        width,
        height,
        padding: [8, () => (this.picture.axis === "time" ? 28 : 14), 0, 0],
        legend: { show: false },
        scales: { x: { time: false, range: () => [...this.view.x] }, y: { range: () => [...this.view.y] } },
        series: [{}, { scale: "y", show: true, paths: () => null, points: { show: false } }],
        axes: [
          {
            font, size: 28, gap: 4, stroke: () => this.ink.quiet, grid: ruled, ticks: { ...ruled, size: 4 },
            splits: (_, __, low, high) => this.xTicks(low, high),
            values: (_, splits) => this.xLabels(splits),
          },
          {
            font, gap: 4, stroke: () => this.ink.quiet, grid: ruled, ticks: { show: false },
            size: (_, values) => 14 + 6.4 * Math.max(3, ...(values ?? []).map((each) => String(each).length)),
            splits: (u, _, low, high) => this.yTicks(low, high, u.bbox.height / devicePixelRatio),
            values: (_, splits) => this.yLabels(splits),
          },
        ],
        cursor: {
          y: false,
          points: { show: false },
          drag: { x: true, y: false, setScale: false, dist: 6 },
          ...(sync ? { sync: { key: sync, scales: ["x", null], filters: { pub: moved, sub: moved } } } : {}),
          bind: { dblclick: () => () => (this.calls.zoom(null), null) },
        },
        hooks: {
          drawClear: [() => void (this.ink = inkOf(box))],
          draw: [() => this.draw()],
          setCursor: [() => this.point()],
          setSelect: [() => this.select()],
        },
      } as uPlot.Options,
      [[0, 1], [null, null]],
      box,
    ); // prettier-ignore
    this.plot.over.addEventListener("pointerenter", () => (this.inside = true));
    this.plot.over.addEventListener("pointerleave", () => this.leave());
    this.plot.over.addEventListener("click", () => {
      const id = hoveredNow();
      if (id !== null && this.drawn.some((each) => each.line.id === id)) this.calls.pick(id);
    });
    this.letGo = follow(this.plot.over, {
      view: () => [...this.view.x],
      whole: () => wholeOf(this.drawn),
      preview: (zoom) => {
        this.view = viewOf(this.drawn, { ...this.picture, zoom });
        this.plot.setData([[this.view.x[0], this.view.x[1]], [null, null]]);
      },
      zoom: (to) => this.calls.zoom(to),
      read: (left, top) => {
        this.inside = true;
        this.plot.setCursor({ left, top });
      },
      leave: () => {
        this.plot.setCursor({ left: -10, top: -10 });
        this.leave();
      },
    });
  }

  /** Shows this from now on; the reader's cursor stays where it is. */
  show(picture: Picture): void {
    this.picture = picture;
    this.version += 1;
    this.drawn = picture.lines.map((line) => ({
      line, y: this.smoothedOf(line), path: null, raw: null, band: null, marks: null, size: 0,
    })); // prettier-ignore
    this.view = viewOf(this.drawn, picture);
    const id = hoveredNow();
    this.lit = picture.lines.some((each) => each.id === id) ? id : null;
    this.plot.setData([[this.view.x[0], this.view.x[1]], [null, null]]);
    if (this.inside || this.byKeys) this.point();
  }

  resize(width: number, height: number): void {
    if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height });
  }

  /** Colours of the page changed. */
  repaint(): void {
    this.plot.redraw(false);
  }

  /** What is hovered changed, here or elsewhere. */
  light(): void {
    const id = hoveredNow();
    const lit = id !== null && this.drawn.some((each) => each.line.id === id) ? id : null;
    if (lit === this.lit) return;
    this.lit = lit;
    this.plot.redraw(false);
  }

  destroy(): void {
    if (this.inside || this.byKeys) setHovered(null);
    this.letGo();
    this.plot.destroy();
  }

  /** Reads on by keys: `by` points to the right, or `over` lines on. What it reads then. */
  step(by: number, over: number): Reading | null {
    const shown = this.drawn.filter((each) => !each.line.faint && each.line.x.length);
    if (!shown.length) return null;
    const now = shown.findIndex((each) => each.line.id === hoveredNow());
    const chosen = shown[((now < 0 ? 0 : now) + over + shown.length) % shown.length] as Drawn;
    const { x } = chosen.line;
    const left = this.plot.cursor.left ?? -1;
    const here = left < 0 ? this.view.x[by < 0 ? 1 : 0] : this.plot.posToVal(left, "x");
    let at = nearest(x, here);
    if (left >= 0) at = Math.min(x.length - 1, Math.max(0, at + by));
    let value = x[at] as number;
    if (by && left >= 0 && Math.abs(this.plot.valToPos(value, "x") - left) < 1) {
      // points closer than a pixel: the next one that is seen apart
      const wide = (this.view.x[1] - this.view.x[0]) / Math.max(1, this.plot.over.clientWidth);
      at = Math.min(x.length - 1, Math.max(0, placeOf(x, here + by * wide)));
      value = x[at] as number;
    }
    this.byKeys = true;
    setHovered(chosen.line.id);
    const place = this.plot.valToPos(Math.min(this.view.x[1], Math.max(this.view.x[0], value)), "x");
    const top = this.topOf(chosen.y[at] as number);
    this.plot.setCursor({ left: place, top: Number.isFinite(top) ? top : 0 });
    return this.readingOf(chosen, value, true);
  }

  /** Zooms by keys, around the cursor where there is one; out no further than there are points. */
  zoomBy(times: number): void {
    const [low, high] = this.view.x;
    const left = this.plot.cursor.left ?? -1;
    const centre = left >= 0 ? this.plot.posToVal(left, "x") : (low + high) / 2;
    const next: Zoom = [centre - (centre - low) * times, centre + (high - centre) * times];
    const [first, last] = wholeOf(this.drawn);
    this.calls.zoom(next[0] <= first && next[1] >= last ? null : next);
  }

  leave(): void {
    this.inside = false;
    this.byKeys = false;
    setHovered(null);
    this.calls.pointed(null);
  }

  private smoothedOf(line: Line): Float64Array {
    const weight = line.faint ? 0 : this.picture.smoothing;
    if (weight <= 0) return line.y;
    const known = this.smoothed.get(line.y);
    if (known && known.weight === weight && known.x === line.x) return known.y;
    const y = smooth(line.x, line.y, weight);
    this.smoothed.set(line.y, { x: line.x, weight, y });
    return y;
  }

  private xTicks(low: number, high: number): number[] {
    const many = Math.max(2, this.plot ? this.plot.bbox.width / devicePixelRatio / 90 : 6);
    const { axis } = this.picture;
    if (axis === "time") return timeTicks(low, high, many);
    if (axis === "relative") return durationTicks(low, high, many);
    const whole = ticks(low, high, many).filter(Number.isInteger);
    return whole.length ? whole : ticks(low, high, many);
  }

  private xLabels(splits: number[]): string[] {
    const step = apart(splits);
    const { axis, language } = this.picture;
    if (axis === "time") return splits.map((each) => timeLabel(each, step, language));
    if (axis === "relative") return splits.map((each) => durationLabel(each, step));
    return splits.map((each) => tickLabel(each, step));
  }

  private yTicks(low: number, high: number, height: number): number[] {
    const many = Math.max(2, (height || 160) / 40);
    if (!this.picture.log) return ticks(low, high, many);
    return logTicks(10 ** low, 10 ** high, many).map(Math.log10);
  }

  private yLabels(splits: number[]): string[] {
    if (!this.picture.log) return splits.map((each) => tickLabel(each, apart(splits)));
    return splits.map((each) => tickLabel(Number((10 ** each).toPrecision(12))));
  }

  private topOf(value: number): number {
    const there = this.picture.log ? (value > 0 ? Math.log10(value) : Number.NaN) : value;
    return Number.isFinite(there) ? this.plot.valToPos(there, "y") : Number.NaN;
  }

  private select(): void {
    const { left, width } = this.plot.select;
    if (width < 4) return;
    const zoom: Zoom = [this.plot.posToVal(left, "x"), this.plot.posToVal(left + width, "x")];
    this.plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.calls.zoom(zoom);
  }

  private point(): void {
    const { left = -1, top = -1 } = this.plot.cursor;
    if (left < 0 || (!this.inside && !this.byKeys)) {
      this.calls.pointed(null);
      return;
    }
    const x = this.plot.posToVal(left, "x");
    const readings: Reading[] = [];
    for (const each of this.drawn) {
      if (each.line.faint) continue;
      const reading = this.readingOf(each, x, false);
      if (reading) readings.push(reading);
    }
    const distance = (each: Reading): number => (Number.isFinite(each.top) ? Math.abs(each.top - top) : Infinity);
    readings.sort((a, b) => distance(a) - distance(b));
    const first = readings[0];
    if (!this.byKeys) setHovered(first && distance(first) <= NEAR_PIXELS ? first.line.id : null);
    for (const each of readings) each.lit = each.line.id === hoveredNow();
    const { clientWidth: width, clientHeight: height } = this.box;
    const { over } = this.plot;
    for (const each of readings) {
      each.left += over.offsetLeft;
      each.top += over.offsetTop;
    }
    this.calls.pointed({ x, left: left + over.offsetLeft, top: top + over.offsetTop, readings, width, height });
  }

  private readingOf(drawn: Drawn, x: number, lit: boolean): Reading | null {
    const { line, y } = drawn;
    const at = nearest(line.x, x);
    if (at < 0) return null;
    const there = line.x[at] as number;
    const left = this.plot.valToPos(there, "x");
    const away = Math.abs(left - this.plot.valToPos(x, "x"));
    const atEnd = at === 0 || at === line.x.length - 1;
    if (there < this.view.x[0] || there > this.view.x[1] || (atEnd && away > NEAR_PIXELS)) return null;
    const value = y[at] as number;
    return { line, x: there, y: value, raw: y === line.y ? null : (line.y[at] as number), lit, left, top: this.topOf(value) };
  }

  // -- drawing, in canvas pixels -----------------------------------------------------------------

  private draw(): void {
    const { ctx, bbox } = this.plot;
    const view = [...this.view.x, ...this.view.y, bbox.left, bbox.top, bbox.width, bbox.height, this.version].join();
    if (view !== this.made) {
      for (const each of this.drawn) this.trace(each);
      this.made = view;
    }
    const { lit } = this;
    const someLit = lit !== null;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const dense = this.drawn.reduce((sum, each) => sum + each.size, 0) > DENSE;
    ctx.lineJoin = dense ? "bevel" : "round";
    for (const each of this.drawn) if (!someLit || each.line.id !== lit) this.stroke(each, someLit ? 0.22 : 1, dense ? 0 : 1.6);
    if (someLit) for (const each of this.drawn) if (each.line.id === lit) this.stroke(each, 1, dense ? 1.6 : 2.6);
    ctx.restore();
  }

  /** `wide` in CSS pixels; 0 is a hairline. */
  private stroke({ line, path, raw, band, marks, size }: Drawn, alpha: number, wide: number): void {
    const { ctx } = this.plot;
    const ratio = devicePixelRatio;
    ctx.strokeStyle = ctx.fillStyle = line.colour;
    if (band) {
      ctx.globalAlpha = alpha * 0.18;
      ctx.fill(band);
    }
    ctx.setLineDash([]);
    ctx.lineWidth = 1;
    if (raw) {
      ctx.globalAlpha = alpha * 0.25;
      ctx.stroke(raw);
    }
    ctx.globalAlpha = line.faint ? alpha * 0.3 : alpha;
    ctx.lineWidth = wide ? wide * ratio : 1;
    if (path) {
      if (line.dash?.length && size < DENSE / 4) ctx.setLineDash(line.dash.map((each) => each * ratio));
      ctx.stroke(path);
      ctx.setLineDash([]);
    }
    if (marks) {
      ctx.lineWidth = 1.6 * ratio;
      ctx.stroke(marks);
    }
  }

  private trace(drawn: Drawn): void {
    const { line, y } = drawn;
    const { log } = this.picture;
    const plane: Plane = { box: this.plot.bbox, ...this.view, log, ratio: devicePixelRatio };
    drawn.marks = new Path2D();
    const made = linePath(plane, line.x, y, drawn.marks);
    const raw = y === line.y ? null : linePath(plane, line.x, line.y, null);
    drawn.path = made.path;
    drawn.raw = raw?.path ?? null;
    drawn.size = made.size + (raw?.size ?? 0);
    drawn.band = line.low && line.high ? bandPath(plane, line.x, line.low, line.high) : null;
  }
}

function moved(type: string): boolean {
  return type === "mousemove";
}

function apart(splits: readonly number[]): number {
  return splits.length > 1 ? Math.abs((splits[1] as number) - (splits[0] as number)) : 0;
}
