/** Quotas as a tree of cohorts, and amounts as the command line writes them. */
import type { Schema } from "../api/client";

type Quota = Schema["QuotaView"];
export type Amounts = Record<string, number | string>;
export interface Branch {
  quota: Quota;
  depth: number;
}

/** Cohorts with their members below them, by name; what belongs to nobody comes last. */
export function tree(quotas: readonly Quota[]): Branch[] {
  const known = new Set(quotas.map((each) => each.name));
  const below = new Map<string, Quota[]>();
  for (const each of quotas) {
    const parent = each.parent && known.has(each.parent) ? each.parent : "";
    below.set(parent, [...(below.get(parent) ?? []), each]);
  }
  const found: Branch[] = [];
  const seen = new Set<string>();
  const walk = (parent: string, depth: number): void => {
    const here = [...(below.get(parent) ?? [])].sort(
      (one, other) => Number(other.cohort) - Number(one.cohort) || (one.name < other.name ? -1 : 1),
    );
    for (const quota of here) {
      if (seen.has(quota.name)) continue;
      seen.add(quota.name);
      found.push({ quota, depth });
      if (quota.cohort) walk(quota.name, depth + 1);
    }
  };
  walk("", 0);
  return found;
}

/** `gpus=8 memory=64GiB` as the API wants it. What cannot be one is named in `wrong`; which
 * resources there are, and how much of each may be, the server says. */
export function parseAmounts(text: string): { amounts: Amounts; wrong: string | null } {
  const amounts: Amounts = {};
  for (const word of text.split(/[\s,]+/).filter(Boolean)) {
    const at = word.lastIndexOf("=");
    const [name, amount] = [word.slice(0, at), word.slice(at + 1)];
    if (at < 1 || !amount) return { amounts, wrong: word };
    amounts[name] = /^-?\d+(\.\d+)?$/.test(amount) && name !== "memory" ? Number(amount) : amount;
  }
  return { amounts, wrong: null };
}

export function writeAmounts(amounts: Readonly<Amounts> | undefined): string {
  return Object.entries(amounts ?? {})
    .map(([name, amount]) => `${name}=${amount}`)
    .join(" ");
}

export type Cap = Required<Schema["CapSpec"]>;
const KINDS = ["train", "notebook", "serve"];

/** One a line: `notebook:gpus=2`, `user=ann:gpus=4`, `notebook,user=ann:gpus=1`. */
export function parseCaps(text: string): { caps: Cap[]; wrong: string | null } {
  const caps: Cap[] = [];
  for (const row of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const at = row.indexOf(":");
    const { amounts, wrong } = parseAmounts(row.slice(at + 1));
    if (at < 1 || wrong || !Object.keys(amounts).length) return { caps, wrong: row };
    let kind: string | null = null;
    let user: string | null = null;
    for (const word of row.slice(0, at).split(",").map((each) => each.trim())) {
      if (word.startsWith("user=")) user = word.slice(5);
      else if (KINDS.includes(word)) kind = word;
      else return { caps, wrong: row };
    }
    caps.push({ kind: kind as Cap["kind"], user, limits: amounts });
  }
  return { caps, wrong: null };
} // prettier-ignore

export function writeCaps(caps: readonly Schema["CapSpec"][] | undefined): string {
  return (caps ?? [])
    .map((cap) => `${[cap.kind, cap.user && `user=${cap.user}`].filter(Boolean).join(",")}:${writeAmounts(cap.limits)}`)
    .join("\n");
}

const SIZES: Readonly<Record<string, number>> = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

/** An amount as a number, for a bar: `64GiB` in bytes. */
export function size(amount: number | string | undefined): number {
  if (typeof amount === "number") return amount;
  const [, number, unit] = /^([\d.]+)\s*([A-Za-z]*)$/.exec(amount ?? "") ?? [];
  return number ? Number(number) * (unit ? (SIZES[unit] ?? 1) : 1) : 0;
}
