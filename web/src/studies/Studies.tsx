/** The project's studies, newest first. */
import { Anchor, Button, Table, Text, TextInput } from "@mantine/core";
import { useInfiniteQuery, useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { lazy, Suspense, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { count, value } from "../i18n/format";
import { Ago } from "../look/Ago";
import { Command } from "../look/Command";
import { Icon } from "../look/Icon";
import { Empty, Page } from "../look/Page";
import { Meter, Waiting, Wide } from "../look/Part";
import { State } from "../look/State";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { useWho } from "../shell/who";
import { ended } from "./pareto";
import { words } from "./words";

const NewStudy = lazy(() => import("./NewStudy"));

export default function Studies(): ReactNode {
  const w = useWords(words);
  const may = useWho().may("job.write");
  const [url, change] = useUrl();
  const { data, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ["studies", "list"],
    queryFn: ({ pageParam }) =>
      got(api.GET("/api/v1/studies", { params: { query: { limit: 50, ...(pageParam ? { before: Number(pageParam) } : {}) } } })),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const all = data?.pages.flatMap((page) => page.items) ?? [];
  const text = url.q ?? "";
  const found = all.filter((each) => each.name.includes(text.toLowerCase()));
  const making = may && url.new !== undefined;
  const start = url.new && url.new !== "1" ? url.new : null;

  return (
    <Page
      title={w.title}
      actions={
        <>
          {all.length > 0 && (
            <TextInput
              size="xs"
              aria-label={w.search}
              placeholder={w.search}
              leftSection={<Icon name="search" size={14} />}
              value={text}
              onChange={(event) => change({ q: event.currentTarget.value }, true)}
            />
          )}
          {may && !making && all.length > 0 && (
            <Button size="xs" leftSection={<Icon name="plus" size={14} />} onClick={() => change({ new: "1" })}>
              {w.newStudy}
            </Button>
          )}
        </>
      }
    >
      {making && (
        <Suspense fallback={<Waiting />}>
          <NewStudy start={start} close={() => change({ new: undefined })} />
        </Suspense>
      )}
      {Boolean(error) && <Told error={error} again={() => void refetch()} />}
      {!data && !error && <Waiting />}
      {data && all.length === 0 && !making && (
        <Empty title={w.empty}>
          <Text c="dimmed" mb="md">
            {w.emptyHint}
          </Text>
          <Command line="windlass study create train.py --param lr=log:1e-4..1e-1 --trials 20 --minimize loss" />
          {may && (
            <Button mt="md" onClick={() => change({ new: "1" })}>
              {w.newStudy}
            </Button>
          )}
        </Empty>
      )}
      {all.length > 0 && found.length === 0 && <Text c="dimmed">{w.nothing(text)}</Text>}
      {found.length > 0 && <List items={found} />}
      {hasNextPage && (
        <Button mt="sm" variant="default" size="xs" loading={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          {w.older}
        </Button>
      )}
    </Page>
  );
}

/** The best of each: the list tells only how many trials there are. */
function useBest(items: readonly Schema["StudyView"][]): Map<string, Schema["StudyView"]> {
  const asked = items.filter((each) => !each.best.length && ended(each.counts) > 0);
  const found = useQueries({
    queries: asked.map((each) => ({
      queryKey: ["study", each.id],
      queryFn: () => got(api.GET("/api/v1/studies/{ref}", { params: { path: { ref: each.id } } })),
    })),
  });
  const best = new Map(items.map((each) => [each.id, each]));
  found.forEach((each) => each.data && best.set(each.data.id, each.data));
  return best;
}

function List({ items }: { items: readonly Schema["StudyView"][] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const best = useBest(items);
  return (
    <Wide label={w.title}>
      <Table highlightOnHover verticalSpacing="xs" miw={860}>
        <Table.Thead>
          <Table.Tr>
            {[w.name, w.state, w.done, w.best, w.objective, w.sampler, w.pruner, w.by, w.started].map((each) => (
              <Table.Th key={each} scope="col">
                {each}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {items.map((each) => (
            <Table.Tr key={each.id}>
              <Table.Th scope="row">
                <Anchor component={Link} to={`/studies/${each.name}`} size="sm">
                  {each.name}
                </Anchor>
              </Table.Th>
              <Table.Td>
                <State state={each.state} />
                {each.reason && (
                  <Text size="xs" c="dimmed" maw={260} lineClamp={2} title={each.reason}>
                    {each.reason}
                  </Text>
                )}
              </Table.Td>
              <Table.Td miw={150}>
                <Meter
                  quiet
                  label={w.done}
                  used={ended(each.counts)}
                  total={each.trials}
                  said={w.doneOf(count(ended(each.counts), language), count(each.trials, language))}
                />
              </Table.Td>
              <Table.Td>
                <Best study={best.get(each.id) ?? each} />
              </Table.Td>
              <Table.Td style={{ minWidth: 140 }}>{each.objectives.map((goal) => `${w[goal.goal]} ${goal.metric}`).join(", ")}</Table.Td>
              <Table.Td>{each.sampler}</Table.Td>
              <Table.Td>{each.pruner === "none" ? "–" : each.pruner}</Table.Td>
              <Table.Td>{each.user}</Table.Td>
              <Table.Td style={{ whiteSpace: "nowrap" }}>
                <Ago at={each.created} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Wide>
  );
}

function Best({ study }: { study: Schema["StudyView"] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const first = study.best[0];
  if (first === undefined) return <span className="quiet">{w.noBest}</span>;
  if (study.best_values.length !== 1) return w.notBeaten(count(study.best.length, language));
  return (
    <>
      {value(study.best_values[0], language)} <span className="quiet">({w.trial(first)})</span>
    </>
  );
}
