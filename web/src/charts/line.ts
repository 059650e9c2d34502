/** What a curve is: numbers in order of x, one colour, and whose it is. */


export type Axis = "step" | "relative" | "time";

export interface Line {
  /** Whose it is: the job's id where there is one. Lines of one id light up together. */
  id: string;
  label: string;
  colour: string;
  dash?: readonly number[];
  /** In order. Steps; seconds since the start (`relative`); UTC seconds (`time`). */
  x: Float64Array;
  /** As many. What is not finite is a gap, and is marked. */
  y: Float64Array;
  /** Drawn faint, without a place in legend and table: the raw values behind a line. */
  faint?: boolean;
  /** A band around the line, as many numbers as `y`. */
  low?: Float64Array;
  high?: Float64Array;
}

/** Both ends of the part of x that is shown. */
export type Zoom = readonly [number, number];


/** The first place in ascending `x` whose number is not below `value`. */
export function placeOf(x: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((x[middle] as number) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The place whose number is nearest to `value`; -1 of nothing. */
export function nearest(x: ArrayLike<number>, value: number): number {
  if (!x.length) return -1;
  const after = placeOf(x, value);
  if (after === 0) return 0;
  if (after === x.length) return after - 1;
  return value - (x[after - 1] as number) <= (x[after] as number) - value ? after - 1 : after;
}
