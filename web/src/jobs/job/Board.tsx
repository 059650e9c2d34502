/** TensorBoard of a job. A board is a job itself: the one that shows this job is linked to when it
 * runs; the command line starts it. */
import { Anchor, CloseButton, Group, Paper, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { api, BASE, got } from "../../api/client";
import { useWords } from "../../i18n";
import { Command } from "../../look/Command";
import { line } from "../../look/line";
import type { Detail } from "./asking";
import { words } from "./words";

export function isBoard(job: Detail): boolean {
  return job.name.startsWith("tb-") && job.spec.run.includes("board.py");
}

export function boardAddress(id: string): string {
  return `${BASE}tb/${encodeURIComponent(id)}`;
}

/** What the command line calls the board of just this job; "" where a browser cannot tell. */
async function nameOf(id: string): Promise<string> {
  if (!globalThis.crypto?.subtle) return "";
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(JSON.stringify([id])));
  return `tb-${[...new Uint8Array(digest)].map((each) => each.toString(16).padStart(2, "0")).join("").slice(0, 12)}`;
}

export function Board({ job, close }: { job: Detail; close: () => void }): ReactNode {
  const w = useWords(words);
  const { data } = useQuery({
    queryKey: ["jobs", "board-of", job.id],
    queryFn: async () => {
      const name = await nameOf(job.id);
      if (!name) return null;
      const page = await got(api.GET("/api/v1/jobs", { params: { query: { name, state: "running", limit: 1 } } }));
      return page.items[0] ?? null;
    },
  });
  return (
    <Paper withBorder p="sm" w="min(560px, 100%)" component="section" aria-label={w.tensorboard}>
      <Group justify="space-between" wrap="nowrap" mb={4}>
        <Text size="sm">
          {data ? (
            <Anchor href={boardAddress(data.id)} target="_blank" rel="noreferrer">
              {w.boardRuns}
            </Anchor>
          ) : (
            w.boardHint
          )}
        </Text>
        <CloseButton aria-label={w.close} onClick={close} />
      </Group>
      {!data && <Command line={line("tb", job.name)} />}
    </Paper>
  );
}
