/** The job file is the one truth of the page: fields of the form read from its text and write into
 * it, so that comments, order and what no field knows stay as they are. Pure.
 *
 * The YAML is the server's: only `true` and `false` are truths, `on` is a word, dates are text. */
import { Document, isMap, isScalar, LineCounter, parseAllDocuments, parseDocument, type ScalarTag } from "yaml";

export type Spec = Record<string, unknown>;
export type Path = readonly string[];
export interface Found {
  spec: Spec | null;
  /** Why it cannot be read, and on which line. */
  wrong: { line: number; why: string } | null;
}

const number: ScalarTag = {
  tag: "tag:yaml.org,2002:float",
  default: true,
  identify: (value) => typeof value === "number",
  test: /^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$/,
  resolve: (text) => Number(text),
  stringify: ({ value }) => String(value),
};
const OPTIONS = {
  schema: "failsafe" as const,
  customTags: [nullTag(), boolTag(), number],
  uniqueKeys: true,
  prettyErrors: false,
};
const WRITE = { lineWidth: 0, flowCollectionPadding: false } as const;

function nullTag(): ScalarTag {
  return { tag: "tag:yaml.org,2002:null", default: true, identify: (value) => value === null, test: /^(?:null|~)?$/, resolve: () => null, stringify: () => "null" };
}

function boolTag(): ScalarTag {
  return {
    tag: "tag:yaml.org,2002:bool", default: true, identify: (value) => typeof value === "boolean", test: /^(?:true|false)$/,
    resolve: (text) => text === "true", stringify: ({ value }) => String(value),
  }; // prettier-ignore
}

/** What the server is asked with. */
export function read(text: string): Found {
  const lines = new LineCounter();
  const all = parseAllDocuments(text, { ...OPTIONS, lineCounter: lines });
  const several = Array.isArray(all) ? all.filter((each) => each.contents !== null) : [];
  const document = several[0] ?? parseDocument(text, OPTIONS);
  const error = several.flatMap((each) => each.errors)[0] ?? document.errors[0];
  if (error) return { spec: null, wrong: { line: lines.linePos(error.pos[0]).line, why: error.message } };
  if (several.length > 1) {
    const at = several[1]?.range?.[0] ?? 0;
    return { spec: null, wrong: { line: lines.linePos(at).line, why: "several" } };
  }
  if (document.contents === null || (isScalar(document.contents) && document.contents.value === null)) return { spec: {}, wrong: null };
  if (!isMap(document.contents)) return { spec: null, wrong: { line: 1, why: "mapping" } };
  return { spec: document.toJS() as Spec, wrong: null };
}

/** The text with one field set; undefined takes it out, and what is empty above it. */
export function write(text: string, path: Path, value: unknown): string {
  const document = parseDocument(text, OPTIONS);
  if (document.errors.length) return text; // what cannot be read is not written over
  if (!isMap(document.contents)) document.contents = new Document({}, OPTIONS).contents as never;
  if (value === undefined) drop(document, path);
  else {
    for (let depth = 1; depth < path.length; depth++) {
      const above = document.getIn(path.slice(0, depth), true);
      if (!isMap(above)) document.setIn(path.slice(0, depth), document.createNode({}));
    }
    document.setIn(path, typeof value === "object" ? document.createNode(value, { flow: Array.isArray(value) }) : value);
  }
  if (isMap(document.contents) && !document.contents.items.length) {
    const above = document.commentBefore ? `${document.commentBefore.replace(/^/gm, "#")}\n` : "";
    return above;
  }
  if (isMap(document.contents)) document.contents.flow = false;
  return document.toString(WRITE);
}

function drop(document: Document, path: Path): void {
  if (!document.hasIn(path)) return;
  document.deleteIn(path);
  const above = path.slice(0, -1);
  const parent = above.length ? document.getIn(above, true) : null;
  if (isMap(parent) && !parent.items.length) drop(document, above);
}

export function at(spec: Spec | null, path: Path): unknown {
  let found: unknown = spec;
  for (const key of path) {
    if (typeof found !== "object" || found === null) return undefined;
    found = (found as Spec)[key];
  }
  return found;
}

/** A spec as a job file, its fields in the order of the reference. */
export function textOf(spec: Spec): string {
  const order = ["kind", "name", "run", "params", "framework", "workers", "roles", "code", "environment"];
  const keys = [...order.filter((key) => key in spec), ...Object.keys(spec).filter((key) => !order.includes(key))];
  return new Document(Object.fromEntries(keys.map((key) => [key, spec[key]])), OPTIONS).toString(WRITE);
}
