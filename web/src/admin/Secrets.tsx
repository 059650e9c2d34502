/** Secrets that jobs name: a value goes in, and never comes out. */
import { Button, Group, PasswordInput, Stack, Switch, Table, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { Cli, Sure, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { Command } from "../look/Command";
import { fieldErrors } from "../look/fields";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Empty } from "../look/Page";
import { Part, Waiting, Wide } from "../look/Part";
import { Told } from "../look/Told";
import { useWho } from "../shell/who";
import { words } from "./words";

type Secret = Schema["SecretView"];

export function Secrets(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [form, setForm] = useState<{ name: string; own: boolean } | null>(null);
  const { data, error } = useQuery({ queryKey: ["secrets"], queryFn: () => got(api.GET("/api/v1/secrets")) });
  const may = (secret: Secret): boolean => who.may(secret.own ? "job.write" : "secret.write");
  const any = who.may("secret.write") || who.may("job.write");
  return (
    <Part title={w.secrets.title} hint={w.secrets.hint}
      actions={any && <Button size="xs" leftSection={<Icon name="plus" />} onClick={() => setForm({ name: "", own: !who.may("secret.write") })}>{w.secrets.fresh}</Button>}>
      {form && <SetSecret key={form.name} {...form} close={() => setForm(null)} />}
      {error && <Told error={error} />}
      {!data && !error && <Waiting />}
      {data && !data.items.length && !form && (
        <Empty title={w.secrets.empty}>
          <Text c="dimmed" mb="sm">{w.secrets.emptyHint}</Text>
          <Command line="windlass secret set HF_TOKEN && windlass run --secret HF_TOKEN -- python train.py" />
        </Empty>
      )}
      {data && data.items.length > 0 && (
        <Wide label={w.secrets.title}>
          <Table miw={560} verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{w.name}</Table.Th><Table.Th>{w.secrets.whose}</Table.Th><Table.Th>{w.secrets.version}</Table.Th><Table.Th>{w.secrets.changed}</Table.Th><Table.Th>{w.actions}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {data.items.map((each) => (
                <Table.Tr key={`${each.name}-${each.own}`} data-secret={each.name}>
                  <Table.Td><span className="mono">{each.name}</span></Table.Td>
                  <Table.Td>{each.own ? w.secrets.ofYou : w.secrets.ofProject}</Table.Td>
                  <Table.Td>{each.version}</Table.Td>
                  <Table.Td><Ago at={each.changed} /> <span className="quiet">{w.secrets.by} {each.changed_by}</span></Table.Td>
                  <Table.Td>
                    {may(each) && (
                      <Group gap={2}>
                        <Button size="xs" variant="subtle" aria-label={`${w.secrets.replace}: ${each.name}`} onClick={() => setForm({ name: each.name, own: each.own })}>{w.secrets.replace}</Button>
                        <RemoveSecret secret={each} />
                      </Group>
                    )}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
    </Part>
  );
} // prettier-ignore

function RemoveSecret({ secret }: { secret: Secret }): ReactNode {
  const w = useWords(words);
  const where = { params: { path: { name: secret.name } } };
  const act = useAct(
    () => got(secret.own ? api.DELETE("/api/v1/me/secrets/{name}", where) : api.DELETE("/api/v1/secrets/{name}", where)),
    ["secrets"],
  );
  return (
    <Sure label={w.remove} ask={w.secrets.removeAsk} name={secret.name} act={() => act.run()} busy={act.busy} error={act.error}
      aria-label={`${w.remove}: ${secret.name}`} line={line("secret", "rm", secret.name, secret.own && "--own")} />
  );
} // prettier-ignore

function SetSecret({ name: known, own: before, close }: { name: string; own: boolean; close: () => void }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [name, setName] = useState(known);
  const [value, setValue] = useState("");
  const [own, setOwn] = useState(before);
  const act = useAct(
    () => {
      const where = { params: { path: { name: name.trim() } }, body: { value } };
      return got(own ? api.PUT("/api/v1/me/secrets/{name}", where) : api.PUT("/api/v1/secrets/{name}", where));
    },
    ["secrets"],
    close,
  );
  const told = fieldErrors(act.error, ["name", "value"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    act.run();
  };
  return (
    <form onSubmit={submit} aria-label={w.secrets.fresh}>
      <Stack gap="sm" maw={480} mb="md">
        <TextInput label={w.name} description={w.secrets.nameHint} value={name} required autoFocus={!known} disabled={Boolean(known)} autoComplete="off" error={told.at.name}
          onChange={(event) => setName(event.currentTarget.value)} />
        <PasswordInput label={w.secrets.value} description={w.secrets.valueHint} value={value} required autoFocus={Boolean(known)} autoComplete="new-password" error={told.at.value}
          onChange={(event) => setValue(event.currentTarget.value)} />
        <Switch label={w.secrets.own} description={w.secrets.ownHint} checked={own} disabled={Boolean(known) || !who.may("secret.write")} onChange={(event) => setOwn(event.currentTarget.checked)} />
        {Boolean(told.rest) && <Told error={told.rest} />}
        <Group gap="xs"><Button type="submit" loading={act.busy}>{w.save}</Button><Button variant="default" onClick={close}>{w.cancel}</Button></Group>
        <Cli line={line("secret", "set", name.trim() || "NAME", own && "--own")} />
      </Stack>
    </form>
  );
} // prettier-ignore
