/** Colours of a terminal as pieces of text with a style. Escapes that move a cursor or name a window
 * are taken out; what is left is text and nothing but text. Every colour a line can ask for is
 * drawn so that it can be read on the paper of the theme (WCAG AA), or on its own background. */
import { contrast, type Theme } from "../../../look/colours";

export interface Span {
  text: string;
  /** A hex colour, made readable for a theme by `inked`; absent: the colour of text. */
  colour?: string | number;
  back?: string | number;
  bold?: boolean;
  dim?: boolean;
  italic?: boolean;
  underline?: boolean;
  strike?: boolean;
}

interface Pen extends Omit<Span, "text"> {
  inverse?: boolean;
}

export const PAPER: Record<Theme, string> = { light: "#ffffff", dark: "#14171a" };
export const TEXT: Record<Theme, string> = { light: "#1f2428", dark: "#d6dbe1" };
const ENOUGH = 4.5;

/** The sixteen colours of a terminal. `inked` has the last word on how dark or light they are. */
const SIXTEEN = [
  "#3b4048", "#c4162a", "#1c7c3c", "#8a6100", "#1f5fc4", "#9b2fae", "#0b7285", "#8b949e",
  "#6e7681", "#e5484d", "#2ea043", "#bf8700", "#4184e4", "#c061cb", "#1b9aaa", "#c9d1d9",
]; // prettier-ignore

// CSI … letter | OSC … BEL or ST | other strings … ST | two-byte escapes | lone control characters
const ESCAPE =
  // eslint-disable-next-line no-control-regex
  /\x1b\[([0-9;:?<=>!]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[PX^_][^\x1b]*(?:\x1b\\|$)|\x1b[ -/]*[0-~]|\x1b|\x9b|[\x00-\x08\x0b-\x1f\x7f]/g;

/** The pieces of one line. */
export function spans(line: string): Span[] {
  const found: Span[] = [];
  let pen: Pen = {};
  let from = 0;
  const put = (text: string): void => {
    if (!text) return;
    const { inverse, ...style } = pen;
    if (inverse) found.push({ ...style, text, colour: style.back ?? "paper", back: style.colour ?? "text" });
    else found.push({ ...style, text });
  };
  for (const match of line.matchAll(ESCAPE)) {
    put(line.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === "m" && !/[?<=>!]/.test(match[1] ?? "")) pen = changed(pen, match[1] ?? "");
  }
  put(line.slice(from));
  return found;
}

/** The line as one text, for search and for the clipboard. */
export function plain(line: string): string {
  return line.replace(ESCAPE, "");
}

function changed(before: Pen, codes: string): Pen {
  const pen = { ...before };
  const list = codes.split(/[;:]/).map((each) => (each === "" ? 0 : Number(each)));
  for (let at = 0; at < list.length; at++) {
    const code = list[at] as number;
    if (code === 0) for (const key of Object.keys(pen)) delete pen[key as keyof Pen];
    else if (code === 1) pen.bold = true;
    else if (code === 2) pen.dim = true;
    else if (code === 3) pen.italic = true;
    else if (code === 4) pen.underline = true;
    else if (code === 7) pen.inverse = true;
    else if (code === 9) pen.strike = true;
    else if (code === 22) delete pen.bold, delete pen.dim;
    else if (code === 23) delete pen.italic;
    else if (code === 24) delete pen.underline;
    else if (code === 27) delete pen.inverse;
    else if (code === 29) delete pen.strike;
    else if (code >= 30 && code <= 37) pen.colour = code - 30;
    else if (code >= 90 && code <= 97) pen.colour = code - 90 + 8;
    else if (code === 39) delete pen.colour;
    else if (code >= 40 && code <= 47) pen.back = code - 40;
    else if (code >= 100 && code <= 107) pen.back = code - 100 + 8;
    else if (code === 49) delete pen.back;
    else if (code === 38 || code === 48) {
      const [colour, used] = wide(list, at + 1);
      if (colour !== undefined) pen[code === 38 ? "colour" : "back"] = colour;
      at += used;
    }
  }
  return pen;
}

/** `5;N` of 256 colours, or `2;R;G;B`: the colour and how many numbers it took. */
function wide(list: readonly number[], at: number): [string | number | undefined, number] {
  if (list[at] === 5) {
    const index = list[at + 1] ?? 0;
    if (!(index >= 0 && index <= 255)) return [undefined, 2];
    return [index < 16 ? index : of256(index), 2];
  }
  if (list[at] === 2) {
    const parts = [1, 2, 3].map((step) => list[at + step] ?? 0);
    if (parts.some((each) => !(each >= 0 && each <= 255))) return [undefined, 4];
    return [hex(parts), 4];
  }
  return [undefined, 0];
}

function of256(index: number): string {
  if (index >= 232) return hex(Array(3).fill(8 + (index - 232) * 10) as number[]);
  const cube = index - 16;
  return hex([Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map((each) => (each ? 55 + each * 40 : 0)));
}

const known = new Map<string, { colour?: string; background?: string }>();

/** The colours to draw a piece with, so that it can be read. Remembered: logs repeat themselves. */
export function inked(span: Span, theme: Theme): { colour?: string; background?: string } {
  if (span.colour === undefined && span.back === undefined) return {};
  const key = `${theme} ${span.colour ?? ""} ${span.back ?? ""}`;
  let found = known.get(key);
  if (!found) {
    const background = span.back === undefined ? undefined : named(span.back, theme);
    const paper = background ?? PAPER[theme];
    const wanted = span.colour === undefined ? TEXT[theme] : named(span.colour, theme);
    found = { colour: readable(wanted, paper), background };
    if (known.size > 4096) known.clear();
    known.set(key, found);
  }
  return found;
}

function named(colour: string | number, theme: Theme): string {
  if (colour === "paper") return PAPER[theme];
  if (colour === "text") return TEXT[theme];
  return typeof colour === "number" ? (SIXTEEN[colour] as string) : colour;
}

/** The colour, or the nearest towards black or white that stands out enough. */
export function readable(colour: string, paper: string): string {
  if (contrast(colour, paper) >= ENOUGH) return colour;
  const end = contrast("#000000", paper) > contrast("#ffffff", paper) ? 0 : 255;
  const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  for (let share = 0.1; share < 1; share += 0.1) {
    const mixed = hex(parts.map((each) => Math.round(each + (end - each) * share)));
    if (contrast(mixed, paper) >= ENOUGH) return mixed;
  }
  return end ? "#ffffff" : "#000000";
}

function hex(parts: readonly number[]): string {
  return `#${parts.map((each) => each.toString(16).padStart(2, "0")).join("")}`;
}
