import { describe, expect, it } from "vitest";

import { changeOf, compare, shown } from "./diff";
import { commandFor, csv, csvCell, grid, latex, markdown } from "./exporting";
import { directionOf } from "./goals";
import { groupBy, inOrder, meanBand } from "./grouping";
import { differingParams, numberOf, sideOf, type Side } from "./sides";

function side(id: string, more: Partial<Side> = {}): Side {
  return { id, name: id, state: "succeeded", goal: null, params: {}, metrics: {}, facts: {}, environment: {}, code: {}, ...more };
}
function told(last: number, min = last, max = last): Side["metrics"][string] {
  return { last, min, max };
}

describe("which way is better", () => {
  it("is said by the goal, then by the last word of the name that everybody knows", () => {
    expect(directionOf("val_acc")).toBe("max");
    expect(directionOf("evalLoss")).toBe("min");
    expect(directionOf("loss_accuracy")).toBe("max");
    expect(directionOf("speed")).toBeNull();
    expect(directionOf("speed", "max speed")).toBe("max");
    expect(directionOf("loss", "max speed")).toBe("min");
  });
});

describe("the difference of jobs", () => {
  const jobs = [
    side("a", { params: { lr: "0.1", seed: "1" }, facts: { command: "x --lr 0.1", queue: "default" }, metrics: { loss: told(0.5, 0.4, 1), speed: told(10) } }),
    side("b", { params: { lr: "0.2", seed: "1" }, facts: { command: "x --lr 0.2", queue: "default" }, metrics: { loss: told(0.25, 0.25, 1), speed: told(12) } }),
    side("c", { state: "failed", params: { lr: "0.2" }, facts: { command: "x --lr 0.2", queue: "default" } }),
  ]; // prettier-ignore

  it("shows only rows that differ, unless all are asked for", () => {
    expect(compare(jobs).map((row) => row.name)).toEqual(["state", "command", "lr", "seed", "loss", "loss (min)", "speed"]);
    expect(compare(jobs, 0, true).map((row) => row.name)).toContain("queue");
  });

  it("marks the best, and the change from the baseline with its side", () => {
    const row = compare(jobs).find((each) => each.name === "loss");
    expect(row?.cells.map((cell) => [cell.text, cell.change, cell.better, cell.best])).toEqual([
      ["0.5", "", null, false],
      ["0.25", "-50.0%", true, true],
      ["", "", null, false],
    ]);
    const other = compare(jobs, 1).find((each) => each.name === "loss");
    expect(other?.cells[0]?.change).toBe("+100.0%");
    expect(other?.cells[0]?.better).toBe(false);
  });

  it("says no side where nobody knows which way is better", () => {
    const row = compare(jobs).find((each) => each.name === "speed");
    expect(row?.cells[1]?.change).toBe("+20.0%");
    expect(row?.cells[1]?.better).toBeNull();
    expect(row?.cells.some((cell) => cell.best)).toBe(false);
  });

  it("writes small changes as numbers, and none of what is not finite", () => {
    expect(changeOf(1000, 1000.1, "min")).toEqual(["+0.1", false]);
    expect(changeOf(0, -2, "min")).toEqual(["-2", true]);
    expect(changeOf(NaN, 1, "min")).toEqual(["", null]);
    expect(changeOf(1, 1, "min")).toEqual(["±0", null]);
    expect(shown(0.168312345)).toBe("0.16831");
    expect(shown(NaN)).toBe("NaN");
  });

  it("reads NaN as the API spells it, and takes words for no number", () => {
    expect(numberOf("NaN")).toBeNaN();
    expect(numberOf("-Infinity")).toBe(-Infinity);
    expect(numberOf("adam")).toBeNull();
    expect(numberOf("")).toBeNull();
    const run = { id: "r", name: "r", user: "u", status: "FINISHED", job: null, params: { lr: { value: "1" } }, metrics: { loss: { last: "NaN", min: 1, max: null } } };
    expect(sideOf("r", null, run)).toMatchObject({ state: "finished", params: { lr: "1" }, metrics: { loss: { min: 1, max: null } } });
  });

  it("knows which parameters differ, also where one job has none", () => {
    expect(differingParams(jobs)).toEqual(["lr", "seed"]);
  });
});

describe("as text", () => {
  const jobs = [
    side("a_1", { params: { lr: "0.1" }, metrics: { acc: told(0.5) } }),
    side("b", { params: { lr: "a|b" }, metrics: { acc: told(0.75) } }),
  ];
  const rows = compare(jobs);

  it("is CSV with a line for each job and whole numbers", () => {
    const exact = [side("x", { metrics: { acc: told(1 / 3) } }), side("y", { metrics: { acc: told(0.5) } })];
    expect(csv(exact, compare(exact))).toBe(`id,name,state,acc (max)\r\nx,x,succeeded,${1 / 3}\r\ny,y,succeeded,0.5\r\n`);
  });

  it("quotes what would break a cell or be run as a formula, but no number", () => {
    expect(csvCell('a "b", c')).toBe('"a ""b"", c"');
    expect(csvCell("=HYPERLINK(1)")).toBe("'=HYPERLINK(1)");
    expect(csvCell("-0.5")).toBe("-0.5");
  });

  it("is Markdown with bars escaped", () => {
    expect(markdown(grid(jobs, rows))).toBe(
      "|  | a_1 | b |\n| --- | ---: | ---: |\n| state | succeeded | succeeded |\n| lr | 0.1 | a\\|b |\n| acc (max) | 0.5 | 0.75 (+50.0%) |\n",
    );
  });

  it("is LaTeX with its own signs escaped", () => {
    const text = latex(grid(jobs, rows));
    expect(text).toContain("\\begin{tabular}{lrr}");
    expect(text).toContain("a\\_1 & b");
    expect(text).toContain("(+50.0\\%)");
  });

  it("has a line for each job where there are many", () => {
    const many = Array.from({ length: 7 }, (_, n) => side(`j${n}`, { params: { n: String(n) } }));
    const made = grid(many, compare(many));
    expect(made.head).toEqual(["job", "state", "n"]);
    expect(made.lines).toHaveLength(7);
  });

  it("is a command with the baseline first and words in quotes", () => {
    expect(commandFor(jobs, 1, true)).toBe("windlass compare b a_1 --all");
    expect(commandFor(jobs, 0, false, "metrics.loss < 1")).toBe("windlass compare --where 'metrics.loss < 1' -n 2");
  });
});

describe("groups", () => {
  it("are in the order of numbers, words after them", () => {
    expect(["10", "adam", "2", ""].sort(inOrder)).toEqual(["2", "10", "", "adam"]);
    const found = groupBy([side("a", { params: { lr: "10" } }), side("b", { params: { lr: "2" } }), side("c", { params: { lr: "10" } })], "lr");
    expect([...found].map(([value, sides]) => [value, sides.map((each) => each.id)])).toEqual([["2", ["b"]], ["10", ["a", "c"]]]);
  });

  it("have the mean, and one deviation either way, between points told elsewhere", () => {
    const band = meanBand([
      { x: Float64Array.of(0, 2), y: Float64Array.of(0, 2) },
      { x: Float64Array.of(0, 1, 2), y: Float64Array.of(2, 3, 4) },
    ]);
    expect([...band.x]).toEqual([0, 1, 2]);
    expect([...band.y]).toEqual([1, 2, 3]);
    expect(band.high[1]).toBeCloseTo(2 + Math.SQRT2);
    expect(band.low[1]).toBeCloseTo(2 - Math.SQRT2);
  });

  it("count a line only where it was, and never a NaN", () => {
    const band = meanBand([
      { x: Float64Array.of(0, 1), y: Float64Array.of(1, NaN) },
      { x: Float64Array.of(0, 1, 5), y: Float64Array.of(3, 3, 3) },
      { x: new Float64Array(0), y: new Float64Array(0) },
    ]);
    expect([...band.y]).toEqual([2, 3, 3]);
    expect(band.low[2]).toBe(3);
  });

  it("keep few places of very many", () => {
    const x = Float64Array.from({ length: 10_000 }, (_, n) => n);
    expect(meanBand([{ x, y: x }]).x.length).toBe(400);
  });
});
