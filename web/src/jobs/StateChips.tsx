/** The states with how many jobs each has; several can be on at once. */
import type { ReactNode } from "react";

import { useLanguage, useWords } from "../i18n";
import { count } from "../i18n/format";
import { words as lookWords } from "../look/words";
import css from "./jobs.module.css";
import { words } from "./words";

const STATES = ["running", "starting", "stopping", "queued", "held", "failed", "succeeded", "cancelled"] as const;

export function StateChips({ counts, chosen, change, mine, changeMine }: {
  counts: Readonly<Record<string, number>> | null;
  chosen: string;
  change: (states: string | undefined) => void;
  mine: boolean;
  changeMine: (mine: boolean) => void;
}): ReactNode {
  const w = useWords(words);
  const look = useWords(lookWords);
  const { language } = useLanguage();
  const on = chosen.split(",").filter(Boolean);
  const toggle = (state: string): void =>
    change((on.includes(state) ? on.filter((each) => each !== state) : [...on, state]).join(","));
  const all = counts ? Object.values(counts).reduce((sum, each) => sum + each, 0) : null;
  // a state that nobody is in is not worth a button, unless it is on
  const worth = STATES.filter((state) => on.includes(state) || !counts || (counts[state] ?? 0) > 0);
  return (
    <div className={css.states} role="group" aria-label={w.states}>
      <button type="button" className={css.state} aria-pressed={!on.length} onClick={() => change(undefined)}>
        {w.all} {all !== null && <span className="quiet">{count(all, language)}</span>}
      </button>
      {worth.map((state) => (
        <button key={state} type="button" className={css.state} aria-pressed={on.includes(state)} data-state={state} onClick={() => toggle(state)}>
          {look.states[state]} {counts && <span className="quiet">{count(counts[state] ?? 0, language)}</span>}
        </button>
      ))}
      <button type="button" className={css.state} aria-pressed={mine} onClick={() => changeMine(!mine)}>
        {w.mine}
      </button>
    </div>
  );
}
