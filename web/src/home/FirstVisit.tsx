/** The first minute: three cards, each one command, and a button that does it. */
import { Button, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { canHash, send } from "../jobs/new/files";
import { Command } from "../look/Command";
import { Icon } from "../look/Icon";
import { Told } from "../look/Told";
import { useWho } from "../shell/who";
import css from "./home.module.css";
import { RATES, SAMPLE } from "./sample";
import { words } from "./words";

async function start(name: string, rate: number): Promise<Schema["JobView"]> {
  const bundle = await send([{ path: "train.py", blob: new Blob([SAMPLE]) }], () => undefined);
  const spec = { name, run: ["python3", "train.py", "--lr", "${lr}"], params: { lr: rate }, code: { bundle } };
  return got(api.POST("/api/v1/jobs", { body: { spec, dry_run: false } as never })) as Promise<Schema["JobView"]>;
}

export default function FirstVisit(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const navigate = useNavigate();
  const one = useMutation({
    mutationFn: () => start("demo", 0.5),
    onSuccess: (job) => void navigate({ to: "/jobs/$job", params: { job: job.id } }),
  });
  const three = useMutation({
    mutationFn: async () => {
      const made: string[] = [];
      for (const rate of RATES) made.push((await start(`demo-lr-${String(rate).replace(".", "-")}`, rate)).id);
      return made;
    },
    onSuccess: (ids) => void navigate({ to: "/compare", search: { jobs: ids.join(",") } as never }),
  });
  const may = who.may("job.write") && who.may("bundle.write");
  const rates = `for lr in ${RATES.join(" ")}; do windlass submit -p lr=$lr -- python3 train.py --lr '\${lr}'; done`;
  return (
    <section aria-label={w.welcome}>
      <Title order={2}>{w.welcome}</Title>
      <Text c="dimmed" mb="md">
        {w.welcomeHint}
      </Text>
      <SimpleGrid cols={{ base: 1, md: 3 }}>
        <Card {...w.cards.demo} line="windlass demo">
          <Button onClick={() => one.mutate()} loading={one.isPending} disabled={!may || !canHash()} leftSection={<Icon name="play" />}>
            {w.cards.demo.button}
          </Button>
        </Card>
        <Card {...w.cards.rates} line={rates}>
          <Button onClick={() => three.mutate()} loading={three.isPending} disabled={!may || !canHash()} leftSection={<Icon name="play" />}>
            {w.cards.rates.button}
          </Button>
        </Card>
        <Card {...w.cards.own} line="windlass run -- python train.py">
          <Button component={Link} to="/jobs/new" variant="default">
            {w.cards.own.button}
          </Button>
        </Card>
      </SimpleGrid>
      {!canHash() && (
        <Text size="sm" c="dimmed" mt="sm">
          {w.insecure}
        </Text>
      )}
      {(one.error ?? three.error) && <Told error={one.error ?? three.error} />}
    </section>
  );
}

function Card({ title, text, line, children }: { title: string; text: string; line: string; children: ReactNode }): ReactNode {
  return (
    <Stack className={css.card} gap="sm" justify="space-between">
      <div>
        <Title order={3}>{title}</Title>
        <Text size="sm" mt={4}>
          {text}
        </Text>
      </div>
      <Stack gap="sm">
        <Command line={line} />
        {children}
      </Stack>
    </Stack>
  );
}
