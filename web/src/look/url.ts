/** The URL is the view: a page's choices are its search parameters, as plain strings. */
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";

export type Query = Readonly<Record<string, string>>;

/** What the address says, and a way to change some of it; undefined or "" takes a choice out.
 * `replace` keeps what is typed letter by letter out of the history. */
export function useUrl(): [Query, (changes: Record<string, string | undefined>, replace?: boolean) => void] {
  const found: Query = useSearch({ strict: false });
  const navigate = useNavigate();
  const change = useCallback(
    (changes: Record<string, string | undefined>, replace = false) => {
      void navigate({
        to: ".",
        search: (before: Record<string, unknown>) => {
          const after: Record<string, unknown> = { ...before, ...changes };
          for (const key of Object.keys(after)) if (after[key] === undefined || after[key] === "") delete after[key];
          return after as never;
        },
        replace,
        resetScroll: false,
      });
    },
    [navigate],
  );
  return [found, change];
}

/** Search parameters as they are read and written: strings, never JSON. */
export function parseQuery(text: string): Record<string, string> {
  return Object.fromEntries(new URLSearchParams(text));
}

export function writeQuery(query: Record<string, unknown>): string {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return text ? `?${text}` : "";
}
