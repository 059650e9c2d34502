/** Parameters and last values as columns of a table of cells: for parallel coordinates, scatter. */
import { kindOf, type Cell, type ParallelAxis, type ParallelRow } from "../charts/coordinates";
import { differingParams, namesOf, type Side } from "./sides";

/** `params.lr`, `metrics.loss`: what the filter language calls them. */
export function columnsOf(sides: readonly Side[]): string[] {
  return [
    ...differingParams(sides).map((name) => `params.${name}`),
    ...namesOf(sides.map((side) => side.metrics)).map((key) => `metrics.${key}`),
  ];
}

export function cellOf(side: Side, column: string): Cell {
  if (column.startsWith("metrics.")) return side.metrics[column.slice(8)]?.last ?? null;
  const text = side.params[column.slice(7)];
  if (text === undefined || text === "") return null;
  const number = Number(text);
  return Number.isNaN(number) ? text : number;
}

export function labelOf(column: string): string {
  return column.replace(/^(params|metrics)\./, "");
}

export function axisOf(sides: readonly Side[], column: string): ParallelAxis {
  const cells = sides.map((side) => cellOf(side, column));
  const few = new Set(cells).size <= 3 && cells.every((cell) => cell === null || Number.isInteger(cell));
  const kind = few && column.startsWith("params.") ? "category" : kindOf(cells); // seeds, flags
  return { key: column, label: labelOf(column), kind };
}

export function rowOf(side: Side, columns: readonly string[]): ParallelRow {
  return { id: side.id, label: side.name, values: Object.fromEntries(columns.map((each) => [each, cellOf(side, each)])) };
}

/** Columns in which at least two jobs have a number. */
export function numericColumns(sides: readonly Side[]): string[] {
  return columnsOf(sides).filter((column) => {
    const cells = sides.map((side) => cellOf(side, column)).filter((cell) => cell !== null);
    return cells.length > 1 && cells.every((cell) => typeof cell === "number");
  });
}

/** The metrics that most jobs told, the one that counts first. */
export function metricsInOrder(sides: readonly Side[]): string[] {
  const times = new Map<string, number>();
  for (const side of sides) for (const key of Object.keys(side.metrics)) times.set(key, (times.get(key) ?? 0) + 1);
  const goal = sides.find((side) => side.goal)?.goal?.replace(/^(min|max) /, "");
  return [...times]
    .sort(([a, n], [b, m]) => Number(b === goal) - Number(a === goal) || m - n || a.localeCompare(b))
    .map(([key]) => key);
}
