/** Numbers, times and sizes as people of a language write them. */
import type { Language } from "./index";

const LOCALE = { en: "en-GB", zh: "zh-CN" } as const;

/** To make a formatter takes a hundred times as long as to use it: each is made once. */
function once<F>(make: (locale: string) => F): (language: Language) => F {
  const made: Partial<Record<Language, F>> = {};
  return (language) => (made[language] ??= make(LOCALE[language]));
}
const whole = once((locale) => new Intl.NumberFormat(locale));
const fourDigits = once((locale) => new Intl.NumberFormat(locale, { maximumSignificantDigits: 4 }));
const noFraction = once((locale) => new Intl.NumberFormat(locale, { maximumFractionDigits: 0 }));
const oneFraction = once((locale) => new Intl.NumberFormat(locale, { maximumFractionDigits: 1 }));
const relative = once((locale) => new Intl.RelativeTimeFormat(locale, { numeric: "auto" }));
const dateAndTime = once((locale) => new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" }));

export function count(value: number, language: Language): string {
  return whole(language).format(value);
}

/** A measured value: four digits that count, and no more. */
export function value(found: number | null | undefined, language: Language): string {
  if (found === null || found === undefined) return "–";
  if (!Number.isFinite(found)) return String(found);
  if (found !== 0 && (Math.abs(found) < 1e-3 || Math.abs(found) >= 1e7)) return found.toExponential(3);
  return fourDigits(language).format(found);
}

export function bytes(size: number, language: Language): string {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  const number = size < 10 && unit ? oneFraction : noFraction;
  return `${number(language).format(size)} ${units[unit]}`;
}

/** 4 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function duration(seconds: number, language: Language): string {
  const zh = language === "zh";
  const parts: [number, string][] = [
    [86_400, zh ? "天" : "d"],
    [3_600, zh ? "小时" : "h"],
    [60, zh ? "分" : "min"],
    [1, zh ? "秒" : "s"],
  ];
  let rest = Math.max(0, seconds);
  if (rest < 10 && rest > 0) return `${rest < 1 ? rest.toFixed(1) : Math.round(rest)} ${zh ? "秒" : "s"}`;
  const said: string[] = [];
  for (const [size, name] of parts) {
    const times = Math.floor(rest / size);
    if (times || said.length) {
      if (times) said.push(`${times} ${name}`);
      rest -= times * size;
      if (said.length === 2) break;
    }
  }
  return said.slice(0, 2).join(" ") || `0 ${zh ? "秒" : "s"}`;
}

/** "3 minutes ago", "in 2 hours". */
export function ago(iso: string, language: Language, now: number = Date.now()): string {
  const seconds = (Date.parse(iso) - now) / 1000;
  const format = relative(language);
  const steps: [number, Intl.RelativeTimeFormatUnit][] = [
    [86_400, "day"],
    [3_600, "hour"],
    [60, "minute"],
    [1, "second"],
  ];
  for (const [size, unit] of steps) {
    if (Math.abs(seconds) >= size || size === 1) return format.format(Math.trunc(seconds / size), unit);
  }
  return "";
}

export function moment(iso: string, language: Language): string {
  return dateAndTime(language).format(new Date(iso));
}
