/** Who looks at the page, in which project, and what it may do there. */
import { useQuery } from "@tanstack/react-query";
import { createContext, useCallback, useContext, useMemo, type ReactNode } from "react";

import { api, got, speakFor, type Schema } from "../api/client";
import { queries } from "../api/queries";

type Right = Schema["Right"];

interface Who {
  user: string;
  project: string | null;
  projects: readonly Schema["ProjectView"][];
  /** Whether the caller has this right in the project. The server decides anew at each call. */
  may: (right: Right) => boolean;
  choose: (project: string) => void;
}

const KEY = "windlass-project";
const Known = createContext<Who | null>(null);

function remembered(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function remember(project: string | null): void {
  try {
    if (project) localStorage.setItem(KEY, project);
    else localStorage.removeItem(KEY);
  } catch {
    // storage is closed to us: the choice holds until the page is loaded anew
  }
  speakFor(project);
}

speakFor(remembered());

/** A project that is not the caller's any more must not lock it out: then the login's own. */
async function ask(): Promise<{ me: Schema["WhoAmI"]; projects: Schema["ProjectView"][] }> {
  const both = () =>
    Promise.all([got(api.GET("/api/v1/whoami")), got(api.GET("/api/v1/projects"))]);
  try {
    const [me, page] = await both();
    return { me, projects: page.items };
  } catch (error) {
    if (!remembered()) throw error;
    remember(null);
    // what a page asked early was asked for that project
    queries.removeQueries({ predicate: (each) => each.queryKey[0] !== "who" });
    const [me, page] = await both();
    return { me, projects: page.items };
  }
}

export function WhoIsThere({ children, refused }: {
  children: ReactNode;
  refused: (error: unknown) => ReactNode;
}): ReactNode {
  const { data, error } = useQuery({ queryKey: ["who"], queryFn: ask, staleTime: Infinity });
  const choose = useCallback(
    (project: string) => {
      remember(project);
      void queries.resetQueries();
    },
    [],
  );
  const who = useMemo<Who | null>(() => {
    if (!data) return null;
    const rights = new Set(data.me.rights);
    return {
      user: data.me.user,
      project: data.me.project ?? null,
      projects: data.projects,
      may: (right) => rights.has(right),
      choose,
    };
  }, [data, choose]);
  if (error) return refused(error);
  if (!who) return null;
  return <Known value={who}>{children}</Known>;
}

export function useWho(): Who {
  const who = useContext(Known);
  if (!who) throw new Error("useWho outside of WhoIsThere");
  return who;
}
