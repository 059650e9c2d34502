/** The table itself. Only the rows that are seen are there; more are loaded as one scrolls. */
import { useComputedColorScheme } from "@mantine/core";
import { useRouter } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useRef, type MouseEvent, type ReactNode } from "react";

import { BASE, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { Icon } from "../look/Icon";
import { colourOf } from "../look/colours";
import { State } from "../look/State";
import type { JobTable } from "./asking";
import { Cell } from "./Cell";
import { isNumber, nextSort, sortable, widthOf, type Column, type Row } from "./columns";
import css from "./jobs.module.css";
import { JobCurve } from "./JobCurve";
import { useLines } from "./waiting";
import { words } from "./words";

const ROW_PX = 36;
const NAME_PX = 190;
const STATE_PX = 118;
const CURVE_PX = 118;
const NEAR_THE_END = 60;

export function JobRows({ table, columns, curve, sort, changeSort, chosen, toggle, chooseAll, at, setAt }: {
  table: JobTable;
  columns: readonly Column[];
  curve: string | null;
  sort: string | undefined;
  changeSort: (sort: string | undefined) => void;
  chosen: readonly string[];
  toggle: (id: string) => void;
  chooseAll: () => void;
  at: number;
  setAt: (at: number) => void;
}): ReactNode {
  const w = useWords(words);
  const box = useRef<HTMLDivElement>(null);
  const { rows, next, more, loadingMore } = table;
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
    scrollPaddingStart: ROW_PX,
  });
  const items = virtual.getVirtualItems();
  const lastSeen = items[items.length - 1]?.index ?? 0;
  useEffect(() => {
    if (next && !loadingMore && lastSeen > rows.length - NEAR_THE_END) more();
  }, [next, loadingMore, lastSeen, rows.length, more]);

  // The row that the keys are at has the focus, so that Enter opens it and readers say it.
  useEffect(() => {
    if (at < 0) return;
    virtual.scrollToIndex(at);
    const focus = (): void =>
      box.current?.querySelector<HTMLElement>(`tr[data-row="${at}"] a`)?.focus({ preventScroll: true });
    focus();
    const later = requestAnimationFrame(focus);
    return () => cancelAnimationFrame(later);
  }, [at, virtual]);

  const seen = items.flatMap((item) => rows[item.index] ?? []);
  const lines = useLines([...new Set(seen.filter((row) => row.state === "queued").map((row) => row.queue))].sort());
  const picked = new Set(chosen);
  const width = 44 + NAME_PX + STATE_PX + (curve ? CURVE_PX : 0) + columns.reduce((sum, each) => sum + widthOf(each), 0);
  const widest = columns.find((each) => each.word === "reason" || each.word === "command")?.word;
  const span = columns.length + 3 + (curve ? 1 : 0);
  const above = items[0]?.start ?? 0;
  const below = virtual.getTotalSize() - (items[items.length - 1]?.end ?? 0);
  const head = (word: string, label: string, number = false): ReactNode => {
    const down = sort === `-${word}`;
    const up = sort === word;
    return (
      <th key={word} scope="col" className={number ? css.number : undefined} aria-sort={down ? "descending" : up ? "ascending" : undefined}>
        {sortable(word) ? (
          <button type="button" onClick={() => changeSort(nextSort(sort, word))} title={w.sortBy(label)}>
            {label}
            {(down || up) && <Icon name={down ? "down" : "up"} size={12} />}
          </button>
        ) : (
          label
        )}
      </th>
    );
  };
  return (
    <div className={css.box} ref={box} tabIndex={0} role="region" aria-label={w.table} data-old={table.old} aria-busy={(table.old || table.waiting) && !table.error}>
      <table className={css.table} style={{ width: `max(100%, ${width}px)` }} aria-rowcount={table.total ?? rows.length}>
        <colgroup>
          <col style={{ width: 44 }} />
          <col style={{ width: NAME_PX }} />
          <col style={{ width: STATE_PX }} />
          {curve && <col style={{ width: CURVE_PX }} />}
          {columns.map((each) => (
            <col key={each.word} style={each.word === widest ? undefined : { width: widthOf(each) }} />
          ))}
        </colgroup>
        <thead>
          <tr>
            <th scope="col">
              <input
                type="checkbox"
                className={css.tick}
                aria-label={w.chooseAll}
                checked={chosen.length > 0}
                ref={(each) => void (each && (each.indeterminate = chosen.length > 0))}
                onChange={chooseAll}
              />
            </th>
            {head("name", w.fact.name)}
            {head("state", w.fact.state)}
            {curve && <th scope="col">{curve}</th>}
            {columns.map((each) => head(each.word, each.kind === "fact" ? w.fact[each.key] : labelOf(each), isNumber(each)))}
          </tr>
        </thead>
        <tbody>
          {above > 0 && (
            <tr aria-hidden>
              <td className={css.pad} colSpan={span} style={{ height: above }} />
            </tr>
          )}
          {items.map((item) => {
            const row = rows[item.index] as Row;
            return (
              <JobRow
                key={row.id}
                row={row}
                why={row.state === "queued" ? lines.get(row.id) : undefined}
                n={item.index}
                columns={columns}
                curve={curve}
                at={item.index === at}
                chosen={picked.has(row.id.slice(0, 12))}
                toggle={toggle}
                setAt={setAt}
              />
            );
          })}
          {below > 0 && (
            <tr aria-hidden>
              <td className={css.pad} colSpan={span} style={{ height: below }} />
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

function labelOf(column: Column): string {
  return column.kind === "min" || column.kind === "max" ? `${column.kind} ${column.key}` : column.key;
}

const JobRow = memo(function JobRow({ row, why, n, columns, curve, at, chosen, toggle, setAt }: {
  row: Row;
  /** What it waits for. */
  why: Schema["QueuedJob"] | undefined;
  n: number;
  columns: readonly Column[];
  curve: string | null;
  at: boolean;
  chosen: boolean;
  toggle: (id: string) => void;
  setAt: (at: number) => void;
}): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const theme = useComputedColorScheme("light");
  return (
    <tr data-row={n} data-job={row.name} data-at={at} data-chosen={chosen} aria-rowindex={n + 2}>
      <td>
        <input type="checkbox" className={css.tick} checked={chosen} onChange={() => toggle(row.id)} aria-label={w.choose(row.name)} />
      </td>
      <td>
        <JobLink id={row.id} title={row.command} onFocus={() => setAt(n)}>
          <span className="dot" style={{ background: colourOf(row.id, theme) }} />
          <span className="clip">{row.name}</span>
        </JobLink>
      </td>
      <td>
        <State state={row.state} />
      </td>
      {curve && <td>{row.state !== "queued" && row.state !== "held" && <JobCurve job={row.id} metric={curve} />}</td>}
      {columns.map((column) => (
        <td key={column.word} className={isNumber(column) ? css.number : undefined}>
          <Cell row={row} why={why} column={column} language={language} />
        </td>
      ))}
    </tr>
  );
});

/** As the router's own link, which is too slow to make by the dozen in each frame. */
function JobLink({ id, title, onFocus, children }: {
  id: string;
  title: string;
  onFocus: () => void;
  children: ReactNode;
}): ReactNode {
  const router = useRouter();
  const there = { to: "/jobs/$job", params: { job: id } } as const;
  const open = (event: MouseEvent): void => {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    void router.navigate(there);
  };
  return (
    <a
      href={`${BASE}jobs/${id}`}
      className={css.name}
      title={title}
      onFocus={onFocus}
      onClick={open}
      onPointerEnter={() => void router.preloadRoute(there)}
    >
      {children}
    </a>
  );
}
