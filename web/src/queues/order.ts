/** Where a job of the line goes, as the server wants to hear it. */
export type Move = { before: string } | { first: true } | { last: true };
export type Way = "first" | "up" | "down" | "last";

/** To place `to` (counted without the job itself) in the line; null: nothing would change, or its
 * new neighbour is another project's, whose id is not told. */
export function moveTo(ids: readonly (string | null)[], from: number, to: number): Move | null {
  const rest = ids.filter((_, at) => at !== from);
  const place = Math.max(0, Math.min(rest.length, to));
  if (place === from) return null;
  if (place === 0) return { first: true };
  if (place === rest.length) return { last: true };
  const neighbour = rest[place];
  return neighbour ? { before: neighbour } : null;
}

export function step(ids: readonly (string | null)[], from: number, way: Way): Move | null {
  const to = { first: 0, up: from - 1, down: from + 1, last: ids.length - 1 }[way];
  return to < 0 || to > ids.length - 1 ? null : moveTo(ids, from, to);
}

/** The line as it will be, shown until the server's own arrives. */
export function moved<T>(rows: readonly T[], from: number, to: number): T[] {
  const after = rows.filter((_, at) => at !== from);
  after.splice(Math.max(0, Math.min(after.length, to)), 0, rows[from] as T);
  return after;
}
