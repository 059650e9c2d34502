/** Two jobs as rows of dotted names: only those that differ. */
export interface Difference {
  name: string;
  /** Absent: it is not there. */
  here?: string;
  there?: string;
}

const MOST = 2000;

/** `{"a": {"b": [1, 2]}}` as `a.b` = `[1,2]`; what is empty, null or false says nothing. */
export function flat(value: unknown, name = ""): Map<string, string> {
  const found = new Map<string, string>();
  const walk = (each: unknown, path: string): void => {
    if (found.size >= MOST || each === null || each === undefined || each === "") return;
    if (Array.isArray(each)) {
      if (each.length) found.set(path, each.every((word) => typeof word !== "object") ? each.join(" ") : JSON.stringify(each));
    } else if (typeof each === "object") {
      for (const [key, inner] of Object.entries(each)) walk(inner, path ? `${path}.${key}` : key);
    } else found.set(path, String(each));
  };
  walk(value, name);
  return found;
}

export function differences(here: ReadonlyMap<string, string>, there: ReadonlyMap<string, string>): Difference[] {
  const names = [...new Set([...here.keys(), ...there.keys()])].sort();
  return names
    .filter((name) => here.get(name) !== there.get(name))
    .map((name) => ({ name, here: here.get(name), there: there.get(name) }));
}

export interface DiffLine {
  kind: "same" | "added" | "removed" | "head";
  text: string;
}

/** Lines of a unified diff by what they mean. */
export function diffLines(text: string): DiffLine[] {
  return text.split("\n").map((line) => {
    if (/^(@@|---|\+\+\+|diff |index )/.test(line)) return { kind: "head", text: line };
    if (line.startsWith("+")) return { kind: "added", text: line };
    if (line.startsWith("-")) return { kind: "removed", text: line };
    return { kind: "same", text: line };
  });
}
