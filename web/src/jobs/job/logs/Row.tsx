/** One line of a log. Nothing in it is anything but text. */
import { memo, useState, type CSSProperties, type ReactNode } from "react";

import type { Theme } from "../../../look/colours";
import { inked, spans } from "./ansi";
import { folded } from "./fold";
import css from "./logs.module.css";
import { marked, type Marked } from "./mark";
import type { LogLine } from "./window";

/** More of a line is shown when it is asked for: a page must not lay out a megabyte. */
const LONGEST = 2000;

export interface RowLook {
  theme: Theme;
  times: boolean;
  /** Names of the ranks that have a lane each; null: all below each other. */
  lanes: readonly string[] | null;
  labels: ReadonlyMap<string, string> | null;
  colours: ReadonlyMap<string, string>;
  search: RegExp | null;
  words: { linked: string; folded: (count: string) => string; long: (size: string) => string; newAttempt: (n: number) => string };
  count: (value: number) => string;
  bytes: (value: number) => string;
}

export const Row = memo(function Row({ line, look, link, onLink, newAttempt }: {
  line: LogLine;
  look: RowLook;
  link: string;
  onLink: (line: LogLine) => void;
  newAttempt: boolean;
}): ReactNode {
  const [whole, setWhole] = useState(false);
  const shown = folded(line.text);
  const text = whole ? shown.text : shown.text.slice(0, LONGEST);
  const lane = look.lanes?.indexOf(line.rank) ?? -1;
  const label = look.lanes ? null : look.labels?.get(line.rank);
  return (
    <>
      {newAttempt && <div className={css.attempt}>{look.words.newAttempt(line.attempt ?? 1)}</div>}
      <a
        className={css.time}
        href={link}
        tabIndex={-1}
        title={look.words.linked}
        onClick={(event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          onLink(line);
        }}
      >
        {look.times ? clock(line.at) : "·"}
      </a>
      {label !== null && label !== undefined && (
        <span className={css.rank} style={{ color: look.colours.get(line.rank) }} title={line.rank}>
          {label}
        </span>
      )}
      <span className={css.text} style={lane > 0 ? { gridColumn: lane + 2 } : undefined}>
        {marked(spans(text), look.search).map((piece, at) => (
          <Piece key={at} piece={piece} theme={look.theme} />
        ))}
        {shown.hidden > 0 && (
          <span className={css.folded} title={look.words.folded(look.count(shown.hidden))}>
            {` ⟲${look.count(shown.hidden)}`}
          </span>
        )}
        {!whole && shown.text.length > LONGEST && (
          <button type="button" className={css.more} onClick={() => setWhole(true)}>
            {look.words.long(look.bytes(shown.text.length))}
          </button>
        )}
      </span>
    </>
  );
});

function Piece({ piece, theme }: { piece: Marked; theme: Theme }): ReactNode {
  const style: CSSProperties = {};
  if (!piece.found) {
    const ink = inked(piece, theme);
    if (ink.colour) style.color = ink.colour;
    if (ink.background) style.backgroundColor = ink.background;
  }
  if (piece.bold) style.fontWeight = 700;
  if (piece.italic) style.fontStyle = "italic";
  if (piece.underline || piece.strike)
    style.textDecoration = `${piece.underline ? "underline" : ""} ${piece.strike ? "line-through" : ""}`;
  if (piece.found) return <mark style={style}>{piece.text}</mark>;
  return Object.keys(style).length ? <span style={style}>{piece.text}</span> : <>{piece.text}</>;
}

export function clock(at: number): string {
  const time = new Date(at);
  const two = (value: number): string => String(value).padStart(2, "0");
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}
