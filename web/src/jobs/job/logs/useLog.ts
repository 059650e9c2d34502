/** A job's log: what is held of it, how to get at the rest, and what is written while one looks. */
import { useCallback, useEffect, useRef, useState } from "react";

import { follow } from "../../../api/live";
import { around, firstLines, logLines, type Wanted } from "./read";
import { type Chunk, type LogLine, LogWindow } from "./window";

const PAGE = 2000;
/** Told again to be sure that nothing is missed; what is held already is left out. */
const AGAIN_MS = 2000;

export interface Target {
  rank: string;
  stream: string;
  offset: number;
  at: number;
}

export interface LogFilter {
  rank: string;
  stream: string;
  attempt: number;
}

export interface Log {
  window: LogWindow;
  reading: boolean;
  error: unknown;
  /** Each gives how many lines came before those that were there. */
  older: () => Promise<number>;
  newer: () => Promise<void>;
  toStart: () => Promise<void>;
  toEnd: () => Promise<void>;
  goTo: (target: Target) => Promise<void>;
}

export function useLog(ref: string, live: boolean, filter: LogFilter, first: Target | null): Log {
  const [window] = useState(() => new LogWindow());
  const [reading, setReading] = useState(0);
  const [error, setError] = useState<unknown>(null);
  const [follows, setFollows] = useState(0);
  const abort = useRef(new AbortController());
  const start = useRef(first);
  const wanted: Wanted = { attempt: filter.attempt, rank: filter.rank || undefined, stream: filter.stream || undefined };
  const now = useRef(wanted);
  now.current = wanted;
  const tail = useRef(PAGE);

  const run = useCallback(async <T,>(work: (signal: AbortSignal) => Promise<T>, otherwise: T): Promise<T> => {
    const { signal } = abort.current;
    setReading((count) => count + 1);
    try {
      return await work(signal);
    } catch (problem) {
      if (!signal.aborted) setError(problem);
      return otherwise;
    } finally {
      setReading((count) => count - 1);
    }
  }, []);

  const toEnd = useCallback(
    () =>
      run(async (signal) => {
        tail.current = PAGE;
        const { lines } = await firstLines(ref, { ...now.current, tail: PAGE }, PAGE, signal);
        if (signal.aborted) return;
        window.set(lines, lines.length < PAGE, true);
        setError(null);
        setFollows((count) => count + 1);
      }, undefined),
    [ref, run, window],
  );

  const goTo = useCallback(
    (target: Target) =>
      run(async (signal) => {
        const found = await around(ref, now.current, target, PAGE / 2, PAGE, signal);
        if (signal.aborted) return;
        window.set(found.lines, found.fromStart, !found.more);
        if (!found.more) setFollows((count) => count + 1);
      }, undefined),
    [ref, run, window],
  );

  const toStart = useCallback(
    () =>
      run(async (signal) => {
        const { lines, more } = await firstLines(ref, now.current, PAGE, signal);
        if (signal.aborted) return;
        window.set(lines, true, !more);
        if (!more) setFollows((count) => count + 1);
      }, undefined),
    [ref, run, window],
  );

  const older = useCallback(
    () =>
      run(async (signal) => {
        const oldest = window.lines[0];
        if (!oldest || window.fromStart) return 0;
        if (window.toEnd) {
          tail.current = Math.min(1_000_000, Math.max(tail.current, window.lines.length) * 2);
          const { lines } = await firstLines(ref, { ...now.current, tail: tail.current }, tail.current, signal);
          return signal.aborted ? 0 : window.older(lines, lines.length < tail.current);
        }
        for (const back of [60_000, 3_600_000, Infinity]) {
          const since = Math.max(0, oldest.at - back);
          const kept = await before(ref, { ...now.current, since }, oldest, signal);
          if (signal.aborted) return 0;
          const came = window.older(kept.lines, since === 0 && !kept.dropped);
          if (came || since === 0) return came;
        }
        return 0;
      }, 0),
    [ref, run, window],
  );

  const newer = useCallback(
    () =>
      run(async (signal) => {
        const last = window.lines.at(-1);
        if (!last || window.toEnd) return;
        const held = window.offsets();
        const fresh: LogLine[] = [];
        let more = false;
        for await (const line of logLines(ref, { ...now.current, since: last.at }, signal)) {
          if (line.offset <= (held.get(`${line.attempt ?? 0}.${line.rank}.${line.stream}`) ?? -1)) continue;
          if (fresh.length >= PAGE) {
            more = true;
            break;
          }
          fresh.push(line);
        }
        if (signal.aborted) return;
        window.toEnd = !more;
        window.add(fresh);
        if (!more) setFollows((count) => count + 1);
      }, undefined),
    [ref, run, window],
  );

  useEffect(() => {
    abort.current = new AbortController();
    window.set([], false, false);
    const target = start.current;
    start.current = null;
    void (target ? goTo(target) : toEnd());
    return () => abort.current.abort();
  }, [window, goTo, toEnd, filter.rank, filter.stream, filter.attempt]);

  useEffect(() => {
    if (!live || !follows) return undefined;
    const last = window.lines.reduce((latest, line) => Math.max(latest, line.at), 0);
    const since = last ? `?since=${encodeURIComponent(new Date(last - AGAIN_MS).toISOString())}` : "";
    return follow(`jobs/${encodeURIComponent(ref)}/stream${since}`, (message) => {
      if (message.kind !== "log") return;
      const chunk = message.data as Chunk;
      if (wants(now.current, chunk)) window.hear(chunk);
    });
  }, [ref, live, follows, window, filter.rank, filter.stream, filter.attempt]);

  return { window, reading: reading > 0, error, older, newer, toStart, toEnd, goTo };
}

function wants(wanted: Wanted, chunk: Chunk): boolean {
  if (wanted.stream && wanted.stream !== chunk.stream) return false;
  return !wanted.rank || wanted.rank === chunk.rank || chunk.rank.replace(/-[^-]*$/, "") === wanted.rank;
}

/** The last lines before one of them. */
async function before(
  ref: string,
  wanted: Wanted,
  limit: LogLine,
  signal: AbortSignal,
): Promise<{ lines: LogLine[]; dropped: boolean }> {
  let lines: LogLine[] = [];
  let dropped = false;
  for await (const line of logLines(ref, wanted, signal)) {
    if (line.at > limit.at) break;
    if (line.rank === limit.rank && line.stream === limit.stream && line.offset >= limit.offset) break;
    lines.push(line);
    if (lines.length > 2 * PAGE) {
      lines = lines.slice(PAGE);
      dropped = true;
    }
  }
  return { lines, dropped };
}
