/** Users, projects and what they may; each tab is shown to who may look at it. */
import { Tabs } from "@mantine/core";
import type { ReactNode } from "react";

import type { Schema } from "../api/client";
import { useWords } from "../i18n";
import { Page } from "../look/Page";
import { useUrl } from "../look/url";
import { useWho } from "../shell/who";
import { Credentials } from "./Credentials";
import { Limits } from "./Limits";
import { Projects } from "./Projects";
import { Quotas } from "./Quotas";
import { Roles } from "./Roles";
import { Secrets } from "./Secrets";
import { Server } from "./Server";
import { Users } from "./Users";
import { words } from "./words";

const TABS: readonly { name: keyof (typeof words)["en"]["tabs"]; right: Schema["Right"]; tab: () => ReactNode }[] = [
  { name: "users", right: "user.read", tab: Users },
  { name: "projects", right: "project.read", tab: Projects },
  { name: "roles", right: "self.read", tab: Roles },
  { name: "keys", right: "key.own", tab: Credentials },
  { name: "secrets", right: "secret.read", tab: Secrets },
  { name: "quotas", right: "quota.read", tab: Quotas },
  { name: "limits", right: "limit.read", tab: Limits },
  { name: "server", right: "server.read", tab: Server },
];

export default function Admin(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [url, change] = useUrl();
  const open = TABS.filter((each) => who.may(each.right));
  const chosen = open.find((each) => each.name === url["tab"]) ?? open[0];
  return (
    <Page title={w.title}>
      <Tabs value={chosen?.name ?? null} keepMounted={false}
        onChange={(tab) => change({ ...Object.fromEntries(Object.keys(url).map((key) => [key, undefined])), tab: tab ?? undefined })}>
        <Tabs.List mb="md">
          {open.map((each) => <Tabs.Tab key={each.name} value={each.name}>{w.tabs[each.name]}</Tabs.Tab>)}
        </Tabs.List>
        {open.map((each) => <Tabs.Panel key={each.name} value={each.name}><each.tab /></Tabs.Panel>)}
      </Tabs>
    </Page>
  );
} // prettier-ignore
