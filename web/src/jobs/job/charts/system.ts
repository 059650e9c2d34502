/** What ranks used, as series that grow: an answer that overlaps what is held adds only its end. */
export interface SystemSeries {
  key: string;
  rank: number;
  points: readonly (readonly [number, number])[];
}

export function grown(held: readonly SystemSeries[], fresh: readonly SystemSeries[]): SystemSeries[] {
  const found = new Map(held.map((each) => [`${each.rank} ${each.key}`, each]));
  for (const each of fresh) {
    const name = `${each.rank} ${each.key}`;
    const known = found.get(name);
    if (!known) {
      found.set(name, each);
      continue;
    }
    const first = each.points[0]?.[0];
    if (first === undefined) continue;
    const kept = known.points.filter(([at]) => at < first); // the last second may have been a part
    found.set(name, { ...each, points: [...kept, ...each.points] });
  }
  return [...found.values()].sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : a.rank - b.rank));
}

export function lastAt(held: readonly SystemSeries[]): number {
  return held.reduce((latest, each) => Math.max(latest, each.points.at(-1)?.[0] ?? 0), 0);
}

/** CPU and memory first, then GPUs, then the rest. */
export function keysInOrder(held: readonly SystemSeries[]): string[] {
  const first = ["cpu_percent", "memory_bytes"];
  const place = (key: string): number => (first.includes(key) ? first.indexOf(key) : key.startsWith("gpu") ? 2 : key.startsWith("node") ? 4 : 3);
  return [...new Set(held.map((each) => each.key))].sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}
