/** From values to places and back, and where the ticks go. Pure. */
import type { Language } from "../i18n";

export type Kind = "linear" | "log";

export interface Scale {
  readonly kind: Kind;
  readonly low: number;
  readonly high: number;
  /** From 0 (low) to 1 (high). */
  at(value: number): number;
  value(at: number): number;
  ticks(many: number): number[];
}

export function linear(low: number, high: number): Scale {
  const whole = high - low || 1;
  return {
    kind: "linear",
    low,
    high,
    at: (value) => (value - low) / whole,
    value: (at) => low + at * whole,
    ticks: (many) => ticks(low, high, many),
  };
}

/** Both ends above zero. */
export function log(low: number, high: number): Scale {
  const from = Math.log10(low);
  const whole = Math.log10(high) - from || 1;
  return {
    kind: "log",
    low,
    high,
    at: (value) => (value > 0 ? (Math.log10(value) - from) / whole : Number.NaN),
    value: (at) => 10 ** (from + at * whole),
    ticks: (many) => logTicks(low, high, many),
  };
}

/** A scale over the values, a little wider, linear where logarithms cannot be. */
export function scaleOf(values: Iterable<number>, kind: Kind = "linear"): Scale {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value) || (kind === "log" && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return linear(0, 1);
  if (kind === "log") return low === high ? log(low / 2, high * 2) : log(low, high);
  if (low === high) return linear(low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2);
  return linear(low, high);
}

/** 1, 2 or 5 times a power of ten: the one of which nearest to `many` fill the whole. */
export function stepOf(whole: number, many: number): number {
  const rough = whole / Math.max(1, many);
  const power = 10 ** Math.floor(Math.log10(rough));
  const times = rough / power;
  return power * (times < Math.SQRT2 ? 1 : times < Math.sqrt(10) ? 2 : times < Math.sqrt(50) ? 5 : 10);
}

export function ticks(low: number, high: number, many: number): number[] {
  if (!(high > low) || !Number.isFinite(high - low)) return Number.isFinite(low) ? [low] : [];
  return multiples(low, high, stepOf(high - low, many));
}

function multiples(low: number, high: number, step: number): number[] {
  const digits = Math.max(0, Math.min(20, 1 - Math.floor(Math.log10(step))));
  const found: number[] = [];
  const from = Math.ceil(low / step - 1e-9);
  const to = Math.floor(high / step + 1e-9);
  for (let at = from; at <= to && found.length < 200; at++) {
    const value = at * step;
    found.push(Object.is(value, -0) ? 0 : step < 1 ? Number(value.toFixed(digits)) : value);
  }
  return found;
}

/** Powers of ten, with 2 and 5 between where there are few, or plain ticks within one power. */
export function logTicks(low: number, high: number, many: number): number[] {
  const from = Math.floor(Math.log10(low) + 1e-9);
  const to = Math.ceil(Math.log10(high) - 1e-9);
  const powers = to - from;
  if (powers <= 1 && Math.log10(high / low) < 0.7) return ticks(low, high, many).filter((each) => each > 0);
  const every = Math.max(1, Math.ceil((powers + 1) / Math.max(2, many)));
  const between = powers * 3 <= many ? [1, 2, 5] : powers * 2 <= many ? [1, 3] : [1];
  const found: number[] = [];
  for (let power = from; power <= to; power += every) {
    for (const times of every === 1 ? between : [1]) {
      const value = Number(`${times}e${power}`);
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) found.push(value);
    }
  }
  return found;
}

/** A number on an axis: short, with as many digits as its step needs. */
export function tickLabel(value: number, step = 0): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e15 || size < 1e-4) return tidy(value.toExponential(2));
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (size >= unit && (unit > 1e3 || size >= 1e4 || step >= 1e3)) return `${rounded(value / unit, step / unit)}${name}`;
  }
  return rounded(value, step);
}

function rounded(value: number, step: number): string {
  if (step > 0) return value.toFixed(Math.max(0, Math.min(12, Math.ceil(-Math.log10(step) - 1e-9))));
  return String(Number(value.toPrecision(4)));
}

function tidy(text: string): string {
  return text.replace(/\.?0+e/, "e").replace("e+", "e");
}

const SECONDS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
  172_800, 345_600, 604_800, 1_209_600, 2_419_200, 7_257_600, 31_536_000,
] as const; // prettier-ignore

function secondsStep(whole: number, many: number): number {
  const rough = whole / Math.max(1, many);
  if (rough <= 1) return stepOf(whole, many);
  return SECONDS.find((each) => each >= rough) ?? stepOf(whole, many);
}

/** Ticks over a time that passed, in seconds. */
export function durationTicks(low: number, high: number, many: number): number[] {
  if (!(high > low)) return [low];
  return multiples(low, high, secondsStep(high - low, many));
}

/** 90 → "1m30s", 7200 → "2h": a duration on an axis. */
export function durationLabel(seconds: number, step = 0): string {
  if (seconds < 0) return `-${durationLabel(-seconds, step)}`;
  if (step > 0 && step < 1) return `${rounded(seconds, step)}s`;
  if (step === 0 && seconds < 10) return `${Number(seconds.toPrecision(3))}s`;
  let rest = Math.round(seconds);
  if (!rest) return "0";
  let said = "";
  let parts = 0;
  for (const [size, name] of [[86_400, "d"], [3600, "h"], [60, "m"], [1, "s"]] as const) {
    const times = Math.floor(rest / size);
    rest -= times * size;
    if (times && parts < 2) said += `${times}${name}`;
    if (times || parts) parts += 1;
  }
  return said;
}

/** Ticks on the clock, UTC seconds: on full minutes, hours and days of the reader's own zone. */
export function timeTicks(low: number, high: number, many: number): number[] {
  if (!(high > low)) return [low];
  const step = secondsStep(high - low, many);
  const away = step >= 3600 ? -new Date(low * 1000).getTimezoneOffset() * 60 : 0;
  return multiples(low + away, high + away, step).map((each) => each - away);
}

export function timeLabel(seconds: number, step: number, language: Language): string {
  const locale = language === "zh" ? "zh-CN" : "en-GB";
  const at = new Date(seconds * 1000);
  const two = "2-digit" as const;
  if (step < 60) return at.toLocaleTimeString(locale, { hour: two, minute: two, second: two });
  const midnight = at.getHours() === 0 && at.getMinutes() === 0;
  if (step < 86_400 && !midnight) return at.toLocaleTimeString(locale, { hour: two, minute: two });
  return at.toLocaleDateString(locale, { month: "short", day: "numeric" });
}
