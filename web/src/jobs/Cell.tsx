/** One value of one job. */
import type { ReactNode } from "react";

import type { Schema } from "../api/client";
import { useWords, type Language } from "../i18n";
import { count, value } from "../i18n/format";
import { Ago, Took } from "../look/Ago";
import { Because } from "./Because";
import { measured, type Column, type Row } from "./columns";
import css from "./jobs.module.css";
import { words } from "./words";

export function Cell({ row, why, column, language }: {
  row: Row;
  /** What it waits for, where it waits. */
  why: Schema["QueuedJob"] | undefined;
  column: Column;
  language: Language;
}): ReactNode {
  if (column.kind !== "fact") {
    const found = measured(row, column);
    if (found === null) return <span className="quiet">–</span>;
    return typeof found === "number" ? <span title={String(found)}>{value(found, language)}</span> : <span title={found}>{found}</span>;
  }
  switch (column.key) {
    case "submitted":
    case "started":
    case "ended": {
      const at = row[column.key];
      return at ? <Ago at={at} /> : null;
    }
    case "duration":
      return row.started ? <Took from={row.started} to={row.ended ?? null} /> : null;
    case "progress":
      return <Progress row={row} language={language} />;
    case "step":
      return typeof row.step === "number" ? count(row.step, language) : null;
    case "gpus":
      return row.gpus || null;
    case "attempt":
      return row.attempt || null;
    case "id":
      return <span className="mono">{row.id.slice(0, 12)}</span>;
    case "command":
      return <span className="mono" title={row.command}>{row.command}</span>;
    case "reason":
      return (
        <span className="quiet" title={row.reason || why?.sentence}>
          <Because said={row.reason || (why?.sentence ?? "")} code={row.reason ? row.outcome : why?.reason} missing={why?.missing} />
        </span>
      );
    default:
      return row[column.key] ?? null;
  }
}

/** How far it is: a part of the whole where that is known, else the step. */
function Progress({ row, language }: { row: Row; language: Language }): ReactNode {
  const w = useWords(words);
  if (typeof row.progress !== "number") return typeof row.step === "number" ? <span>{w.step(count(row.step, language))}</span> : null;
  const percent = `${Math.round(row.progress * 100)}%`;
  return (
    <span style={{ display: "inline-flex", gap: 8, alignItems: "center" }}>
      <span className={css.bar} aria-hidden>
        <span style={{ width: percent }} />
      </span>
      {percent}
    </span>
  );
}
