/** Bars that stand on each other. Pure. */
export interface BarPart {
  /** Of which kind this piece is: one of `kinds`. */
  kind: string;
  value: number;
}
export interface Bar {
  label: string;
  /** Over the colour of the kind. */
  colour?: string;
  /** One, or several that stand on each other. */
  parts: readonly BarPart[];
  /** Lights up with others of the same id. */
  id?: string;
}
export interface BarKind {
  kind: string;
  label: string;
  colour: string;
}
export function totalOf(bar: Bar): number {
  return bar.parts.reduce((sum, each) => sum + (Number.isFinite(each.value) ? each.value : 0), 0);
}

/** Pieces of a bar from its foot: above zero upwards, below zero downwards. */
export function stacked(bar: Bar, kinds: readonly BarKind[]): { kind: BarKind; from: number; to: number }[] {
  let up = 0;
  let down = 0;
  return kinds.flatMap((kind) => {
    const size = bar.parts.reduce((sum, part) => sum + (part.kind === kind.kind ? part.value : 0), 0);
    if (!Number.isFinite(size) || size === 0) return [];
    const from = size > 0 ? up : down;
    if (size > 0) up += size;
    else down += size;
    return [{ kind, from, to: from + size }];
  });
}

/** The lowest and the highest that any reaches. */
export function ends(bars: readonly Bar[], kinds: readonly BarKind[]): [number, number] {
  const all = bars.flatMap((bar) => stacked(bar, kinds).map((piece) => piece.to));
  return [Math.min(0, ...all), Math.max(0, ...all) || (all.some((each) => each < 0) ? 0 : 1)];
}
