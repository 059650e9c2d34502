/** A surface over two parameters, guessed between the trials: near ones count most. */
export interface Spot {
  /** From 0 to 1 along both axes. */
  x: number;
  y: number;
  value: number;
}

/** Values in rows from the bottom to the top; NaN without any spot. */
export function surfaceOf(spots: readonly Spot[], across: number, up: number): Float64Array {
  const found = new Float64Array(across * up);
  for (let row = 0; row < up; row++) {
    for (let column = 0; column < across; column++) {
      found[row * across + column] = guess(spots, (column + 0.5) / across, (row + 0.5) / up);
    }
  }
  return found;
}

/** The mean of all, weighted by one through the third power of the distance. */
function guess(spots: readonly Spot[], x: number, y: number): number {
  let sum = 0;
  let weights = 0;
  for (const spot of spots) {
    const away = Math.hypot(spot.x - x, spot.y - y);
    if (away < 1e-6) return spot.value;
    const weight = 1 / away ** 3;
    sum += weight * spot.value;
    weights += weight;
  }
  return sum / weights;
}
