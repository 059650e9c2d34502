/** Ask a noun's queries anew soon, and not more often than that however much is heard. */
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef } from "react";

export function useFresh(key: string, waitMs: number): () => void {
  const queries = useQueryClient();
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      void queries.invalidateQueries({ queryKey: [key] });
    }, waitMs);
  }, [queries, key, waitMs]);
}
