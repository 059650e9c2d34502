/** A search over the whole log: the server finds, the page holds where. New lines are looked at here
 * as they come. */
import { useEffect, useState } from "react";

import { firstLines, type Wanted } from "./read";
import { keyOf, type LogLine } from "./window";

const MOST = 10_000;

export interface Found {
  lines: readonly LogLine[];
  keys: ReadonlySet<string>;
  /** There are more than are held. */
  more: boolean;
  busy: boolean;
  error: unknown;
}

const NOTHING: Found = { lines: [], keys: new Set(), more: false, busy: false, error: null };

export function useSearch(ref: string, wanted: Wanted, text: string, caseful: boolean): [Found, (lines: readonly LogLine[]) => void] {
  const [found, setFound] = useState<Found>(NOTHING);
  useEffect(() => {
    if (!text) {
      setFound(NOTHING);
      return undefined;
    }
    const abort = new AbortController();
    setFound({ ...NOTHING, busy: true });
    const grep = caseful ? text : `(?i)${text}`;
    firstLines(ref, { attempt: wanted.attempt, rank: wanted.rank, stream: wanted.stream, grep }, MOST, abort.signal).then(
      ({ lines, more }) => {
        if (!abort.signal.aborted) setFound({ lines, keys: new Set(lines.map(keyOf)), more, busy: false, error: null });
      },
      (error: unknown) => {
        if (!abort.signal.aborted) setFound({ ...NOTHING, error });
      },
    );
    return () => abort.abort();
  }, [ref, wanted.attempt, wanted.rank, wanted.stream, text, caseful]);

  const more = (lines: readonly LogLine[]): void =>
    setFound((before) => {
      const fresh = lines.filter((line) => !before.keys.has(keyOf(line)));
      if (!fresh.length || before.more || before.busy) return before;
      const all = [...before.lines, ...fresh];
      return { ...before, lines: all, keys: new Set(all.map(keyOf)) };
    });
  return [found, more];
}
