/** Parallel coordinates without the picture: places on axes, and who is within the limits. Pure. */
import { linear, scaleOf, type Scale } from "./scale";

export type Cell = number | string | boolean | null | undefined;

export interface ParallelAxis {
  key: string;
  label: string;
  kind: "linear" | "log" | "category";
}
export interface ParallelRow {
  id: string;
  label: string;
  values: Readonly<Record<string, Cell>>;
}
/** Both ends counted, null: open; or the categories that may be. */
export type Limit = { low: number | null; high: number | null } | { of: readonly string[] };
export type Limits = Readonly<Record<string, Limit>>;

export interface Placed {
  axis: ParallelAxis;
  /** Of numbers; of categories their places, in order. */
  scale: Scale;
  names: readonly string[];
  /** From 0 (bottom) to 1; NaN without a value. */
  at(cell: Cell): number;
}

export function placed(axis: ParallelAxis, rows: readonly ParallelRow[]): Placed {
  const cells = rows.map((row) => row.values[axis.key]);
  if (axis.kind === "category") {
    const names = [...new Set(cells.filter((each) => each !== null && each !== undefined).map(String))].sort(inOrder);
    const places = new Map(names.map((name, at) => [name, names.length > 1 ? at / (names.length - 1) : 0.5]));
    return { axis, names, scale: linear(0, 1), at: (cell) => places.get(String(cell)) ?? Number.NaN };
  }
  const scale = scaleOf(cells.map(numberOf), axis.kind);
  return { axis, names: [], scale, at: (cell) => scale.at(numberOf(cell)) };
}

function inOrder(one: string, other: string): number {
  const [a, b] = [Number(one), Number(other)];
  return Number.isNaN(a) || Number.isNaN(b) ? (one < other ? -1 : one > other ? 1 : 0) : a - b;
}

export function numberOf(cell: Cell): number {
  if (typeof cell === "number") return cell;
  if (typeof cell === "string" && cell.trim() !== "") return Number(cell);
  return Number.NaN;
}

/** What an axis should be, by its values: numbers that span more than two powers of ten are drawn
 * by their logarithm; few different words or switches are categories. */
export function kindOf(cells: readonly Cell[]): ParallelAxis["kind"] {
  const known = cells.filter((each) => each !== null && each !== undefined);
  const numbers = known.map(numberOf);
  if (!known.length || numbers.some(Number.isNaN)) return "category";
  let low = Infinity;
  let high = -Infinity;
  for (const each of numbers) {
    if (!Number.isFinite(each)) continue;
    low = Math.min(low, each);
    high = Math.max(high, each);
  }
  return low > 0 && high / low > 100 ? "log" : "linear";
}

export function within(cell: Cell, limit: Limit): boolean {
  if ("of" in limit) return cell !== null && cell !== undefined && limit.of.includes(String(cell));
  const value = numberOf(cell);
  return value >= (limit.low ?? -Infinity) && value <= (limit.high ?? Infinity);
}

/** Ids of the rows that every limit lets through. */
export function chosen(rows: readonly ParallelRow[], limits: Limits): Set<string> {
  const all = Object.entries(limits);
  return new Set(rows.filter((row) => all.every(([key, limit]) => within(row.values[key], limit))).map((row) => row.id));
}

/** A brush from one place to another on an axis, as a limit; null where it holds nothing back. */
export function brushed(axis: Placed, from: number, to: number): Limit | null {
  const [low, high] = from < to ? [from, to] : [to, from];
  if (high - low < 0.01) return null;
  if (axis.axis.kind === "category") {
    const of = axis.names.filter((name) => axis.at(name) >= low - 0.02 && axis.at(name) <= high + 0.02);
    return of.length ? { of } : null;
  }
  return {
    low: low <= 0 ? null : axis.scale.value(low),
    high: high >= 1 ? null : axis.scale.value(high),
  };
}

/** Where a limit's brush is drawn: bottom and top, from 0 to 1. */
export function brushOf(axis: Placed, limit: Limit): [number, number] | null {
  if ("of" in limit) {
    const places = limit.of.map((name) => axis.at(name)).filter(Number.isFinite);
    return places.length ? [Math.min(...places) - 0.03, Math.max(...places) + 0.03] : null;
  }
  const end = (value: number | null, open: number): number => {
    if (value === null) return open;
    const at = axis.scale.at(value);
    return Number.isNaN(at) ? 0 : Math.min(1, Math.max(0, at));
  };
  return [end(limit.low, 0), end(limit.high, 1)];
}
