/** Checks the audit log's chain of hashes in the browser, with nothing of the server's word.
 *
 *     hash(n) = SHA-256( hash(n-1) + the row n as JSON, without its hash )
 *
 * The JSON has sorted keys, no spaces and only ASCII, as Python writes it. Numbers keep the text
 * they came with: 1.0 read and written by JavaScript would be 1, and its hash another. */
export const BEGINNING = "0".repeat(64);

type Value = null | boolean | string | RawNumber | Value[] | Map<string, Value>;

class RawNumber {
  constructor(readonly text: string) {}
}

/** A line of an export: what it says of itself, and the text that its hash is of. */
export interface Line {
  number: number;
  hash: string;
  content: string;
}

export function parseLine(text: string): Line {
  const row = new Reader(text).whole();
  if (!(row instanceof Map)) throw new Error("not a row");
  const number = row.get("number");
  const hash = row.get("hash");
  if (!(number instanceof RawNumber) || typeof hash !== "string") throw new Error("not a row");
  row.delete("hash");
  return { number: Number(number.text), hash, content: write(row) };
}

export type Why = "missing" | "changed" | "end";

/** Takes rows in order; `broken` is the first that does not fit. */
export class Walk {
  rows = 0;
  last = 0;
  hash = BEGINNING;
  broken: { row: number; why: Why } | null = null;

  constructor(private readonly digest: (text: string) => Promise<string>) {}

  async take(line: Line): Promise<boolean> {
    if (line.number !== this.last + 1) this.broken = { row: this.last + 1, why: "missing" };
    else if ((await this.digest(this.hash + line.content)) !== line.hash) this.broken = { row: line.number, why: "changed" };
    if (this.broken) return false;
    this.rows += 1;
    this.last = line.number;
    this.hash = line.hash;
    return true;
  }

  /** After the last row: what was noted elsewhere must be in it. */
  end(noted: { number: number; hash: string }, at: (number: number) => string | undefined): void {
    if (this.broken || !noted.number) return;
    const found = noted.number === this.last ? this.hash : at(noted.number);
    if (noted.number > this.last || (found !== undefined && found !== noted.hash)) {
      this.broken = { row: noted.number, why: "end" };
    }
  }
}

/** SHA-256 in hex; null where the browser has none to offer (plain HTTP from another machine). */
export function digester(): ((text: string) => Promise<string>) | null {
  const subtle = (globalThis.crypto as Crypto | undefined)?.subtle as SubtleCrypto | undefined;
  if (!subtle) return null;
  const encoder = new TextEncoder();
  return async (text) => {
    const found = new Uint8Array(await subtle.digest("SHA-256", encoder.encode(text)));
    return Array.from(found, (each) => each.toString(16).padStart(2, "0")).join("");
  };
}

function write(value: Value): string {
  if (value === null) return "null";
  if (typeof value === "boolean") return String(value);
  if (typeof value === "string") return quoted(value);
  if (value instanceof RawNumber) return value.text;
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`;
  const keys = [...value.keys()].sort(byCodePoint);
  return `{${keys.map((key) => `${quoted(key)}:${write(value.get(key) as Value)}`).join(",")}}`;
}

const SHORT: Readonly<Record<string, string>> = {
  '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f",
}; // prettier-ignore

function quoted(text: string): string {
  // eslint-disable-next-line no-control-regex
  const safe = text.replace(/["\\]|[^ -~]/g, (each) => SHORT[each] ?? `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `"${safe}"`;
}

function byCodePoint(one: string, other: string): number {
  const [a, b] = [[...one], [...other]];
  for (let at = 0; at < Math.min(a.length, b.length); at++) {
    const by = (a[at] as string).codePointAt(0)! - (b[at] as string).codePointAt(0)!;
    if (by) return by;
  }
  return a.length - b.length;
}

/** JSON, with numbers left as they are written. */
class Reader {
  private at = 0;

  constructor(private readonly text: string) {}

  whole(): Value {
    const found = this.value();
    this.space();
    if (this.at !== this.text.length) throw this.wrong();
    return found;
  }

  private value(): Value {
    this.space();
    const next = this.text[this.at];
    if (next === "{") return this.object();
    if (next === "[") return this.list();
    if (next === '"') return this.string();
    const word = /^(?:true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|NaN|-?Infinity)/.exec(this.text.slice(this.at, this.at + 400));
    if (!word) throw this.wrong();
    this.at += word[0].length;
    if (word[0] === "null") return null;
    if (word[0] === "true" || word[0] === "false") return word[0] === "true";
    return new RawNumber(word[0]);
  }

  private object(): Map<string, Value> {
    const found = new Map<string, Value>();
    this.many("{", "}", () => {
      this.space();
      const key = this.string();
      this.space();
      this.expect(":");
      found.set(key, this.value());
    });
    return found;
  }

  private list(): Value[] {
    const found: Value[] = [];
    this.many("[", "]", () => found.push(this.value()));
    return found;
  }

  private many(open: string, close: string, one: () => void): void {
    this.expect(open);
    this.space();
    if (this.text[this.at] === close) {
      this.at += 1;
      return;
    }
    for (;;) {
      one();
      this.space();
      if (this.text[this.at] === close) {
        this.at += 1;
        return;
      }
      this.expect(",");
    }
  }

  private string(): string {
    const from = this.at;
    this.expect('"');
    while (this.text[this.at] !== '"') {
      if (this.at >= this.text.length) throw this.wrong();
      this.at += this.text[this.at] === "\\" ? 2 : 1;
    }
    this.at += 1;
    return JSON.parse(this.text.slice(from, this.at)) as string;
  }

  private expect(letter: string): void {
    if (this.text[this.at] !== letter) throw this.wrong();
    this.at += 1;
  }

  private space(): void {
    while (" \n\r\t".includes(this.text[this.at] ?? "x")) this.at += 1;
  }

  private wrong(): Error {
    return new Error(`not JSON at ${this.at}`);
  }
}
