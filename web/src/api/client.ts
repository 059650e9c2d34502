/** Calls of the server. Types come from its own OpenAPI document, so drift fails the build. */
import createClient, { type Middleware } from "openapi-fetch";

import type { components, paths } from "./schema";

export type Schema = components["schemas"];

/** Where the server is: `/` or what `--base-path` says, always with a slash at its end. */
export const BASE = new URL(document.baseURI).pathname.replace(/[^/]*$/, "");

/** One field that was wrong: where, what stood there, what may. */
export interface WrongField {
  field: string;
  found: string;
  allowed: string;
}

/** What the server said when it refused: one form, see docs/reference/errors.md. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
    readonly fields: readonly WrongField[] = [],
  ) {
    super(message);
  }
}

let chosen: string | null = null;

/** Calls are about this project from now on; null: the one that the login is about. */
export function speakFor(project: string | null): void {
  chosen = project;
}

export function headers(): Record<string, string> {
  return { "X-Wl-Client": "page", ...(chosen ? { "X-Wl-Project": chosen } : {}) };
}

/** To the login page, and back here afterwards. */
export function logIn(): void {
  const back = location.pathname + location.search + location.hash;
  location.assign(`${BASE}login?next=${encodeURIComponent(back)}`);
}

export async function refusal(response: Response): Promise<Refused> {
  const text = await response.text();
  try {
    const found = (JSON.parse(text) as {
      error: { code: string; message: string; hint?: string; details?: { fields?: WrongField[] } };
    }).error;
    const { code, message, hint = "", details } = found;
    return new Refused(response.status, code, message, hint, details?.fields ?? []);
  } catch {
    return new Refused(response.status, "unknown", text.slice(0, 300) || response.statusText, "");
  }
}

const speaking: Middleware = {
  onRequest({ request }) {
    for (const [name, value] of Object.entries(headers())) request.headers.set(name, value);
    return request;
  },
  async onResponse({ response }) {
    if (response.ok) return undefined;
    if (response.status === 401) logIn();
    throw await refusal(response);
  },
};

export const api = createClient<paths>({ baseUrl: BASE.replace(/\/$/, "") });
api.use(speaking);

/** The body of an answer; refusals were thrown by the middleware. */
export async function got<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T;
}
