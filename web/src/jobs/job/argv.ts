/** Parameters in a command: `--lr 0.1`, `--lr=0.1`, `lr=0.1`. */
export function paramsIn(run: readonly string[]): Map<string, string> {
  const found = new Map<string, string>();
  run.forEach((word, at) => {
    const whole = /^(?:--)?([A-Za-z_][\w.-]*)=(.*)$/s.exec(word);
    if (whole) found.set(whole[1]!, whole[2]!);
    else if (/^--[A-Za-z]/.test(word)) {
      const next = run[at + 1];
      if (next !== undefined && (!next.startsWith("-") || /^-\.?\d/.test(next))) found.set(word.slice(2), next);
    }
  });
  return found;
}

/** What was typed as the server takes it: a number, a truth, or the text. */
export function valueOf(text: string): string | number | boolean {
  if (/^(true|false)$/.test(text)) return text === "true";
  if (/^-?\d{1,15}$/.test(text) || /^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) {
    const number = Number(text);
    if (Number.isFinite(number) && (Number.isSafeInteger(number) || /[.e]/i.test(text))) return number;
  }
  return text;
}
