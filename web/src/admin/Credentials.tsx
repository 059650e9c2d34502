/** Keys and tokens of whoever the caller may act for. */
import { Select, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { api, got } from "../api/client";
import { useWords } from "../i18n";
import { Keys } from "../keys/Keys";
import { Tokens } from "../keys/Tokens";
import { useUrl } from "../look/url";
import { useWho } from "../shell/who";
import { words } from "./words";

export function Credentials(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [url, change] = useUrl();
  const names = useNames();
  const user = url["user"] && url["user"] !== who.user ? url["user"] : undefined;
  return (
    <>
      <Text size="sm" c="dimmed" mb="xs">{w.keysHint}</Text>
      <Select w={240} size="xs" mb="md" label={w.keysOf} searchable allowDeselect={false} value={user ?? who.user}
        data={[...new Set([who.user, ...names])].map((each) => ({ value: each, label: each === who.user ? `${each} (${w.own})` : each }))}
        onChange={(next) => change({ user: next === who.user ? undefined : (next ?? undefined) })} />
      <Keys key={`keys-${user}`} {...(user ? { user } : {})} />
      <Tokens key={`tokens-${user}`} {...(user ? { user } : {})} />
    </>
  );
} // prettier-ignore

/** Whom the caller may act for: everybody for who changes users, service accounts for a maintainer. */
function useNames(): string[] {
  const who = useWho();
  const all = who.may("user.write");
  const users = useQuery({ queryKey: ["users"], queryFn: () => got(api.GET("/api/v1/users")), enabled: all });
  const name = who.project ?? "";
  const members = useQuery({
    queryKey: ["projects", name],
    queryFn: () => got(api.GET("/api/v1/projects/{name}", { params: { path: { name } } })),
    enabled: !all && Boolean(name) && who.may("project.write"),
  });
  if (all) return (users.data?.items ?? []).map((each) => each.name);
  return (members.data?.people ?? []).filter((each) => each.kind === "service").map((each) => each.user);
}
