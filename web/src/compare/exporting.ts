/** A comparison as text: for programs, for notes, for papers, for the terminal. */
import { line } from "../look/line";
import type { Cell, Row } from "./diff";
import type { Side } from "./sides";

/** As many stand beside each other; of more, each has a line. */
export const BESIDE = 6;

interface Grid {
  head: readonly string[];
  lines: readonly (readonly string[])[];
}

export function grid(sides: readonly Side[], rows: readonly Row[]): Grid {
  if (sides.length <= BESIDE) {
    return {
      head: ["", ...sides.map((side) => side.name)],
      lines: rows.map((row) => [row.name, ...row.cells.map(said)]),
    };
  }
  return {
    head: ["job", ...rows.map((row) => row.name)],
    lines: sides.map((side, at) => [side.name, ...rows.map((row) => row.cells[at]?.text ?? "")]),
  };
}

function said(cell: Cell): string {
  return cell.text + (cell.change ? ` (${cell.change})` : "");
}

/** A line for each job, with whole numbers. What a spreadsheet would take for a formula is quoted. */
export function csv(sides: readonly Side[], rows: readonly Row[]): string {
  const lines = [
    ["id", "name", ...rows.map((row) => row.name)],
    ...sides.map((side, at) => [side.id, side.name, ...rows.map((row) => row.cells[at]?.exact ?? "")]),
  ];
  return lines.map((line) => line.map(csvCell).join(",") + "\r\n").join("");
}

export function csvCell(text: string): string {
  const tame = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(tame) ? `"${tame.replaceAll('"', '""')}"` : tame;
}

export function markdown({ head, lines }: Grid): string {
  const row = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replace(/\\/g, "\\\\").replace(/\|/g, "\\|").replace(/\s*\n\s*/g, " ")).join(" | ")} |\n`;
  return row(head) + row(head.map((_, at) => (at ? "---:" : "---"))) + lines.map(row).join("");
}

const TEX: Readonly<Record<string, string>> = {
  "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", _: "\\_", "%": "\\%", "&": "\\&", "#": "\\#", $: "\\$",
  "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "±": "$\\pm$",
}; // prettier-ignore

/** A tabular with booktabs' rules. */
export function latex({ head, lines }: Grid): string {
  const row = (cells: readonly string[]): string =>
    `  ${cells.map((cell) => cell.replace(/[\\{}_%&#$^~±]/g, (char) => TEX[char] ?? char)).join(" & ")} \\\\\n`;
  return (
    `\\begin{tabular}{l${"r".repeat(head.length - 1)}}\n  \\toprule\n${row(head)}  \\midrule\n` +
    `${lines.map(row).join("")}  \\bottomrule\n\\end{tabular}\n`
  );
}

/** The same table in the terminal. The baseline comes first there. */
export function commandFor(sides: readonly Side[], base: number, everything: boolean, where = ""): string {
  const all = everything && "--all";
  if (where) return line("compare", "--where", where, "-n", String(Math.max(1, sides.length)), all);
  const first = sides[base];
  const ordered = first ? [first, ...sides.filter((side) => side !== first)] : sides;
  return line("compare", ...ordered.map((side) => side.name), all);
}
