/** Access keys of a user: made, rotated, revoked; a secret is shown once. */
import { Button, Checkbox, Group, Select, Stack, Table, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { Cli, Once, Sure, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { fieldErrors } from "../look/fields";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Part, Waiting, Wide } from "../look/Part";
import { Told } from "../look/Told";
import { useWho } from "../shell/who";
import { words } from "./words";

const OVERLAPS = ["0s", "1h", "1d", "7d", "30d"] as const;

/** `user`: another's; the caller's own where it is left out. */
export function Keys({ user }: { user?: string }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [making, setMaking] = useState(false);
  const [dead, setDead] = useState(false);
  const [made, setMade] = useState<Schema["KeyMade"] | null>(null);
  const { data, error } = useQuery({
    queryKey: ["keys", user ?? ""],
    queryFn: () => got(api.GET("/api/v1/keys", { params: { query: user ? { user } : {} } })),
  });
  const shown = data?.items.filter((each) => dead || each.state !== "dead") ?? [];
  return (
    <Part title={w.keys} hint={w.keysHint}
      actions={
        <>
          {data?.items.some((each) => each.state === "dead") && (
            <Checkbox size="xs" label={w.dead} checked={dead} onChange={(event) => setDead(event.currentTarget.checked)} />
          )}
          <Button size="xs" variant="default" leftSection={<Icon name="plus" />} onClick={() => setMaking(!making)} aria-expanded={making}>{w.newKey}</Button>
        </>
      }>
      {made && (
        <Once title={w.madeKey(made.user)} close={() => setMade(null)} parts={[[w.key, made.access_key], [w.secret, made.secret_key]]} />
      )}
      {making && <NewKey user={user} project={who.project ?? ""} close={() => setMaking(false)} made={setMade} />}
      {error && <Told error={error} />}
      {!data && !error && <Waiting rows={3} />}
      {data && !shown.length && <Text size="sm" c="dimmed">{w.noKeys}</Text>}
      {shown.length > 0 && (
        <Wide label={w.keys}>
          <Table miw={680} verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{w.key}</Table.Th><Table.Th>{w.project}</Table.Th><Table.Th>{w.state}</Table.Th><Table.Th>{w.created}</Table.Th>
                <Table.Th>{w.lastUsed}</Table.Th><Table.Th>{w.actions}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {shown.map((each) => (
                <Table.Tr key={each.access_key}>
                  <Table.Td><span className="mono">{each.access_key}</span>{each.name && <Text size="xs" c="dimmed">{each.name}</Text>}</Table.Td>
                  <Table.Td>{each.project}</Table.Td>
                  <Table.Td>{w.states[each.state] ?? each.state}{each.expires && <Text size="xs" c="dimmed">{w.expires} <Ago at={each.expires} /></Text>}</Table.Td>
                  <Table.Td><Ago at={each.created} /></Table.Td>
                  <Table.Td>{each.last_used ? <Ago at={each.last_used} /> : w.never}</Table.Td>
                  <Table.Td>{each.state !== "dead" && <KeyActs found={each} made={setMade} />}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
    </Part>
  );
} // prettier-ignore

function NewKey({ user, project, close, made }: {
  user?: string | undefined;
  project: string;
  close: () => void;
  made: (key: Schema["KeyMade"]) => void;
}): ReactNode {
  const w = useWords(words);
  const [name, setName] = useState("");
  const act = useAct(
    () => got(api.POST("/api/v1/keys", { body: { name: name.trim() || null, user: user ?? null } })),
    ["keys", "users"],
    (answer) => {
      made(answer);
      close();
    },
  );
  const told = fieldErrors(act.error, ["name"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    act.run();
  };
  return (
    <form onSubmit={submit}>
      <Stack gap="sm" maw={480} mb="md">
        <TextInput label={w.name} placeholder={w.nameHint} description={w.optional} value={name} autoFocus error={told.at.name} onChange={(event) => setName(event.currentTarget.value)} />
        <Text size="sm" c="dimmed">{w.inProject(project)}</Text>
        {Boolean(told.rest) && <Told error={told.rest} />}
        <Group gap="xs"><Button type="submit" loading={act.busy}>{w.make}</Button><Button variant="default" onClick={close}>{w.cancel}</Button></Group>
        <Cli line={line("key", "create", name.trim(), user && ["--user", user])} />
      </Stack>
    </form>
  );
} // prettier-ignore

function KeyActs({ found, made }: { found: Schema["KeyView"]; made: (key: Schema["KeyMade"]) => void }): ReactNode {
  const w = useWords(words);
  const [overlap, setOverlap] = useState<string>("1d");
  const access_key = found.access_key;
  const rotate = useAct(
    () => got(api.POST("/api/v1/keys/{access_key}/rotate", { params: { path: { access_key } }, body: { overlap } })),
    ["keys"],
    made,
  );
  const revoke = useAct(() => got(api.DELETE("/api/v1/keys/{access_key}", { params: { path: { access_key } } })), ["keys", "users"]);
  return (
    <Group gap={2} align="start">
      {found.state === "live" && (
        <Sure label={w.rotate} ask={w.rotateAsk} color="sea" act={() => rotate.run()} busy={rotate.busy} error={rotate.error}
          line={line("key", "rotate", access_key, ["--overlap", overlap])} aria-label={`${w.rotate}: ${access_key}`}>
          <Select size="xs" label={w.overlap} allowDeselect={false} value={overlap} onChange={(next) => next && setOverlap(next)}
            data={OVERLAPS.map((each) => ({ value: each, label: w.overlaps[each] }))} />
        </Sure>
      )}
      <Sure label={w.revoke} ask={w.revokeKey} act={() => revoke.run()} busy={revoke.busy} error={revoke.error}
        line={line("key", "revoke", access_key)} aria-label={`${w.revoke}: ${access_key}`} />
    </Group>
  );
} // prettier-ignore
