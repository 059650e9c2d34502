/** Jobs beside each other: curves, differences, parameters against results. */
import { Button, Group, Tabs, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo, type ReactNode } from "react";

import { api, got } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { count } from "../i18n/format";
import { Command } from "../look/Command";
import { Empty, Page } from "../look/Page";
import { Waiting } from "../look/Part";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { CopyMenu } from "./CopyMenu";
import { CurvesTab } from "./CurvesTab";
import { MOST, useSides } from "./data";
import { Differences } from "./Differences";
import { Add, Chosen } from "./Jobs";
import { BarsTab, ParallelTab, ScatterTab } from "./Pictures";
import type { Side } from "./sides";
import { words } from "./words";

const TABS = ["curves", "table", "parallel", "scatter", "bars"] as const;

export default function Compare(): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [url, change] = useUrl();
  const refs = useMemo(() => (url.jobs ?? "").split(",").map((each) => each.trim()).filter(Boolean), [url.jobs]);
  const where = url.jobs ? "" : (url.where ?? "");
  const from = Math.max(0, Number(url.from) || 0);
  const { sides: found, starts, total, missing, loading, error } = useSides({ refs, where, from });
  /** The baseline stands first. */
  const sides = useMemo(() => {
    const base = found.find((side) => side.id === url.base || side.name === url.base);
    return base ? [base, ...found.filter((side) => side !== base)] : found;
  }, [found, url.base]);
  const everything = url.all === "1";
  const tab = TABS.find((each) => each === url.tab) ?? "curves";
  const setJobs = (ids: readonly string[]): void =>
    change({ jobs: ids.join(","), where: undefined, from: undefined, ...(ids.includes(url.base ?? "") ? {} : { base: undefined }) });

  if (!refs.length && !where) {
    return (
      <Page title={w.title}>
        <Nothing choose={setJobs} />
      </Page>
    );
  }
  const shown = where ? Math.min(MOST, total - from) : Math.min(MOST, refs.length - from);
  return (
    <Page
      title={w.title}
      actions={<CopyMenu sides={sides} everything={everything} where={where} />}
    >
      {Boolean(error) && <Told error={error} />}
      {missing.length > 0 && (
        <Text size="sm" mb="xs" role="status">
          {w.missing(missing.map((each) => each.slice(0, 12)).join(", "))}
        </Text>
      )}
      <Chosen sides={sides} setJobs={setJobs} />
      <Add chosen={sides} setJobs={setJobs} />
      {total > shown && (
        <Group gap="sm" mb="sm">
          <Text size="sm" role="status">
            {w.showing(count(shown, language), count(total, language))}
          </Text>
          {from + shown < total && (
            <Button size="compact-xs" variant="default" onClick={() => change({ from: String(from + MOST) })}>
              {w.next}
            </Button>
          )}
          {from > 0 && (
            <Button size="compact-xs" variant="default" onClick={() => change({ from: undefined })}>
              {w.first}
            </Button>
          )}
        </Group>
      )}
      {loading && <Waiting rows={sides.length ? 1 : undefined} />}
      {sides.length === 1 && !loading && <Text size="sm" mb="sm">{w.oneMore}</Text>}
      {sides.length > 0 && (
        <Tabs value={tab} onChange={(next) => change({ tab: next === "curves" || !next ? undefined : next })} keepMounted={false}>
          <Tabs.List mb="sm" style={{ flexWrap: "nowrap", overflowX: "auto" }}>
            {TABS.map((each) => (
              <Tabs.Tab key={each} value={each}>
                {w.tabs[each]}
              </Tabs.Tab>
            ))}
          </Tabs.List>
          <Tabs.Panel value="curves">
            <CurvesTab sides={sides} starts={starts} loading={loading} />
          </Tabs.Panel>
          <Tabs.Panel value="table">
            <Differences sides={sides} everything={everything} />
          </Tabs.Panel>
          <Tabs.Panel value="parallel">
            <ParallelTab sides={sides} keep={setJobs} />
          </Tabs.Panel>
          <Tabs.Panel value="scatter">
            <ScatterTab sides={sides} />
          </Tabs.Panel>
          <Tabs.Panel value="bars">
            <BarsTab sides={sides} />
          </Tabs.Panel>
        </Tabs>
      )}
    </Page>
  );
}

/** Nothing is chosen: how to get here, and a button that does it. */
function Nothing({ choose }: { choose: (ids: readonly string[]) => void }): ReactNode {
  const w = useWords(words);
  const { data } = useQuery({
    queryKey: ["jobs", "last", 3],
    queryFn: () => got(api.GET("/api/v1/jobs", { params: { query: { limit: 3 } } })),
  });
  const last = data?.items ?? [];
  const names = last.length > 1 ? last.map((each) => each.name).join(" ") : "brisk-otter calm-fox";
  const none: readonly Side[] = [];
  return (
    <Empty title={w.empty}>
      <Text c="dimmed" mb="md">
        {w.emptyHint}
      </Text>
      <Command line={`windlass compare ${names}`} />
      {last.length > 1 && (
        <Button mt="md" mb="lg" onClick={() => choose(last.map((each) => each.id))}>
          {w.lastThree}
        </Button>
      )}
      <Add chosen={none} setJobs={choose} />
    </Empty>
  );
}
