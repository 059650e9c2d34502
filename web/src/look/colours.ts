/** One colour per job, everywhere, always: drawn from its id. Twelve hues that colour-blind eyes
 * tell apart as far as twelve can be, per theme, and dash patterns beyond. */
export type Theme = "light" | "dark";

export const PALETTE: Record<Theme, readonly string[]> = {
  light: [
    "#0b6e99", "#b84a00", "#2a7d3f", "#8a3ffc", "#b3123f", "#7a6200",
    "#00707a", "#9f1853", "#3d5afe", "#6b4226", "#4d6b00", "#5a5f6e",
  ],
  dark: [
    "#5ab4e5", "#ff9d5c", "#63c77f", "#be95ff", "#ff7a93", "#e3c34a",
    "#3ddbd9", "#ff8ac4", "#8ea2ff", "#d8a27c", "#a9d04a", "#b4bac8",
  ],
}; // prettier-ignore

const DASHES: readonly (readonly number[])[] = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

/** FNV-1a: the same number for the same id in every browser. */
export function hash(id: string): number {
  let found = 0x811c9dc5;
  for (let at = 0; at < id.length; at++) {
    found ^= id.charCodeAt(at);
    found = Math.imul(found, 0x01000193) >>> 0;
  }
  return found;
}

export function colourOf(id: string, theme: Theme): string {
  const palette = PALETTE[theme];
  return palette[hash(id) % palette.length] as string;
}

export function dashOf(id: string): readonly number[] {
  return DASHES[Math.floor(hash(id) / 12) % DASHES.length] as readonly number[];
}

/** For lines in one picture: each keeps its own colour, and who meets another of the same colour
 * and pattern is given the next pattern. The order of `ids` does not matter. */
export function strokes(ids: readonly string[], theme: Theme): Map<string, { colour: string; dash: readonly number[] }> {
  const found = new Map<string, { colour: string; dash: readonly number[] }>();
  const taken = new Map<string, number>();
  for (const id of [...ids].sort()) {
    const colour = colourOf(id, theme);
    const times = taken.get(colour) ?? 0;
    taken.set(colour, times + 1);
    found.set(id, { colour, dash: DASHES[times % DASHES.length] as readonly number[] });
  }
  return found;
}

/** Contrast of two colours as WCAG counts it. */
export function contrast(one: string, other: string): number {
  const light = (hex: string): number => {
    const [r, g, b] = [1, 3, 5].map((at) => {
      const part = parseInt(hex.slice(at, at + 2), 16) / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    }) as [number, number, number];
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [a, b] = [light(one), light(other)].sort((x, y) => y - x) as [number, number];
  return (a + 0.05) / (b + 0.05);
}
