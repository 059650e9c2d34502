/** Make a queue, or change one. */
import { Button, Group, Select, Stack, Switch, TextInput } from "@mantine/core";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { Cli, Sure, useAct } from "../look/Act";
import { fieldErrors } from "../look/fields";
import { line } from "../look/line";
import { Part } from "../look/Part";
import { Told } from "../look/Told";
import { words } from "./words";

type Policy = Schema["QueueView"]["policy"];
const POLICIES: readonly Policy[] = ["backfill", "strict", "best-effort"];

/** `close(name)`: it was made or changed; `close("")`: it is gone. */
export function QueueForm({ queue, close }: { queue?: Schema["QueueView"]; close: (name?: string) => void }): ReactNode {
  const w = useWords(words);
  const [name, setName] = useState(queue?.name ?? "");
  const [policy, setPolicy] = useState<Policy>(queue?.policy ?? "backfill");
  const [description, setDescription] = useState(queue?.description ?? "");
  const [paused, setPaused] = useState(queue?.paused ?? false);
  const act = useAct(
    () =>
      got(
        api.PUT("/api/v1/queues/{name}", {
          params: { path: { name } },
          body: { policy, description, paused, revision: queue?.revision ?? 0 },
        }),
      ),
    ["queues"],
    () => close(name),
  );
  const gone = useAct(
    () => got(api.DELETE("/api/v1/queues/{name}", { params: { path: { name } } })),
    ["queues"],
    () => close(""),
  );
  const told = fieldErrors(act.error, ["name", "policy", "description"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    act.run();
  };
  return (
    <Part title={queue ? `${w.edit}: ${queue.name}` : w.newQueue}>
      <form onSubmit={submit}>
        <Stack gap="sm" maw={560}>
          {!queue && (
            <TextInput label={w.name} value={name} required autoFocus error={told.at.name} onChange={(event) => setName(event.currentTarget.value)} />
          )}
          <Select
            label={w.policy}
            data={[...POLICIES]}
            value={policy}
            allowDeselect={false}
            description={w.policies[policy]}
            error={told.at.policy}
            onChange={(found) => found && setPolicy(found as Policy)}
          />
          <TextInput label={w.description} value={description} error={told.at.description} onChange={(event) => setDescription(event.currentTarget.value)} />
          <Switch label={queue ? w.paused : w.askPaused} checked={paused} onChange={(event) => setPaused(event.currentTarget.checked)} />
          {Boolean(told.rest) && <Told error={told.rest} />}
          <Group gap="xs">
            <Button type="submit" loading={act.busy}>{queue ? w.save : w.make}</Button>
            <Button variant="default" onClick={() => close()}>{w.cancel}</Button>
          </Group>
          <Cli
            line={line("queue", "set", name || "NAME", ["--policy", policy], description && ["--description", description],
              paused ? "--pause" : queue?.paused && "--resume")}
          />
          {queue && queue.name !== "default" && (
            <Sure label={w.remove} ask={w.askRemove} name={queue.name} act={() => gone.run()} busy={gone.busy} error={gone.error}
              line={line("queue", "rm", queue.name)} />
          )}
        </Stack>
      </form>
    </Part>
  );
} // prettier-ignore
