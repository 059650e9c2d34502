/** Where a search is found in a line, as pieces that are marked. */
import type { Span } from "./ansi";

export type Marked = Span & { found?: boolean };

const MOST = 200;

/** The search as the page marks it; null where it cannot be written here as on the server, or where
 * it could keep the browser busy for good (a repeated group that repeats). */
export function pattern(text: string, caseful: boolean): RegExp | null {
  if (!text || text.length > 500) return null;
  if (/\([^)]*[+*{|][^)]*\)\s*[+*{]/.test(text)) return null;
  try {
    return new RegExp(text, caseful ? "g" : "gi");
  } catch {
    return null;
  }
}

export function marked(spans: readonly Span[], search: RegExp | null): Marked[] {
  if (!search) return [...spans];
  const whole = spans.map((each) => each.text).join("");
  const ranges: [number, number][] = [];
  search.lastIndex = 0;
  for (let match = search.exec(whole); match && ranges.length < MOST; match = search.exec(whole)) {
    if (match[0]) ranges.push([match.index, match.index + match[0].length]);
    else search.lastIndex += 1;
  }
  if (!ranges.length) return [...spans];
  const found: Marked[] = [];
  let at = 0;
  let next = 0;
  for (const span of spans) {
    const end = at + span.text.length;
    let from = at;
    while (from < end) {
      const [low, high] = ranges[next] ?? [Infinity, Infinity];
      const inside = from >= low;
      const to = Math.min(end, inside ? high : low);
      found.push({ ...span, text: span.text.slice(from - at, to - at), ...(inside ? { found: true } : {}) });
      from = to;
      if (to === high) next += 1;
    }
    at = end;
  }
  return found;
}
