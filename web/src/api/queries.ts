/** What the server answered, kept for whoever asks the same. */
import { QueryClient } from "@tanstack/react-query";

import { Refused } from "./client";

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 30_000, // the feed says what is stale before that
      refetchOnWindowFocus: false,
      retry: (times, error) => times < 3 && !(error instanceof Refused && error.status < 500),
    },
  },
});
