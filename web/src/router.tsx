/** Every page and its address. Pages are loaded when they are first seen. */
import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";

import { BASE } from "./api/client";
import { parseQuery, writeQuery, type Query } from "./look/url";
import { Broken, Missing } from "./shell/Broken";
import { Shell } from "./shell/Shell";

const root = createRootRoute({
  component: Shell,
  notFoundComponent: Missing,
  errorComponent: Broken,
  validateSearch: (search: Record<string, unknown>) => search as Record<string, string>,
});

interface PageModule {
  default: () => React.ReactNode;
  /** Asks for what the page shows first, before it is known who looks: the answer waits for it. */
  early?: (query: Query) => void;
}

// The build reads the lines below: which file is the page of which address.
function page<P extends string>(path: P, load: () => Promise<PageModule>) {
  return createRoute({
    getParentRoute: () => root,
    path,
    component: lazyRouteComponent(load),
    loader: ({ location }) => void load().then((module) => module.early?.(location.search as Query), () => undefined),
  });
}

const tree = root.addChildren([
  page("/", () => import("./home/Home")),
  page("/jobs", () => import("./jobs/Jobs")),
  page("/jobs/new", () => import("./jobs/new/NewJob")),
  page("/jobs/$job", () => import("./jobs/job/Job")),
  page("/compare", () => import("./compare/Compare")),
  page("/studies", () => import("./studies/Studies")),
  page("/studies/$study", () => import("./studies/Study")),
  page("/models", () => import("./models/Models")),
  page("/models/$model", () => import("./models/Model")),
  page("/nodes", () => import("./nodes/Nodes")),
  page("/queues", () => import("./queues/Queues")),
  page("/usage", () => import("./usage/Usage")),
  page("/audit", () => import("./audit/Audit")),
  page("/admin", () => import("./admin/Admin")),
  page("/settings", () => import("./settings/Settings")),
]);

export const router = createRouter({
  routeTree: tree,
  basepath: BASE,
  parseSearch: parseQuery,
  stringifySearch: writeQuery,
  defaultPreload: "intent",
  defaultErrorComponent: Broken,
  defaultNotFoundComponent: Missing,
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
