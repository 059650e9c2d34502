/** A state as a dot and a word: never by colour alone. */
import type { ReactNode } from "react";

import { useWords } from "../i18n";
import { words } from "./words";

const TONES: Record<string, string> = {
  running: "teal", alive: "teal", ready: "teal", succeeded: "green", done: "green",
  starting: "cyan", launching: "cyan", queued: "yellow", waiting: "yellow", held: "orange", paused: "orange",
  stopping: "orange", ending: "orange", draining: "orange", pruned: "gray", cancelled: "gray", over: "gray",
  failed: "red", lost: "red", unreachable: "red", finished: "green", stopped: "gray", pausing: "orange",
}; // prettier-ignore
const MOVING = new Set(["running", "starting", "stopping", "launching", "ending"]);

export function State({ state }: { state: string }): ReactNode {
  const w = useWords(words);
  const tone = TONES[state] ?? "gray";
  const said = (w.states as Record<string, string>)[state] ?? state;
  return (
    <span className="state">
      <span
        className={MOVING.has(state) ? "dot moves" : "dot"}
        style={{ background: `var(--mantine-color-${tone}-6)` }}
      />
      {said}
    </span>
  );
}
