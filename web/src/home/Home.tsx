/** What is mine now: running, waiting, failed; what is free; the first time, how to begin. */
import { Button, Grid, Group, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { lazy, Suspense, type ReactNode } from "react";

import { api, got } from "../api/client";
import { useWords } from "../i18n";
import { Icon } from "../look/Icon";
import { Page } from "../look/Page";
import { Told } from "../look/Told";
import { useWho } from "../shell/who";
import { Ended, Failures, Running, Waiting } from "./Mine";
import { Free, Limits } from "./Supply";
import { words } from "./words";

const FirstVisit = lazy(() => import("./FirstVisit"));

function useMine(state: string, limit: number) {
  const who = useWho();
  return useQuery({
    queryKey: ["jobs", "home", state],
    queryFn: () => got(api.GET("/api/v1/jobs", { params: { query: { user: who.user, state, limit } } })),
    enabled: who.may("job.read"),
  });
}

export default function Home(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const running = useMine("running,starting,stopping", 20);
  const waiting = useMine("queued,held", 20);
  const failed = useMine("failed", 5);
  const done = useMine("succeeded", 6);
  const any = useQuery({
    queryKey: ["jobs", "home", "any"],
    queryFn: () => got(api.GET("/api/v1/jobs", { params: { query: { limit: 1 } } })),
    enabled: who.may("job.read"),
  });
  const error = running.error ?? waiting.error ?? failed.error ?? done.error ?? any.error;
  const first = any.data?.items.length === 0;
  const part = (title: string, search: Record<string, string> | null, children: ReactNode): ReactNode => (
    <section aria-label={title}>
      <Group justify="space-between" mb={6}>
        <Title order={2}>{title}</Title>
        {search && (
          <Link to="/jobs" search={search as never}>
            <Text size="sm">{w.allMine}</Text>
          </Link>
        )}
      </Group>
      {children}
    </section>
  );
  const none = (text: string): ReactNode => (
    <Text size="sm" c="dimmed">
      {text}
    </Text>
  );
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
      {Boolean(error) && <Told error={error} />}
      {first ? (
        <Stack gap="xl">
          <Suspense>
            <FirstVisit />
          </Suspense>
          {part(w.free, null, <Free />)}
        </Stack>
      ) : (
        <Grid gap="xl">
          <Grid.Col span={{ base: 12, md: 8 }}>
            <Stack gap="xl">
              {part(w.running, { user: who.user, state: "running,starting,stopping" }, running.data && (running.data.items.length ? <Running jobs={running.data.items} /> : none(w.nothingRuns)))}
              {waiting.data && waiting.data.items.length > 0 && part(w.waiting, { user: who.user, state: "queued,held" }, <Waiting jobs={waiting.data.items} />)}
              {part(w.failures, { user: who.user, state: "failed" }, failed.data && (failed.data.items.length ? <Failures jobs={failed.data.items} /> : none(w.nothingFailed)))}
              {done.data && done.data.items.length > 0 && part(w.done, { user: who.user, state: "succeeded" }, <Ended jobs={done.data.items} />)}
            </Stack>
          </Grid.Col>
          <Grid.Col span={{ base: 12, md: 4 }}>
            <Stack gap="xl">
              {part(w.free, null, <Free />)}
              <Limits title={(children) => part(w.limits, null, children)} />
            </Stack>
          </Grid.Col>
        </Grid>
      )}
    </Page>
  );
}
