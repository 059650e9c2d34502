/** Curves as paths on a canvas, in its own pixels. */
import { placeOf, type Zoom } from "./line";
import { perPixel } from "./thin";

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Where values lie on the canvas. `y` is as it is drawn: its logarithm, where `log`. */
export interface Plane {
  box: Box;
  x: Zoom;
  y: Zoom;
  log: boolean;
  /** Canvas pixels of a CSS pixel. */
  ratio: number;
}

const DOTS_UP_TO = 30;
const MARKS_APART = 9;

function places({ box, x, y, log }: Plane): { px: (x: number) => number; py: (y: number) => number } {
  const perX = box.width / (x[1] - x[0]);
  const perY = box.height / (y[1] - y[0]);
  const bottom = box.top + box.height;
  return {
    px: (at) => box.left + (at - x[0]) * perX,
    py: (at) => bottom - ((log ? (at > 0 ? Math.log10(at) : Number.NaN) : at) - y[0]) * perY,
  };
}

/** The line, of how many points, and a mark in `marks` for each that has no place. */
export function linePath(
  plane: Plane,
  x: Float64Array,
  y: Float64Array,
  marks: Path2D | null,
): { path: Path2D; size: number } {
  const path = new Path2D();
  const { box, ratio } = plane;
  const { px, py } = places(plane);
  const drawn = perPixel(x, y, plane.x[0], plane.x[1], box.width / ratio);
  const dots = marks && drawn.length <= DOTS_UP_TO;
  let open = false;
  let marked = -Infinity;
  for (let n = 0; n < drawn.length; n++) {
    const at = drawn[n] as number;
    const value = y[at] as number;
    const left = px(x[at] as number);
    const top = py(value);
    if (!Number.isFinite(top)) {
      if (marks && left - marked > MARKS_APART * ratio) {
        mark(marks, left, box, value, ratio);
        marked = left;
      }
      open = false;
      continue;
    }
    if (open) path.lineTo(left, top);
    else path.moveTo(left, top);
    const next = n + 1 < drawn.length ? py(y[drawn[n + 1] as number] as number) : Number.NaN;
    if (dots || (!open && !Number.isFinite(next))) dot(path, left, top, ratio);
    open = true;
  }
  return { path, size: drawn.length };
}

/** What lies between both, a piece for each stretch without a gap. */
export function bandPath(plane: Plane, x: Float64Array, low: Float64Array, high: Float64Array): Path2D {
  const path = new Path2D();
  const { px, py } = places(plane);
  const bottom = plane.box.top + plane.box.height;
  const start = Math.max(0, placeOf(x, plane.x[0]) - 1);
  const end = Math.min(x.length, placeOf(x, plane.x[1]) + 2);
  const whole = (at: number): boolean => Number.isFinite(py(high[at] as number));
  for (let at = start; at < end; ) {
    if (!whole(at)) {
      at += 1;
      continue;
    }
    let to = at;
    while (to < end && whole(to)) to += 1;
    path.moveTo(px(x[at] as number), py(high[at] as number));
    for (let n = at + 1; n < to; n++) path.lineTo(px(x[n] as number), py(high[n] as number));
    for (let n = to - 1; n >= at; n--) {
      const top = py(low[n] as number); // below zero on logarithms: down to the bottom
      path.lineTo(px(x[n] as number), Number.isFinite(top) ? top : bottom);
    }
    path.closePath();
    at = to;
  }
  return path;
}

function dot(path: Path2D, left: number, top: number, ratio: number): void {
  path.moveTo(left + 1.2 * ratio, top);
  path.arc(left, top, 1.2 * ratio, 0, Math.PI * 2);
  path.moveTo(left, top);
}

/** A value without a place: an arrow to where it went, a cross for what is no number. */
function mark(path: Path2D, left: number, box: Box, value: number, ratio: number): void {
  const size = 3.5 * ratio;
  const bottom = box.top + box.height - size - 2;
  if (Number.isNaN(value)) {
    path.moveTo(left - size, bottom - size);
    path.lineTo(left + size, bottom + size);
    path.moveTo(left + size, bottom - size);
    path.lineTo(left - size, bottom + size);
    return;
  }
  const up = value === Infinity;
  const top = up ? box.top + size + 2 : bottom;
  const way = up ? size : -size;
  path.moveTo(left - size, top + way);
  path.lineTo(left, top - way);
  path.lineTo(left + size, top + way);
}
