/** Server-sent events by fetch: headers can be sent, and a broken stream goes on at its cursor.
 *
 * A hidden page lets go of its streams after a while and takes them up where it left when it is
 * seen again: browsers open only six connections to one server, for all tabs together. */
import { BASE, headers, logIn } from "./client";

export interface Message {
  kind: string;
  data: unknown;
  id: string | null;
}

type Heard = (message: Message) => void;
export type Health = "live" | "waiting" | "paused";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
const HIDDEN_MS = 20_000;

/** Splits a text stream into messages; what is not whole yet stays for the next piece. */
export class Splitter {
  private rest = "";

  *take(piece: string): Generator<Message> {
    this.rest += piece;
    for (;;) {
      const end = /\r?\n\r?\n/.exec(this.rest);
      if (!end) return;
      const block = this.rest.slice(0, end.index);
      this.rest = this.rest.slice(end.index + end[0].length);
      let kind = "message";
      let id: string | null = null;
      const data: string[] = [];
      for (const line of block.split(/\r?\n/)) {
        const [, field, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
        if (field === "event") kind = value ?? "";
        else if (field === "id") id = value ?? "";
        else if (field === "data") data.push(value ?? "");
      }
      if (data.length) yield { kind, id, data: JSON.parse(data.join("\n")) as unknown };
    }
  }
}

/** Follow until the returned function is called. `path` is below `/api/v1`. An `end` ends it. */
export function follow(
  path: string,
  heard: Heard,
  health: (health: Health) => void = () => undefined,
  cursor: string | null = null,
): () => void {
  let stopped = false;
  let abort = new AbortController();
  let wait = FIRST_WAIT_MS;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let hiding: ReturnType<typeof setTimeout> | undefined;
  let paused = false;

  const connect = async (): Promise<void> => {
    abort = new AbortController();
    try {
      const known: Record<string, string> = cursor === null ? {} : { "Last-Event-ID": cursor };
      const answer = await fetch(`${BASE}api/v1/${path}`, {
        headers: { Accept: "text/event-stream", ...headers(), ...known },
        signal: abort.signal,
        cache: "no-store",
      });
      if (answer.status === 401) return logIn();
      if (!answer.ok || !answer.body) {
        if (answer.status < 500 && answer.status !== 429) return health("paused");
        throw new Error(String(answer.status));
      }
      health("live");
      wait = FIRST_WAIT_MS;
      const splitter = new Splitter();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        for (const message of splitter.take(value)) {
          if (message.id !== null) cursor = message.id;
          heard(message);
          if (message.kind === "end") {
            stopped = true;
            abort.abort();
            return;
          }
        }
      }
    } catch {
      // the network or the server went away: below it is tried again
    }
    if (stopped || paused) return;
    health("waiting");
    timer = setTimeout(() => void connect(), wait * (0.5 + Math.random()));
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  };

  const seen = (): void => {
    clearTimeout(hiding);
    if (document.visibilityState === "hidden") {
      hiding = setTimeout(() => {
        paused = true;
        clearTimeout(timer);
        abort.abort();
        health("paused");
      }, HIDDEN_MS);
    } else if (paused && !stopped) {
      paused = false;
      void connect();
    }
  };
  document.addEventListener("visibilitychange", seen);
  void connect();

  return () => {
    stopped = true;
    clearTimeout(timer);
    clearTimeout(hiding);
    document.removeEventListener("visibilitychange", seen);
    abort.abort();
  };
}
