/** How long it will take, and what it costs by now. Pure. */

/** Seconds to the end if it goes on as it went; null where nobody can say yet. */
export function secondsLeft(startedMs: number, progress: number | null | undefined, nowMs: number): number | null {
  const gone = (nowMs - startedMs) / 1000;
  if (typeof progress !== "number" || progress >= 1 || gone < 5 || progress * gone < 0.5) return null;
  return (gone * (1 - progress)) / progress;
}

/** What was charged up to `untilMs`, carried on to now at the same rate. */
export function costNow(cost: number, startedMs: number, untilMs: number, nowMs: number): number {
  const held = untilMs - startedMs;
  if (held <= 0 || nowMs <= untilMs) return cost;
  return cost * (1 + (nowMs - untilMs) / held);
}

/** `64GiB`, or a plain number, as a number. */
export function amount(text: number | string): number {
  if (typeof text === "number") return text;
  const [, digits, unit] = /^([\d.]+)\s*([KMGT]?)(?:iB)?$/.exec(text) ?? [];
  return Number(digits ?? NaN) * 1024 ** ["", "K", "M", "G", "T"].indexOf(unit ?? "");
}
