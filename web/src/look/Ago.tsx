/** A time as "3 minutes ago", which goes on by itself; whole in a tooltip. */
import { useSyncExternalStore, type ReactNode } from "react";

import { useLanguage } from "../i18n";
import { ago, duration, moment } from "../i18n/format";

const heard = new Set<() => void>();
let now = Date.now();
let clock: ReturnType<typeof setInterval> | undefined;

function subscribe(change: () => void): () => void {
  heard.add(change);
  clock ??= setInterval(() => {
    now = Date.now();
    heard.forEach((each) => each());
  }, 1000);
  return () => {
    heard.delete(change);
    if (!heard.size) {
      clearInterval(clock);
      clock = undefined;
    }
  };
}

/** The time in milliseconds, to the second. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}

export function Ago({ at }: { at: string }): ReactNode {
  const { language } = useLanguage();
  return (
    <time dateTime={at} title={moment(at, language)}>
      {ago(at, language, useNow())}
    </time>
  );
}

/** How long it took, or has taken so far. */
export function Took({ from, to }: { from: string; to: string | null }): ReactNode {
  const { language } = useLanguage();
  const current = useNow();
  return <>{duration(((to ? Date.parse(to) : current) - Date.parse(from)) / 1000, language)}</>;
}
