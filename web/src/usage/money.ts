import type { Language } from "../i18n";

/** Two places, and four where it is less than ten cents. */
export function money(amount: number, language: Language): string {
  const places = amount !== 0 && Math.abs(amount) < 0.1 ? 4 : 2;
  return new Intl.NumberFormat(language === "zh" ? "zh-CN" : "en-GB", {
    minimumFractionDigits: 2,
    maximumFractionDigits: places,
  }).format(amount);
}

/** GiB hours: three places where it is little, none where it is much. */
export function hours(amount: number, language: Language): string {
  const places = amount < 1 ? 3 : amount < 100 ? 1 : 0;
  return new Intl.NumberFormat(language === "zh" ? "zh-CN" : "en-GB", { maximumFractionDigits: places }).format(amount);
}
