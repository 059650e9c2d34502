/** Models change by themselves when a job registers one or somebody moves an alias. */
import { useQueryClient } from "@tanstack/react-query";

import { useFeed } from "../shell/feed";

const OVER = new Set(["succeeded", "failed", "cancelled"]);

/** Asked anew when a model changed, and when a job is over: it may have registered one. */
export function useModelsLive(): void {
  const queries = useQueryClient();
  useFeed({
    event: (event) => {
      if (event.kind === "model" || (event.state && OVER.has(event.state))) {
        void queries.invalidateQueries({ queryKey: ["models"] });
        void queries.invalidateQueries({ queryKey: ["model"] });
      }
    },
  });
}
