/** Which panels there are: one for each metric, together with those of the same prefix. */
export interface Group {
  name: string;
  keys: string[];
}

/** `train/loss` and `train/acc` are together; what has no prefix that is a word comes under the
 * name "". By name, those without a prefix first. */
export function grouped(keys: readonly string[]): Group[] {
  const found = new Map<string, string[]>();
  for (const key of [...new Set(keys)].sort(byName)) {
    const prefix = /^([\p{L}\p{N}_ -]+)[/.]/u.exec(key)?.[1] ?? "";
    found.set(prefix, [...(found.get(prefix) ?? []), key]);
  }
  return [...found].map(([name, members]) => ({ name, keys: members })).sort((a, b) => byName(a.name, b.name));
}

const order = new Intl.Collator("en", { numeric: true });

function byName(a: string, b: string): number {
  return order.compare(a, b);
}

/** Pinned keys in an address, whatever is in them, and back. */
export function writeKeys(keys: readonly string[]): string | undefined {
  return keys.length ? keys.map(encodeURIComponent).join(",") : undefined;
}

export function readKeys(text: string | undefined): string[] {
  return (text ?? "").split(",").filter(Boolean).map((each) => {
    try {
      return decodeURIComponent(each);
    } catch {
      return each;
    }
  }); // prettier-ignore
}

/** `12.5..40` */
export function readZoom(text: string | undefined): [number, number] | null {
  const [low, high] = (text ?? "").split("..").map(Number);
  return low !== undefined && high !== undefined && Number.isFinite(low) && Number.isFinite(high) && low < high ? [low, high] : null;
}

export function writeZoom(zoom: readonly [number, number] | null): string | undefined {
  return zoom ? zoom.map((each) => String(Number(each.toPrecision(12)))).join("..") : undefined;
}
