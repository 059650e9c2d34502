/** The part of a log that the page holds: pages read from the server, and what is written now.
 *
 *     ├──── the whole log, on the server ────────────────────────────┤
 *                    ├── held ──┤              or          ├─ held ──┤→ live
 *
 * A line is known by its rank, its stream and its offset there, so what is told twice is held once,
 * and a line that was not whole yet is replaced when more of it comes. */

export interface LogLine {
  at: number;
  rank: string;
  stream: string;
  offset: number;
  text: string;
  attempt?: number;
}

export interface Chunk {
  rank: string;
  stream: string;
  attempt: number;
  offset: number;
  end: number;
  at: string;
  text: string;
}

export interface Limits {
  lines: number;
  characters: number;
}

export const MOST: Limits = { lines: 120_000, characters: 48_000_000 };

export function keyOf(line: LogLine): string {
  return `${line.attempt ?? 0}.${line.rank}.${line.stream}:${line.offset}`;
}

/** How a line is named in an address, and back. */
export function lineName(line: LogLine): string {
  return `${line.rank}.${line.stream}:${line.offset}:${line.at}`;
}

export function parseLine(name: string): Pick<LogLine, "rank" | "stream" | "offset" | "at"> | null {
  const [, rank, stream, offset, at] = /^(.{1,200})\.(out|err):(\d{1,15}):(\d{1,15})$/.exec(name) ?? [];
  if (!rank || !stream) return null;
  return { rank, stream, offset: Number(offset), at: Number(at) };
}

/** Bytes of a text in UTF-8. */
export function utf8Length(text: string): number {
  let bytes = text.length;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code < 0x80) continue;
    if (code < 0x800) bytes += 1;
    else {
      bytes += 2;
      if (code >= 0xd800 && code < 0xdc00) at += 1; // a pair: four bytes for two
    }
  }
  return bytes;
}

export class LogWindow {
  lines: LogLine[] = [];
  /** Whether it begins with the log's first line, and whether it goes on to its last. */
  fromStart = false;
  toEnd = false;
  private size = 0;
  /** How many lines were taken off the front: the place of a line is counted from the first ever. */
  private gone = 0;
  private last = new Map<string, { key: string; place: number; end: number | null }>();
  private heard = new Set<() => void>();
  private version = 0;
  private telling = false;

  constructor(
    private readonly most: Limits = MOST,
    private readonly soon: (tell: () => void) => void = (tell) => requestAnimationFrame(tell),
  ) {}

  /** In place of what was held. */
  set(lines: readonly LogLine[], fromStart: boolean, toEnd: boolean): void {
    this.lines = [];
    this.last.clear();
    this.size = this.gone = 0;
    this.fromStart = fromStart;
    this.toEnd = toEnd;
    for (const line of lines) this.put(line);
    this.tell();
  }

  /** A page that follows what is held: lines already here are left out. How many were new. */
  add(lines: readonly LogLine[]): number {
    const before = this.lines.length;
    for (const line of lines) {
      const known = this.last.get(nameOf(line));
      if (known && line.offset < offsetOf(known.key)) continue;
      this.put(line);
    }
    this.tell();
    return this.lines.length - before;
  }

  /** What a rank wrote just now: pieces of lines, joined with the one it had begun. It may begin
   * before what is held of the stream; then only what is new is taken. */
  hear(chunk: Chunk): void {
    if (!this.toEnd) return;
    const stream = nameOf(chunk);
    const known = this.last.get(stream);
    const open = known?.end === chunk.offset ? this.lines[known.place - this.gone] : undefined;
    const held = known ? offsetOf(known.key) : -1;
    if (!open && chunk.end <= held) return;
    const at = Date.parse(chunk.at);
    const first = this.lines[0];
    if (!known && !this.fromStart && first && at < first.at) return; // older than what is shown
    const pieces = ((open?.text ?? "") + chunk.text).split("\n");
    const rest = pieces.pop() as string;
    let offset = open?.offset ?? chunk.offset;
    const put = (text: string, end: number | null): void => {
      if (offset < held) return;
      const before = offset === held && known ? this.lines[known.place - this.gone] : undefined;
      this.put(
        { at: before?.at ?? at, rank: chunk.rank, stream: chunk.stream, attempt: chunk.attempt, offset, text },
        end,
      );
    };
    for (const piece of pieces) {
      put(piece.endsWith("\r") ? piece.slice(0, -1) : piece, null);
      offset += utf8Length(piece) + 1;
    }
    if (rest) put(rest, chunk.end);
    this.tell();
  }

  /** Lines from before what is held. How many were new: so far everything else has moved down. */
  older(lines: readonly LogLine[], fromStart: boolean): number {
    const first = new Map<string, number>();
    for (const line of this.lines) if (!first.has(nameOf(line))) first.set(nameOf(line), line.offset);
    const oldest = this.lines[0]?.at ?? Infinity;
    // many lines have the same time: within a stream the offset tells which was before
    const fresh = lines.filter((line) => line.at <= oldest && line.offset < (first.get(nameOf(line)) ?? Infinity));
    this.lines = [...fresh, ...this.lines];
    this.gone -= fresh.length;
    this.size += fresh.reduce((sum, line) => sum + line.text.length, 0);
    this.fromStart = fromStart;
    this.tell();
    return fresh.length;
  }

  /** Lines off the front until it is within its limits. Only while nobody reads there. */
  trim(): void {
    let over = 0;
    let size = this.size;
    while (over < this.lines.length && (this.lines.length - over > this.most.lines || size > this.most.characters)) {
      size -= (this.lines[over] as LogLine).text.length;
      over += 1;
    }
    if (!over) return;
    this.lines = this.lines.slice(over);
    this.size = size;
    this.gone += over;
    this.fromStart = false;
  }

  get full(): boolean {
    return this.lines.length >= this.most.lines || this.size >= this.most.characters;
  }

  /** The place of a line among those held; -1 where it is not. Of a line in the middle of which the
   * offset lies, its place. */
  find(wanted: { rank: string; stream: string; offset: number }): number {
    let before = -1;
    let after = -1;
    this.lines.forEach((line, place) => {
      if (line.rank !== wanted.rank || line.stream !== wanted.stream) return;
      if (line.offset <= wanted.offset) before = place;
      else if (after < 0) after = place;
    });
    if (before < 0) return -1;
    if ((this.lines[before] as LogLine).offset === wanted.offset) return before;
    return after >= 0 || this.toEnd ? before : -1;
  }

  /** Where each stream can be followed from: the start of its last line held. */
  offsets(): Map<string, number> {
    return new Map([...this.last].map(([name, { key }]) => [name, offsetOf(key)]));
  }

  subscribe = (change: () => void): (() => void) => {
    this.heard.add(change);
    return () => void this.heard.delete(change);
  };

  now = (): number => this.version;

  private put(line: LogLine, end: number | null = null): void {
    const stream = nameOf(line);
    const key = keyOf(line);
    const known = this.last.get(stream);
    const place = known ? known.place - this.gone : -1;
    if (known && place >= 0 && known.key === key) {
      this.size += line.text.length - (this.lines[place] as LogLine).text.length;
      this.lines[place] = line;
      known.end = end;
    } else {
      this.lines.push(line);
      this.size += line.text.length;
      this.last.set(stream, { key, place: this.gone + this.lines.length - 1, end });
    }
  }

  private tell(): void {
    if (this.telling) return;
    this.telling = true;
    this.soon(() => {
      this.telling = false;
      this.version += 1;
      this.heard.forEach((each) => each());
    });
  }
}

function nameOf(line: { rank: string; stream: string; attempt?: number }): string {
  return `${line.attempt ?? 0}.${line.rank}.${line.stream}`;
}

function offsetOf(key: string): number {
  return Number(key.slice(key.lastIndexOf(":") + 1));
}
