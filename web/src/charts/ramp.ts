/** From a number between 0 and 1 to a colour, alike in lightness steps, seen on the paper of each
 * theme and by colour-blind eyes (a part of viridis, turned round in the dark). */
import type { Theme } from "../look/colours";

const STOPS: Record<Theme, readonly (readonly [number, number, number])[]> = {
  light: [[176, 132, 12], [74, 138, 60], [20, 126, 122], [45, 92, 140], [68, 40, 120]],
  dark: [[150, 120, 220], [96, 150, 214], [52, 182, 170], [130, 208, 90], [250, 226, 70]],
}; // prettier-ignore

export function ramp(at: number, theme: Theme): string {
  const stops = STOPS[theme];
  if (!Number.isFinite(at)) return theme === "light" ? "#6b7280" : "#9aa5b1";
  const place = Math.min(1, Math.max(0, at)) * (stops.length - 1);
  const from = stops[Math.floor(place)] as readonly number[];
  const to = stops[Math.ceil(place)] as readonly number[];
  const part = place - Math.floor(place);
  const mixed = [0, 1, 2].map((n) => Math.round((from[n] as number) * (1 - part) + (to[n] as number) * part));
  return `#${mixed.map((each) => each.toString(16).padStart(2, "0")).join("")}`;
}

/** For a legend: the ramp as CSS, from left to right. */
export function rampGradient(theme: Theme): string {
  return `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map((at) => ramp(at, theme)).join(", ")})`;
}
