/** An exponential moving average as TensorBoard draws it: the start is not pulled towards zero,
 * and what is not finite is left as it is and changes nothing after it.
 *
 * The weight holds per unit of x, not per point, so that unevenly spaced points (a thinned series,
 * a slow epoch) are smoothed alike. A unit is the usual distance of two points, at least a
 * thousandth of the whole: more points of the same curve do not make it rougher. Evenly spaced,
 * up to a thousand points, it is TensorBoard's number to the last digit. */
const PARTS = 1000;

export function smooth(x: Float64Array, y: Float64Array, weight: number): Float64Array {
  const found = new Float64Array(y.length);
  if (weight <= 0 || y.length < 3) {
    found.set(y);
    return found;
  }
  const keep = Math.min(weight, 0.999);
  const unit = unitOf(x);
  let mean = 0;
  let mass = 0;
  let before = Number.NaN;
  for (let at = 0; at < y.length; at++) {
    const value = y[at] as number;
    if (!Number.isFinite(value)) {
      found[at] = value;
      continue;
    }
    const here = x[at] as number;
    const apart = Number.isNaN(before) ? 1 : Math.max(0, here - before) / unit;
    before = here;
    const kept = Math.pow(keep, apart);
    mean = mean * kept + value * (1 - kept);
    mass = mass * kept + (1 - kept);
    found[at] = mass > 0 ? mean / mass : value;
  }
  return found;
}

/** The distance in x that one point stands for. */
export function unitOf(x: Float64Array): number {
  const whole = (x[x.length - 1] as number) - (x[0] as number);
  if (!(whole > 0)) return 1;
  const every = Math.max(1, Math.floor(x.length / PARTS));
  const gaps: number[] = [];
  for (let at = 1; at < x.length; at += every) {
    const gap = (x[at] as number) - (x[at - 1] as number);
    if (gap > 0) gaps.push(gap);
  }
  gaps.sort((a, b) => a - b);
  return Math.max(gaps[gaps.length >> 1] ?? 0, whole / PARTS);
}
