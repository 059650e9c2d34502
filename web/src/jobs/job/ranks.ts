/** The ranks a spec asks for, by the names their logs have: role, member, rank on it. */
import type { Spec } from "./asking";

export interface Rank {
  number: number;
  name: string;
  role: string;
  member: number;
  local: number;
}

const MOST = 4096;
/** As `windlass.contracts.base` numbers them. */
const ORDER = ["chief", "master", "launcher", "scheduler", "worker", "ps", "server", "evaluator"];

function placeOf(role: string): number {
  return ORDER.includes(role) ? ORDER.indexOf(role) : ORDER.length;
}

export function ranksOf(spec: Pick<Spec, "roles">): Rank[] {
  const found: Rank[] = [];
  const roles = Object.entries(spec.roles).sort(([a], [b]) => placeOf(a) - placeOf(b) || (a < b ? -1 : 1));
  for (const [role, asked] of roles) {
    for (let member = 0; member < asked.count; member++) {
      for (let local = 0; local < (asked.nproc || asked.gpus || 1); local++) {
        if (found.length >= MOST) return found;
        found.push({ number: found.length, name: `${role}-${member}-${local}`, role, member, local });
      }
    }
  }
  return found;
}
