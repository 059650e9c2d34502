/** A study written down: as a file, as a command, as Python. */
import type { Schema } from "../api/client";
import { line } from "../look/line";

type Dimension = Schema["Dimension"];
type Json = Record<string, unknown>;

/** A number as short as it is exact enough to read. */
function short(value: number): string {
  return String(Number(value.toPrecision(6)));
}

/** A range as a person would write it: log:1e-4..1e-1, int:1..6, sgd,adam. */
export function rangeOf(dimension: Dimension): string {
  if (dimension.kind === "choice") return (dimension.choices ?? []).map(String).join(",");
  const kind = dimension.log ? (dimension.kind === "int" ? "logint" : "log") : dimension.kind;
  const step = dimension.step ? `/${short(dimension.step)}` : "";
  return `${kind}:${short(dimension.low ?? 0)}..${short(dimension.high ?? 0)}${step}`;
}

/** A dimension for a file: one word where that says all. */
function written(dimension: Dimension): unknown {
  const base = dimension.kind === "choice" ? (dimension.choices ?? []) : rangeOf(dimension);
  const when = dimension.when as unknown;
  const bound = Array.isArray(when) ? when.length : Object.keys((when ?? {}) as Json).length;
  if (!bound) return base;
  return dimension.kind === "choice" ? { choices: base, when } : { range: base, when };
}

/** What differs from `usual`, one level deep; nothing empty. */
export function unusual(found: Json, usual: Json): Json {
  const kept: Json = {};
  for (const [key, value] of Object.entries(found)) {
    if (isBare(value) || same(value, usual[key])) continue;
    const known = usual[key];
    if (isTable(value) && isTable(known)) {
      const inner = Object.fromEntries(Object.entries(value).filter(([name, each]) => !isBare(each) && !same(each, known[name])));
      if (Object.keys(inner).length) kept[key] = inner;
    } else kept[key] = value;
  }
  return kept;
}

function isTable(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isBare(value: unknown): boolean {
  if (Array.isArray(value)) return !value.length;
  return value === null || value === undefined || (isTable(value) && !Object.keys(value).length);
}

function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

const USUAL_PRUNER: Json = {
  kind: "none", min_step: 1, factor: 3, max_step: null, pause: true, startup: 5, interval: null, quantile: 0.25, resample: 0.25,
}; // prettier-ignore
const USUAL_SAMPLER: Json = { points: null, startup: 10 };
const USUAL: Json = { trials: null, parallel: null, seed: 0, max_failures: 10, give: "flags", share_weights: false };

/** A study's spec as a file that makes it again, without what goes without saying. */
export function fileOf(spec: Schema["StudySpec"], usualJob: Json = {}): Json {
  const { kind: _kind, project: _project, job, space, objectives, sampler, pruner, warm_start: warm, ...rest } = spec;
  const plain = objectives.every((each) => (each.take ?? "last") === "last");
  const goals = (goal: string): string[] => objectives.filter((each) => each.goal === goal).map((each) => each.metric);
  const [most, least] = [goals("maximize"), goals("minimize")];
  const chance = unusual((sampler ?? {}) as Json, USUAL_SAMPLER);
  const ends = unusual((pruner ?? {}) as Json, USUAL_PRUNER);
  return {
    kind: "study",
    ...(spec.name ? { name: spec.name } : {}),
    job: unusual(job as Json, usualJob),
    space: Object.fromEntries(Object.entries(space).map(([name, each]) => [name, written(each)])),
    ...(plain
      ? { ...(most.length ? { maximize: one(most) } : {}), ...(least.length ? { minimize: one(least) } : {}) }
      : { objectives }),
    ...unusual({ ...rest, name: null } as Json, USUAL),
    ...(Object.keys(chance).length ? { sampler: oneWord(chance) } : {}),
    ...(Object.keys(ends).length ? { pruner: oneWord(ends) } : {}),
    ...(warm?.length ? { from: one([...warm]) } : {}),
  };
}

function one(words: string[]): string | string[] {
  return words.length === 1 ? (words[0] as string) : words;
}

function oneWord(table: Json): unknown {
  const keys = Object.keys(table);
  return keys.length === 1 && keys[0] === "kind" ? table.kind : table;
}

/** `windlass study create …`, as far as flags can say it; conditions need a file. */
export function createLine(file: Json): string {
  const space = (file.space ?? {}) as Json;
  const pruner = (isTable(file.pruner) ? file.pruner : { kind: file.pruner }) as Json;
  const sampler = (isTable(file.sampler) ? file.sampler : { kind: file.sampler }) as Json;
  const run = isTable(file.job) ? file.job.run : undefined;
  const command = Array.isArray(run) ? run.map(String) : typeof run === "string" ? run.split(/\s+/).filter(Boolean) : [];
  const flag = (name: string, value: unknown): string[] =>
    value === null || value === undefined || value === "" ? [] : [`--${name}`, String(value)];
  const each = (name: string, value: unknown): string[] => [value].flat().flatMap((item) => flag(name, item));
  return line(
    "study", "create",
    flag("name", file.name),
    Object.entries(space).flatMap(([name, value]) => ["--param", `${name}=${wordOf(value)}`]),
    each("maximize", file.maximize), each("minimize", file.minimize),
    flag("trials", file.trials), flag("parallel", file.parallel),
    flag("sampler", sampler.kind), flag("pruner", pruner.kind),
    flag("min-step", pruner.min_step), flag("max-step", pruner.max_step), flag("factor", pruner.factor),
    flag("interval", pruner.interval), flag("max-time", file.max_time), flag("seed", file.seed),
    command.length ? ["--", ...command] : [],
  ); // prettier-ignore
}

function wordOf(value: unknown): string {
  if (Array.isArray(value)) return value.map(String).join(",");
  if (isTable(value)) return wordOf(value.range ?? value.choices ?? "");
  return String(value);
}

/** JSON with Python's words for true, false and null. */
export function python(value: unknown, indent = ""): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map((each) => python(each, indent)).join(", ")}]`;
  if (isTable(value)) {
    const deeper = `${indent}    `;
    const rows = Object.entries(value).map(([key, each]) => `${deeper}${JSON.stringify(key)}: ${python(each, deeper)},\n`);
    return rows.length ? `{\n${rows.join("")}${indent}}` : "{}";
  }
  return JSON.stringify(value);
}

export function createPython(file: Json): string {
  return `import windlass\n\nclient = windlass.Client()\nstudy = client.studies.create(${python(file)})\nclient.studies.wait(study.name)\n`;
}
