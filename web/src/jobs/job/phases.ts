/** Phases of a job's life out of its events: how long it was in each state, attempt by attempt. */
import type { Phase } from "../../charts/Timeline";
import type { Attempt, Event } from "./asking";

const TONES: Readonly<Record<string, string>> = {
  held: "orange", queued: "yellow", starting: "cyan", running: "teal", stopping: "orange",
  succeeded: "green", failed: "red", cancelled: "gray", preempted: "orange", lost: "red", oom: "red", hung: "red", refused: "red",
}; // prettier-ignore
const OVER = new Set(["succeeded", "failed", "cancelled"]);

export interface PhaseWords {
  job: string;
  attempt: (n: number) => string;
  state: (state: string) => string;
}

export function phasesOf(events: readonly Event[], attempts: readonly Attempt[], words: PhaseWords): Phase[] {
  const moves = events.filter((each) => each.state && (each.kind === "submitted" || each.kind === "moved"));
  const found: Phase[] = [];
  moves.forEach((move, at) => {
    const state = move.state as string;
    if (OVER.has(state)) return;
    const next = moves[at + 1];
    found.push({
      lane: words.job, label: words.state(state), from: move.at, to: next?.at ?? null, tone: TONES[state] ?? "gray",
      note: next?.reason || undefined,
    }); // prettier-ignore
  });
  for (const each of attempts.length > 1 ? attempts : []) {
    const outcome = each.outcome ?? "running";
    found.push({
      lane: words.attempt(each.number), label: words.state(outcome), from: each.created, to: each.ended ?? null,
      tone: TONES[outcome] ?? "gray", note: each.reason || undefined,
    }); // prettier-ignore
  }
  return found;
}
