/** What a failed job can be told apart by, out of the server's sentence, evidence and events. */
import type { Attempt, Detail, Event, Why } from "./asking";

export interface Failure {
  outcome: string;
  sentence: string;
  /** Rank that failed first, and on which node, where it is known. */
  rank: number | null;
  member: string | null;
  node: string | null;
  how: string | null;
  at: string | null;
  traceback: string | null;
  /** The last line of ours in it: file and line. */
  frame: string | null;
  others: readonly string[];
  /** Bytes of memory that would be tried next, where it ran out of them. */
  memory: number | null;
}

const FIRST = /^first to fail: rank (\d+) \(([^)]*)\) on node (\S+), (.*)$/;

export function failureOf(job: Pick<Detail, "attempts" | "outcome" | "spec">, why: Why): Failure {
  const last: Attempt | undefined = job.attempts.at(-1);
  const found: Failure = {
    outcome: job.outcome ?? last?.outcome ?? "failed", sentence: why.sentence, rank: null, member: null, node: null,
    how: null, at: null, traceback: null, frame: null, others: [], memory: null,
  }; // prettier-ignore
  const others: string[] = [];
  for (const each of why.evidence) {
    const first = FIRST.exec(each);
    if (first) [found.rank, found.member, found.node, found.how] = [Number(first[1]), first[2]!, first[3]!, first[4]!];
    else if (/^at \d{4}-/.test(each)) found.at = each.slice(3);
    else if (/^Traceback|\n\s+File "/.test(each)) found.traceback = each;
    else others.push(each);
  }
  found.others = others;
  found.frame = found.traceback ? frameOf(found.traceback) : null;
  if (found.outcome === "oom") found.memory = nextMemory(job.spec.roles);
  return found;
}

/** `train.py:14 in <module>`: the innermost frame that is not in a library, else the innermost. */
export function frameOf(traceback: string): string | null {
  const frames = [...traceback.matchAll(/File "([^"]{1,500})", line (\d+), in ([^\n]{1,200})/g)];
  const own = frames.filter(([, file]) => !/site-packages|dist-packages|\/lib\/python|<frozen/.test(file ?? ""));
  const frame = own.at(-1) ?? frames.at(-1);
  return frame ? `${(frame[1] ?? "").split("/").at(-1)}:${frame[2]} in ${frame[3]}` : null;
}

const GIB = 1024 ** 3;

/** Half as much again, in whole GiB. */
export function nextMemory(roles: Detail["spec"]["roles"]): number | null {
  const most = Math.max(0, ...Object.values(roles).map((role) => sizeOf(role.memory)));
  return most ? Math.max(1, Math.ceil((most * 1.5) / GIB)) * GIB : null;
}

/** Bytes of `8GiB`, `512MB` or a number. */
export function sizeOf(text: string | number): number {
  if (typeof text === "number") return text;
  const [, number, unit] = /^\s*([\d.]+)\s*([KMGTP]?i?)B?\s*$/i.exec(text) ?? [];
  if (!number) return 0;
  const power = " KMGTP".indexOf((unit ?? "")[0]?.toUpperCase() ?? " ");
  return Number(number) * ((unit ?? "").toLowerCase().endsWith("i") ? 1024 : 1000) ** Math.max(0, power);
}

/** Stacks that workers took because ranks hung, newest event first. */
export function stacksOf(events: readonly Event[]): { rank: string; text: string }[] {
  const hung = events.filter((each) => each.kind === "hung").at(-1);
  const stacks = (hung?.data as { stacks?: { rank?: unknown; text?: unknown }[] } | undefined)?.stacks;
  return Array.isArray(stacks) ? stacks.map((each) => ({ rank: String(each.rank ?? ""), text: String(each.text ?? "") })) : [];
}
