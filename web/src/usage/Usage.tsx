/** Who held and used what, what it costs, and what it may cost. */
import { Tabs } from "@mantine/core";
import type { ReactNode } from "react";

import { useWords } from "../i18n";
import { Page } from "../look/Page";
import { useUrl } from "../look/url";
import { useFeed } from "../shell/feed";
import { useFresh } from "../shell/fresh";
import { Budgets } from "./Budgets";
import { Prices } from "./Prices";
import { Report } from "./Report";
import { words } from "./words";

const TABS = ["report", "budgets", "prices"] as const;
const MOVES = new Set(["moved", "budget", "rules"]);
const WAIT_MS = 2000;

export default function Usage(): ReactNode {
  const w = useWords(words);
  const [url, change] = useUrl();
  const fresh = useFresh("usage", WAIT_MS); // a job that starts or ends changes what is on the ledger
  useFeed({ event: (event) => MOVES.has(event.kind) && fresh() });
  const tab = TABS.find((each) => each === url["tab"]) ?? "report";
  return (
    <Page title={w.title}>
      <Tabs value={tab} onChange={(next) => change({ tab: next === "report" ? undefined : (next ?? undefined) })} keepMounted={false}>
        <Tabs.List mb="md">
          {TABS.map((each) => <Tabs.Tab key={each} value={each}>{w.tabs[each]}</Tabs.Tab>)}
        </Tabs.List>
        <Tabs.Panel value="report"><Report /></Tabs.Panel>
        <Tabs.Panel value="budgets"><Budgets /></Tabs.Panel>
        <Tabs.Panel value="prices"><Prices /></Tabs.Panel>
      </Tabs>
    </Page>
  );
} // prettier-ignore
