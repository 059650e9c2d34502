/** Lines of a log from the server, as they come; whoever has enough stops reading. */
import { BASE, headers, logIn, refusal } from "../../../api/client";
import type { LogLine } from "./window";

export interface Wanted {
  rank?: string;
  stream?: string;
  attempt: number;
  grep?: string;
  tail?: number;
  /** Milliseconds. */
  since?: number;
}

/** What is meant by an error in a log: the first line of this kind is jumped to. */
export const ERROR =
  "(?i)(traceback \\(most recent call|\\b[a-z_.]*(error|exception)\\b|\\bfatal\\b|\\bpanic\\b|segmentation fault|core dumped|out of memory|\\bkilled\\b)";

export function logQuery(wanted: Wanted, format: "json" | "text"): string {
  const query = new URLSearchParams({ format });
  if (wanted.attempt) query.set("attempt", String(wanted.attempt));
  if (wanted.rank) query.set("rank", wanted.rank);
  if (wanted.stream) query.set("stream", wanted.stream);
  if (wanted.grep) query.set("grep", wanted.grep);
  if (wanted.tail !== undefined) query.set("tail", String(wanted.tail));
  if (wanted.since !== undefined) query.set("since", new Date(wanted.since).toISOString());
  return query.toString();
}

export async function* logLines(ref: string, wanted: Wanted, signal: AbortSignal): AsyncGenerator<LogLine> {
  const abort = new AbortController();
  const stop = (): void => abort.abort();
  signal.addEventListener("abort", stop);
  try {
    const address = `${BASE}api/v1/jobs/${encodeURIComponent(ref)}/logs?${logQuery(wanted, "json")}`;
    const answer = await fetch(address, { headers: headers(), signal: abort.signal, cache: "no-store" });
    if (answer.status === 401) logIn();
    if (!answer.ok || !answer.body) throw await refusal(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      const pieces = (rest + (value ?? "")).split("\n");
      rest = pieces.pop() as string;
      for (const piece of pieces) yield lineOf(piece, wanted.attempt || 1); // a job that had none yet has its first now
      if (done) break;
    }
    if (rest) yield lineOf(rest, wanted.attempt || 1);
  } finally {
    signal.removeEventListener("abort", stop);
    abort.abort();
  }
}

/** At most so many. */
export async function firstLines(ref: string, wanted: Wanted, most: number, signal: AbortSignal): Promise<{ lines: LogLine[]; more: boolean }> {
  const lines: LogLine[] = [];
  for await (const line of logLines(ref, wanted, signal)) {
    if (lines.length >= most) return { lines, more: true };
    lines.push(line);
  }
  return { lines, more: false };
}

/** A line with what stands before and behind it. */
export async function around(
  ref: string,
  wanted: Wanted,
  target: { rank: string; stream: string; offset: number; at: number },
  before: number,
  after: number,
  signal: AbortSignal,
): Promise<{ lines: LogLine[]; more: boolean; fromStart: boolean }> {
  let lines: LogLine[] = [];
  let dropped = false;
  let behind = -1;
  const since = Math.max(0, target.at - 5_000);
  for await (const line of logLines(ref, { ...wanted, since }, signal)) {
    if (behind < 0 && lines.length >= 2 * before) {
      lines = lines.slice(before);
      dropped = true;
    }
    lines.push(line);
    const same = line.rank === target.rank && line.stream === target.stream;
    if (behind < 0 && ((same && line.offset >= target.offset) || line.at > target.at + 5_000)) behind = 0;
    else if (behind >= 0) behind += 1;
    if (behind >= after) return { lines, more: true, fromStart: false };
  }
  return { lines, more: false, fromStart: !dropped && since === 0 };
}

function lineOf(piece: string, attempt: number): LogLine {
  const found = JSON.parse(piece) as { rank: string; stream: string; at: string; offset: number; text: string };
  return { rank: found.rank, stream: found.stream, at: Date.parse(found.at), offset: found.offset, text: found.text, attempt };
}
