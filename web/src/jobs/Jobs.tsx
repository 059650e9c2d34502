/** All jobs of the project: one table, chosen and ordered by what stands in the address. */
import { Box, Button, Group, Text } from "@mantine/core";
import { Link, useNavigate } from "@tanstack/react-router";
import { useCallback, useMemo, useState, type ReactNode } from "react";

import { useLanguage, useWords } from "../i18n";
import { count } from "../i18n/format";
import { Command, Copy } from "../look/Command";
import { Icon } from "../look/Icon";
import { Empty, Page } from "../look/Page";
import { Told } from "../look/Told";
import { useUrl, type Query } from "../look/url";
import { useKeys } from "../shell/keys";
import { useWho } from "../shell/who";
import { askEarly, askedBy, useJobTable, type Asked } from "./asking";
import { Chosen } from "./Chosen";
import { ColumnChooser, CurveChooser } from "./ColumnChooser";
import { columnsOf } from "./columns";
import { psLine } from "./command";
import { FilterBox } from "./FilterBox";
import css from "./jobs.module.css";
import { SavedViews } from "./SavedViews";
import { StateChips } from "./StateChips";
import { JobRows } from "./JobRows";
import { words } from "./words";

/** In the address, so that a link tells them too: not more than fit. */
const MOST_CHOSEN = 100;
const SHORT = 12;

export const early = (query: Query): void => askEarly(askedBy(query));

export default function Jobs(): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const who = useWho();
  const navigate = useNavigate();
  const [query, change] = useUrl();
  const columns = useMemo(() => columnsOf(query.columns), [query.columns]);
  const { filter, state, user, sort, columns: chosenColumns } = query;
  const asked = useMemo<Asked>(
    () => askedBy({ filter, state, user, sort, columns: chosenColumns } as Query),
    [filter, state, user, sort, chosenColumns],
  );
  const table = useJobTable(asked);
  const [at, setAt] = useState(-1);

  const chosen = useMemo(() => (query.chosen ?? "").split(",").filter(Boolean), [query.chosen]);
  const choose = useCallback(
    (ids: readonly string[]) => change({ chosen: ids.slice(0, MOST_CHOSEN).join(",") }, true),
    [change],
  );
  const toggle = useCallback(
    (id: string) => {
      const short = id.slice(0, SHORT);
      choose(chosen.includes(short) ? chosen.filter((each) => each !== short) : [...chosen, short]);
    },
    [chosen, choose],
  );
  const chooseAll = (): void =>
    choose(chosen.length ? [] : table.rows.slice(0, MOST_CHOSEN).map((row) => row.id.slice(0, SHORT)));
  const compare = (): void => {
    if (chosen.length) void navigate({ to: "/compare", search: { jobs: chosen.join(",") } as never });
  };
  const step = (by: number): void => {
    if (table.rows.length) setAt((before) => Math.min(Math.max(before + by, 0), table.rows.length - 1));
  };
  useKeys({
    j: () => step(1),
    k: () => step(-1),
    x: () => {
      const row = table.rows[at];
      if (row) toggle(row.id);
    },
    c: compare,
    "/": () => document.getElementById("job-filter")?.focus(),
    Escape: () => {
      if (chosen.length && document.activeElement?.closest("table")) choose([]);
    },
  });

  const narrowed = Boolean(query.filter || query.state || query.user);
  const nothing = !table.waiting && !table.error && !table.rows.length && !table.old;
  const total = table.total ?? table.rows.length;
  const shown = table.next === null && !table.old
    ? w.loadedAll(count(table.rows.length, language))
    : w.shown(count(table.rows.length, language), count(total, language));

  return (
    <Page
      title={w.title}
      actions={
        who.may("job.write") && (
          <Button component={Link} to="/jobs/new" leftSection={<Icon name="plus" />} size="xs" hiddenFrom="sm">
            {w.newJob}
          </Button>
        )
      }
    >
      <Box className={css.page}>
        <Group gap="xs" align="flex-start">
          <FilterBox filter={query.filter ?? ""} error={table.error} change={(filter) => change({ filter })} />
          <Group gap={6} wrap="nowrap" className={css.tools}>
            <SavedViews query={query} />
            <ColumnChooser columns={columns} change={(text) => change({ columns: text })} />
            <CurveChooser chosen={query.curve} change={(curve) => change({ curve })} />
          </Group>
        </Group>
        <Group gap="xs" my={8} justify="space-between">
          <StateChips
            counts={table.states}
            chosen={query.state ?? ""}
            change={(state) => change({ state })}
            mine={query.user === who.user}
            changeMine={(mine) => change({ user: mine ? who.user : undefined })}
          />
          <Text size="xs" c="dimmed" role="status" data-testid="shown">
            {table.waiting ? "" : shown}
          </Text>
        </Group>
        {Boolean(table.error) && !query.filter && <Told error={table.error} />}
        {chosen.length > 0 && (
          <Chosen chosen={chosen} most={MOST_CHOSEN} rows={table.rows} compare={compare} clear={() => choose([])} />
        )}
        {nothing ? (
          narrowed ? (
            <Empty title={w.none}>
              <Text c="dimmed" mb="md">
                {w.noneHint}
              </Text>
              <Button variant="default" onClick={() => change({ filter: undefined, state: undefined, user: undefined })}>
                {w.showAll}
              </Button>
            </Empty>
          ) : (
            <Empty title={w.first}>
              <Text c="dimmed" mb="md">
                {w.firstHint}
              </Text>
              <Command line="windlass run -- python train.py" />
              {who.may("job.write") && (
                <Button component={Link} to="/jobs/new" mt="md">
                  {w.newJob}
                </Button>
              )}
            </Empty>
          )
        ) : (
          <JobRows
            table={table}
            columns={columns}
            curve={query.curve ?? null}
            sort={query.sort}
            changeSort={(sort) => change({ sort })}
            chosen={chosen}
            toggle={toggle}
            chooseAll={chooseAll}
            at={at}
            setAt={setAt}
          />
        )}
        <Group gap={4} mt={6} wrap="nowrap" className={css.foot}>
          <Text size="xs" c="dimmed" className="clip">
            {w.copyLine}: <code className="mono">{psLine(query)}</code>
          </Text>
          <Copy text={psLine(query)} label={w.copyLine} />
        </Group>
      </Box>
    </Page>
  );
}
