/** Jobs beside each other: what differs, whose metrics are better. Facts in, a table out. The same
 * table as `windlass compare` prints. */
import { directionOf, type Direction } from "./goals";
import { namesOf, type Side } from "./sides";

export type Kind = "fact" | "param" | "environment" | "code" | "metric";

export interface Cell {
  text: string;
  /** From the baseline. */
  change: string;
  /** Than the baseline; null: the same, or nobody can tell. */
  better: boolean | null;
  /** Of all jobs. */
  best: boolean;
  /** The whole number, for programs. */
  exact: string;
}

export interface Row {
  kind: Kind;
  name: string;
  cells: readonly Cell[];
  differs: boolean;
}

/** Facts and parameters that differ (all of them with `everything`), then metrics: the last value,
 * and the best where the way that is better is known. `base` is the place of the baseline. */
export function compare(sides: readonly Side[], base = 0, everything = false): Row[] {
  const rows: Row[] = [plain("fact", "state", sides.map((side) => side.state))];
  const parts: [Kind, (side: Side) => Readonly<Record<string, string>>][] = [
    ["fact", (side) => side.facts],
    ["param", (side) => side.params],
    ["environment", (side) => side.environment],
    ["code", (side) => side.code],
  ];
  for (const [kind, of] of parts) {
    const found = sides.map(of);
    const names = kind === "fact" ? [...new Set(found.flatMap((each) => Object.keys(each)))] : namesOf(found);
    for (const name of names) {
      const row = plain(kind, name, found.map((each) => each[name] ?? ""));
      if (everything || row.differs) rows.push(row);
    }
  }
  const goal = sides.find((side) => side.goal)?.goal;
  for (const key of namesOf(sides.map((side) => side.metrics))) {
    const told = sides.map((side) => side.metrics[key]);
    const way = directionOf(key, goal);
    const last = numbers(key, told.map((each) => each?.last ?? null), way, base);
    const best = way && numbers(`${key} (${way})`, told.map((each) => each?.[way] ?? null), way, base);
    const same = best && best.cells.every((cell, at) => cell.text === last.cells[at]?.text);
    for (const row of same ? [best] : best ? [last, best] : [last]) {
      if (everything || row.differs || sides.length < 2) rows.push(row);
    }
  }
  return rows;
}

function plain(kind: Kind, name: string, values: readonly string[]): Row {
  const cells = values.map((text) => ({ text, change: "", better: null, best: false, exact: text }));
  return { kind, name, cells, differs: new Set(values).size > 1 };
}

function numbers(name: string, values: readonly (number | null)[], way: Direction | null, base: number): Row {
  const good = values.filter((value): value is number => value !== null && !Number.isNaN(value));
  const best = way && new Set(good).size > 1 ? (way === "min" ? Math.min(...good) : Math.max(...good)) : null;
  const from = values[base] ?? null;
  const cells = values.map((value, at): Cell => {
    if (value === null) return { text: "", change: "", better: null, best: false, exact: "" };
    const [change, better] = at === base ? ["", null] : changeOf(from, value, way);
    return { text: shown(value), change, better, best: value === best, exact: String(value) };
  });
  return { kind: "metric", name, cells, differs: new Set(cells.map((cell) => cell.exact)).size > 1 };
}

/** From the baseline, in percent where that means something; and whether it is better. */
export function changeOf(from: number | null, value: number, way: Direction | null): [string, boolean | null] {
  if (from === null || !Number.isFinite(from) || !Number.isFinite(value)) return ["", null];
  const difference = value - from;
  if (!difference) return ["±0", null];
  const sign = difference > 0 ? "+" : "-";
  const percent = from ? Math.abs((difference / Math.abs(from)) * 100).toFixed(1) : "0.0";
  const said = percent === "0.0" ? tidy(Math.abs(difference).toPrecision(3)) : `${percent}%`;
  return [sign + said, way && difference < 0 === (way === "min")];
}

/** Five digits that count. */
export function shown(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return tidy(value.toPrecision(5));
}

function tidy(text: string): string {
  const [digits = "", power] = text.split("e");
  const short = digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
  return power === undefined ? short : `${short}e${power}`;
}
