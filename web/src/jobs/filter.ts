/** The filter as chips: one for each condition. What a condition may be is the server's to say
 * (docs/how-to/compare-jobs.md has the language); here it is only taken apart and put together. */

/** The conditions of a filter: what stands between the `and`s that are in no quotes. */
export function conditions(filter: string): string[] {
  const found: string[] = [];
  let at = 0;
  let start = 0;
  while (at < filter.length) {
    const sign = filter[at] as string;
    if (`'"\``.includes(sign)) {
      const end = filter.indexOf(sign, at + 1);
      at = end < 0 ? filter.length : end + 1;
    } else if (/^and(?=\s|$)/i.test(filter.slice(at, at + 4)) && (at === 0 || /\s/.test(filter[at - 1] as string))) {
      found.push(filter.slice(start, at));
      at += 3;
      start = at;
    } else {
      at += 1;
    }
  }
  found.push(filter.slice(start));
  return found.map((each) => each.trim()).filter(Boolean);
}

export function joined(parts: readonly string[]): string {
  return parts.map((each) => each.trim()).filter(Boolean).join(" and ");
}

/** A word without an operator is looked for in the names. */
export function condition(typed: string): string {
  const text = typed.trim();
  if (!text || /[=<>]|\s(like|ilike|in|not\s+in|is)\s/i.test(text)) return text;
  return `name ilike '%${text.replaceAll("'", "")}%'`;
}

/** A key as the language wants it: quoted where it has more than plain letters. */
export function keyed(kind: string, key: string): string {
  return /^[\w./-]+$/.test(key) ? `${kind}.${key}` : `${kind}."${key}"`;
}
