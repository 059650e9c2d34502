/** Where jobs wait: the queues, and the line of one of them with the reason of each. */
import { Badge, Button, Group, SimpleGrid, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { bytes, value } from "../i18n/format";
import { useAct } from "../look/Act";
import { Icon } from "../look/Icon";
import { Page } from "../look/Page";
import { Meter, Part, Waiting } from "../look/Part";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { useWho } from "../shell/who";
import { Line } from "./Line";
import { QueueForm } from "./QueueForm";
import css from "./queues.module.css";
import { words } from "./words";

const STEP = 100;

export default function Queues(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [url, change] = useUrl();
  const list = useQuery({ queryKey: ["queues"], queryFn: () => got(api.GET("/api/v1/queues")) });
  const chosen = url["queue"] ?? list.data?.items.find((each) => each.waiting)?.name ?? "default";
  const limit = Math.min(1000, Number(url["limit"]) || STEP);
  const line = useQuery({
    queryKey: ["queues", chosen, "line", limit],
    queryFn: () => got(api.GET("/api/v1/queues/{name}/jobs", { params: { path: { name: chosen }, query: { limit } } })),
    placeholderData: keepPreviousData,
  });
  const may = who.may("queue.write");
  const editing = url["edit"];
  if (list.error) return <Page title={w.title}><Told error={list.error} again={() => void list.refetch()} /></Page>;
  const queue = line.data?.queue;
  return (
    <Page
      title={w.title}
      actions={may && (
        <Button size="xs" variant="default" leftSection={<Icon name="plus" />} onClick={() => change({ edit: "new" })}>
          {w.newQueue}
        </Button>
      )}
    >
      {editing === "new" && may && <QueueForm close={(name) => change({ edit: undefined, queue: name ?? url["queue"] })} />}
      {list.data ? (
        <nav className={css.queues} aria-label={w.queues}>
          {list.data.items.map((each) => <Tile key={each.name} queue={each} here={each.name === chosen} />)}
        </nav>
      ) : <Waiting rows={2} />}
      {line.error && <Told error={line.error} again={() => void line.refetch()} />}
      {queue && line.data && (
        <>
          <Group justify="space-between" mt="lg" mb="xs">
            <Text fw={650} size="lg">{queue.name}</Text>
            {may && (
              <Group gap="xs">
                <Pause queue={queue} />
                <Button size="xs" variant="default" onClick={() => change({ edit: editing === queue.name ? undefined : queue.name })}>
                  {w.edit}
                </Button>
              </Group>
            )}
          </Group>
          {editing === queue.name && may && (
            <QueueForm key={queue.revision} queue={queue} close={(gone) => change({ edit: undefined, ...(gone === "" ? { queue: undefined } : {}) })} />
          )}
          {queue.paused && <Text size="sm" mb="sm" role="status">{w.pausedHint}</Text>}
          <Supply supply={line.data.supply} />
          <Line line={line.data} more={() => change({ limit: String(limit + STEP * 4) }, true)} />
        </>
      )}
    </Page>
  );
} // prettier-ignore

function Tile({ queue, here }: { queue: Schema["QueueView"]; here: boolean }): ReactNode {
  const w = useWords(words);
  return (
    <Link to="." search={{ queue: queue.name } as never} className={css.queue} aria-current={here ? "true" : undefined}>
      <Group justify="space-between" gap={6} wrap="nowrap">
        <Text fw={600} className="clip">{queue.name}</Text>
        {queue.paused && <Badge variant="default" tt="none" size="sm">{w.paused}</Badge>}
      </Group>
      <Text size="sm">{w.waitingCount(queue.waiting)} · {w.runningCount(queue.running)}</Text>
      <Text size="xs" c="dimmed">{queue.policy}{queue.description && ` · ${queue.description}`}</Text>
    </Link>
  );
} // prettier-ignore

function Pause({ queue }: { queue: Schema["QueueView"] }): ReactNode {
  const w = useWords(words);
  const act = useAct(
    () =>
      got(
        api.PUT("/api/v1/queues/{name}", {
          params: { path: { name: queue.name } },
          body: { policy: queue.policy, description: queue.description, paused: !queue.paused, revision: queue.revision },
        }),
      ),
    ["queues"],
  );
  return (
    <>
      <Button size="xs" variant="default" leftSection={<Icon name={queue.paused ? "play" : "stop"} />} loading={act.busy} onClick={() => act.run()}>
        {queue.paused ? w.resume : w.pause}
      </Button>
      {Boolean(act.error) && <Told error={act.error} />}
    </>
  );
} // prettier-ignore

function Supply({ supply }: { supply: readonly Schema["Supply"][] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const names = w.resources as Record<string, string>;
  return (
    <Part title={w.supply}>
      <SimpleGrid cols={{ base: 1, sm: 3 }} spacing="lg">
        {supply.map((each) => {
          const said = (amount: number): string => (each.resource === "memory" ? bytes(amount, language) : value(amount, language));
          const label = names[each.resource] ?? each.resource;
          if (each.free === null) return <Text size="sm" key={each.resource}>{label}: {w.unknownFree(said(each.total))}</Text>;
          return <Meter key={each.resource} label={label} used={each.total - each.free} total={each.total} said={w.free(said(each.free), said(each.total))} />;
        })}
      </SimpleGrid>
    </Part>
  );
} // prettier-ignore
