/** Parameters as people write them: `epochs=100`, one on each line. */
export type Value = boolean | number | string;

/** What is written, and the first line that is not so ("" if all are). */
export function changesOf(text: string): [Record<string, Value>, string] {
  const found: Record<string, Value> = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const [, name, value] = /^([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$/.exec(line) ?? [];
    if (name === undefined || value === undefined || value === "") return [found, line];
    found[name] = valueOf(value);
  }
  return [found, ""];
}

/** A truth, a number, or just text: as the CLI takes it. */
export function valueOf(text: string): Value {
  if (/^(true|false)$/i.test(text)) return text.toLowerCase() === "true";
  const number = Number(text);
  return text.trim() !== "" && Number.isFinite(number) && /^[+-]?[\d.]/.test(text) && !/^[+-]?0[xbo]/i.test(text) ? number : text;
}
