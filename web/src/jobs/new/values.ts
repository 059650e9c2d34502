/** What people type into a field, as a value of the job file, and back. Pure. */
import { quote } from "../../look/line";
import { at, type Path, type Spec } from "./document";

/** As `windlass run --param` takes it: a truth, a number, or just text. */
export function valueOf(text: string): boolean | number | string {
  if (/^(true|false)$/i.test(text)) return text.toLowerCase() === "true";
  if (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) && Number.isFinite(Number(text))) return Number(text);
  return text;
}

/** A command as one line, however the file has it. */
export function commandOf(run: unknown): string {
  if (Array.isArray(run)) return run.map((word) => quote(String(word))).join(" ");
  return run === undefined || run === null ? "" : String(run);
}

export function textAt(spec: Spec | null, path: Path): string {
  const found = at(spec, path);
  if (found === undefined || found === null) return "";
  return Array.isArray(found) ? found.join(", ") : String(found);
}

/** A list as people write it: with commas. */
export function listOf(text: string): string[] | undefined {
  const found = text.split(",").map((each) => each.trim()).filter(Boolean);
  return found.length ? found : undefined;
}

/** A mapping as lines: `lr=0.1`. */
export function linesAt(spec: Spec | null, path: Path): string {
  const found = at(spec, path);
  if (typeof found !== "object" || found === null) return "";
  return Object.entries(found).map(([key, value]) => `${key}=${value === null ? "" : String(value)}`).join("\n");
}

/** The lines back. `plain` keeps values as text, as variables of the environment are. */
export function mappingOf(lines: string, plain: boolean): Record<string, boolean | number | string> | undefined {
  const found: Record<string, boolean | number | string> = {};
  for (const line of lines.split("\n")) {
    const [, key, value] = /^\s*([^=\s]+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (key) found[key] = plain ? (value ?? "") : valueOf(value ?? "");
  }
  return Object.keys(found).length ? found : undefined;
}

/** The parts of the gang as the form shows them: at least the workers. `workers: 4` is short for
 * `roles: {worker: {count: 4}}`. */
export function rolesOf(spec: Spec | null): { name: string; role: Spec }[] {
  const roles = at(spec, ["roles"]);
  const found = typeof roles === "object" && roles !== null ? Object.entries(roles as Record<string, Spec | null>) : [];
  const workers = at(spec, ["workers"]);
  const listed = found.map(([name, role]) => ({ name, role: { ...(role ?? {}) } }));
  if (typeof workers === "number") {
    const worker = listed.find((each) => each.name === "worker");
    if (worker) worker.role.count ??= workers;
    else listed.unshift({ name: "worker", role: { count: workers } });
  }
  return listed.length ? listed : [{ name: "worker", role: {} }];
}

/** Where the server found something wrong, as a path of the job file: `spec.roles.worker.gpus`. */
export function fieldOf(field: string): string {
  return field.replace(/^spec\.?/, "");
}

/** Which error stands at which field. `open` are the fields that are shown; what is at none of
 * them is told apart. */
export function placed(
  wrong: readonly { field: string; found: string; allowed: string }[],
  message: string,
  open: readonly string[],
): { at: Record<string, string>; rest: string[] } {
  const found: Record<string, string> = {};
  const rest: string[] = [];
  const listed = wrong.length ? wrong.map((each) => ({ field: fieldOf(each.field), said: `${each.allowed} (${each.found})` })) : fromMessage(message);
  for (const { field, said } of listed) {
    const owner = open.find((each) => each === field) ?? open.find((each) => field.startsWith(`${each}.`));
    if (owner) found[owner] ??= said;
    else rest.push(field ? `${field}: ${said}` : said);
  }
  return { at: found, rest };
}

function fromMessage(message: string): { field: string; said: string }[] {
  const [, field, said] = /^([a-z_.]+): (.*)$/s.exec(message) ?? [];
  return field && said ? [{ field: fieldOf(field), said }] : [{ field: "", said: message }];
}
