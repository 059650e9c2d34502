/** What the table asks of the server, and how its rows stay true: the first page is asked anew when
 * the feed says that something happened, rows further down one by one, and what an event or a
 * notice of metrics says itself is shown at once. */
import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";

import { api, got } from "../api/client";
import { queries } from "../api/queries";
import type { Query } from "../look/url";
import { useFeed } from "../shell/feed";
import { askedColumns, columnsOf, type Row } from "./columns";
import { joined } from "./filter";
import { extended, measuredNow, moved, renewed, replaced, type Loaded } from "./rows";

export interface Asked {
  filter?: string;
  state?: string;
  user?: string;
  sort?: string;
  columns?: string;
}
export interface JobTable extends Loaded {
  total: number | null;
  states: Readonly<Record<string, number>> | null;
  error: unknown;
  /** Nothing came yet. */
  waiting: boolean;
  /** What is shown is of the question before. */
  old: boolean;
  loadingMore: boolean;
  more: () => void;
}

const FIRST = 100;
const FURTHER = 1000;
const ANEW_MS = 1000;
const MOST_ANEW = 60;
const NOTHING: Loaded = { rows: [], next: null };

interface Page extends Loaded {
  total: number | null;
  states: Record<string, number> | null;
}

async function ask(asked: Asked, more: { before?: string; limit?: number }): Promise<Page> {
  const query = Object.fromEntries(Object.entries({ ...asked, ...more }).filter(([, value]) => value));
  const page = await got(api.GET("/api/v1/jobs", { params: { query } }));
  return { rows: page.items as readonly Row[], next: page.next ?? null, total: page.total ?? null, states: page.states ?? null };
}

/** What the address asks for. */
export function askedBy(query: Query): Asked {
  const { filter, state, user, sort } = query;
  return { filter, state, user, sort, columns: askedColumns(columnsOf(query.columns)) };
}

const firstPage = (asked: Asked) => ({
  queryKey: ["jobs", "table", JSON.stringify(asked)],
  queryFn: () => ask(asked, { limit: FIRST }),
});

export function askEarly(asked: Asked): void {
  void queries.prefetchQuery(firstPage(asked));
}

export function useJobTable(asked: Asked): JobTable {
  const key = JSON.stringify(asked);
  const first = useQuery({ ...firstPage(asked), placeholderData: (before) => before });
  const [kept, setKept] = useState<{ key: string; loaded: Loaded }>({ key, loaded: first.data ?? NOTHING });
  const [further, setFurther] = useState<{ key: string; error?: unknown } | null>(null);
  const { data, isPlaceholderData } = first;

  useEffect(() => {
    if (!data || isPlaceholderData) return;
    setKept((before) => ({ key, loaded: before.key === key ? renewed(before.loaded, data) : data }));
  }, [data, isPlaceholderData, key]);

  const change = useCallback((how: (loaded: Loaded) => Loaded) => {
    setKept((before) => {
      const loaded = how(before.loaded);
      return loaded === before.loaded ? before : { ...before, loaded };
    });
  }, []);
  const latest = useRef(kept.loaded);
  latest.current = kept.loaded;

  const anew = useRows(asked, latest, change);
  useFeed({
    event: (event) => {
      if (!event.job) return;
      if (event.state) change((loaded) => moved(loaded, event.job as string, { state: event.state as Row["state"], reason: event.reason }));
      anew(event.job);
    },
    metrics: (notice) => {
      const { job, values, step, more } = notice;
      if (!job) return;
      change((loaded) => measuredNow(loaded, job, values, step));
      if (more) anew(job);
    },
  });

  const more = useCallback(() => {
    const next = latest.current.next;
    if (!next || (further && further.key === key)) return;
    setFurther({ key });
    ask(asked, { before: next, limit: FURTHER }).then(
      (page) => {
        setKept((before) => (before.key === key ? { key, loaded: extended(before.loaded, page) } : before));
        setFurther(null);
      },
      (error: unknown) => setFurther({ key, error }),
    );
  }, [asked, further, key]);

  return useMemo(
    () => ({
      ...kept.loaded,
      total: data?.total ?? null,
      states: data?.states ?? null,
      error: first.error ?? (further?.key === key ? further.error : null),
      waiting: first.isPending,
      old: kept.key !== key,
      loadingMore: further !== null && !further.error,
      more,
    }),
    [kept, data, first.error, first.isPending, further, key, more],
  );
}

/** Rows behind the first page that changed, asked anew together. */
function useRows(
  asked: Asked,
  latest: { current: Loaded },
  change: (how: (loaded: Loaded) => Loaded) => void,
): (id: string) => void {
  const dirty = useRef(new Set<string>());
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const now = useRef(asked);
  now.current = asked;
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(
    (id: string) => {
      const at = latest.current.rows.findIndex((each) => each.id === id);
      if (at < FIRST - 1) return; // the first page is asked anew as a whole, or it is not loaded
      dirty.current.add(id);
      timer.current ??= setTimeout(() => {
        timer.current = undefined;
        const ids = [...dirty.current].slice(0, MOST_ANEW);
        dirty.current = new Set([...dirty.current].slice(MOST_ANEW));
        const these = `id in (${ids.map((each) => `'${each}'`).join(",")})`;
        const { filter, sort: _, ...rest } = now.current;
        ask({ ...rest, filter: joined([filter ?? "", these]) }, { limit: ids.length }).then(
          (page) => change((loaded) => replaced(loaded, ids, page.rows)),
          () => undefined, // the next event asks again
        );
      }, ANEW_MS);
    },
    [latest, change],
  );
}
