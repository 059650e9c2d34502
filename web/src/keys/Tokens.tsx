/** API tokens of a user: made with the least they need, shown once, revoked. */
import { Button, Group, MultiSelect, Select, Stack, Table, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { Cli, Once, Sure, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { Command } from "../look/Command";
import { fieldErrors } from "../look/fields";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Part, Waiting, Wide } from "../look/Part";
import { Told } from "../look/Told";
import rights from "../admin/rights.json";
import { useWho } from "../shell/who";
import { words } from "./words";

const LIVES = ["1d", "7d", "30d", "90d", "365d"] as const;

export function Tokens({ user }: { user?: string }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<Schema["TokenMade"] | null>(null);
  const { data, error } = useQuery({
    queryKey: ["tokens", user ?? ""],
    queryFn: () => got(api.GET("/api/v1/tokens", { params: { query: user ? { user } : {} } })),
  });
  return (
    <Part title={w.tokens} hint={w.tokensHint}
      actions={<Button size="xs" variant="default" leftSection={<Icon name="plus" />} onClick={() => setMaking(!making)} aria-expanded={making}>{w.newToken}</Button>}>
      {made && (
        <>
          <Once title={w.madeToken(made.name)} close={() => setMade(null)} parts={[[w.token, made.token]]} />
          <Text size="xs" c="dimmed">{w.use}</Text>
          <Command line={`curl -H "Authorization: Bearer $TOKEN" ${new URL("api/v1/whoami", document.baseURI).href}`} />
        </>
      )}
      {making && <NewToken user={user} project={who.project ?? ""} close={() => setMaking(false)} made={setMade} />}
      {error && <Told error={error} />}
      {!data && !error && <Waiting rows={2} />}
      {data && !data.items.length && <Text size="sm" c="dimmed">{w.noTokens}</Text>}
      {data && data.items.length > 0 && (
        <Wide label={w.tokens}>
          <Table miw={640} verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{w.name}</Table.Th><Table.Th>{w.project}</Table.Th><Table.Th>{w.scope}</Table.Th><Table.Th>{w.expires}</Table.Th>
                <Table.Th>{w.lastUsed}</Table.Th><Table.Th>{w.actions}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {data.items.map((each) => (
                <Table.Tr key={each.id} data-token={each.name}>
                  <Table.Td>{each.name}</Table.Td>
                  <Table.Td>{each.project}</Table.Td>
                  <Table.Td>{each.scopes.join(", ")}</Table.Td>
                  <Table.Td>{each.expired ? w.expired : <Ago at={each.expires} />}</Table.Td>
                  <Table.Td>{each.last_used ? <Ago at={each.last_used} /> : w.never}</Table.Td>
                  <Table.Td><Revoke token={each} user={user} /></Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
    </Part>
  );
} // prettier-ignore

function Revoke({ token, user }: { token: Schema["TokenView"]; user?: string | undefined }): ReactNode {
  const w = useWords(words);
  const act = useAct(
    () => got(api.DELETE("/api/v1/tokens/{ref}", { params: { path: { ref: token.id }, query: user ? { user } : {} } })),
    ["tokens"],
  );
  return (
    <Sure label={w.revoke} ask={w.revokeToken} act={() => act.run()} busy={act.busy} error={act.error}
      line={line("token", "revoke", token.name, user && ["--user", user])} aria-label={`${w.revoke}: ${token.name}`} />
  );
} // prettier-ignore

function NewToken({ user, project, close, made }: {
  user?: string | undefined;
  project: string;
  close: () => void;
  made: (token: Schema["TokenMade"]) => void;
}): ReactNode {
  const w = useWords(words);
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<string[]>(["read"]);
  const [expires, setExpires] = useState<string>("30d");
  const act = useAct(
    () => got(api.POST("/api/v1/tokens", { body: { name: name.trim(), scopes, expires, user: user ?? null } })),
    ["tokens"],
    (answer) => {
      made(answer);
      close();
    },
  );
  const told = fieldErrors(act.error, ["name", "scopes", "expires"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    act.run();
  };
  const said = w.scopes as Record<string, string>;
  return (
    <form onSubmit={submit}>
      <Stack gap="sm" maw={480} mb="md">
        <TextInput label={w.name} placeholder={w.nameHint} value={name} required autoFocus error={told.at.name} onChange={(event) => setName(event.currentTarget.value)} />
        <MultiSelect label={w.scope} description={w.scopeHint} data={rights.scopes.map((each) => ({ value: each, label: said[each] ?? each }))}
          value={scopes} onChange={setScopes} error={told.at.scopes} searchable />
        <Select label={w.lives} allowDeselect={false} value={expires} onChange={(next) => next && setExpires(next)} error={told.at.expires}
          data={LIVES.map((each) => ({ value: each, label: w.livesOf[each] }))} />
        <Text size="sm" c="dimmed">{w.inProject(project)}</Text>
        {Boolean(told.rest) && <Told error={told.rest} />}
        <Group gap="xs"><Button type="submit" loading={act.busy}>{w.make}</Button><Button variant="default" onClick={close}>{w.cancel}</Button></Group>
        <Cli line={line("token", "create", name.trim() || "NAME", ...scopes.map((each) => ["--scope", each]), ["--expires", expires], user && ["--user", user])} />
      </Stack>
    </form>
  );
} // prettier-ignore
