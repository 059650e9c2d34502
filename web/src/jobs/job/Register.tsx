/** Files of a job as the next version of a model. */
import { Button, Group, Paper, SimpleGrid, Stack, Text, TextInput, Title } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";

import { api, got } from "../../api/client";
import { useWords } from "../../i18n";
import { Cli, useAct } from "../../look/Act";
import { fieldErrors } from "../../look/fields";
import { line } from "../../look/line";
import { Told } from "../../look/Told";
import type { Detail } from "./asking";
import { words } from "./words";

export function Register({ job, path, close }: { job: Detail; path: string; close: () => void }): ReactNode {
  const w = useWords(words);
  const [name, setName] = useState("");
  const [aliases, setAliases] = useState("");
  const [description, setDescription] = useState("");
  const list = aliases.split(",").map((each) => each.trim()).filter(Boolean); // prettier-ignore
  const act = useAct(
    () =>
      got(
        api.POST("/api/v1/models/{name}/versions", {
          params: { path: { name } },
          body: { run: job.id, path, aliases: list, description, files: [], tags: {} },
        }),
      ),
    ["models", "model"],
  );
  const problems = fieldErrors(act.error, ["name", "aliases", "description"]);
  if (act.made) {
    return (
      <Text size="sm" role="status" my="xs">
        <Link to="/models/$model" params={{ model: act.made.model }}>{w.registered(act.made.model, String(act.made.version))}</Link>
        {act.made.warning && ` · ${act.made.warning}`}
      </Text>
    );
  }
  return (
    <Paper withBorder p="sm" my="xs" component="section" aria-label={w.registerTitle}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          act.run();
        }}
      >
        <Stack gap="xs">
          <Title order={3}>{`${w.registerTitle}: ${path}`}</Title>
          <Text size="xs" c="dimmed">{w.registerHint}</Text>
          <SimpleGrid cols={{ base: 1, sm: 3 }}>
            <TextInput size="xs" required label={w.modelName} description={w.modelNameHint} value={name} error={problems.at.name} maxLength={255} onChange={(event) => setName(event.currentTarget.value)} />
            <TextInput size="xs" label={w.aliases} description={w.aliasesHint} value={aliases} error={problems.at.aliases} onChange={(event) => setAliases(event.currentTarget.value)} />
            <TextInput size="xs" label={w.description} description={"\u00a0"} value={description} error={problems.at.description} onChange={(event) => setDescription(event.currentTarget.value)} />
          </SimpleGrid>
          {Boolean(problems.rest) && <Told error={problems.rest} />}
          <Group gap="xs">
            <Button type="submit" size="xs" loading={act.busy} disabled={!name}>{w.register}</Button>
            <Button size="xs" variant="default" onClick={close}>{w.cancel}</Button>
          </Group>
          <Cli line={line("model", "register", job.name, path, "--as", name || "NAME", list.flatMap((each) => ["--alias", each]))} />
        </Stack>
      </form>
    </Paper>
  );
}
