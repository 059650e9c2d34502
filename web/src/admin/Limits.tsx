/** How many live jobs there may be: of a project, of a user in it, of a kind of work. */
import { Button, Group, NumberInput, Select, Stack, Table, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { Cli, Sure, useAct } from "../look/Act";
import { Command } from "../look/Command";
import { fieldErrors } from "../look/fields";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Empty } from "../look/Page";
import { Part, Waiting, Wide } from "../look/Part";
import { Told } from "../look/Told";
import { useWho } from "../shell/who";
import { words } from "./words";

type Of = Schema["LimitsView"];
type Limit = Of["limits"][number];
type Spec = Omit<Limit, "live">;
const KINDS = ["train", "notebook", "serve"] as const;

export function Limits(): ReactNode {
  const w = useWords(words);
  const may = useWho().may("limit.write");
  const [making, setMaking] = useState(false);
  const { data, error } = useQuery({ queryKey: ["limits"], queryFn: () => got(api.GET("/api/v1/limits")) });
  const rows = data?.items.flatMap((of) => of.limits.map((limit) => ({ of, limit }))) ?? [];
  return (
    <Part title={w.limits.title} hint={w.limits.hint}
      actions={may && <Button size="xs" leftSection={<Icon name="plus" />} onClick={() => setMaking(!making)} aria-expanded={making}>{w.limits.fresh}</Button>}>
      {error && <Told error={error} />}
      {!data && !error && <Waiting />}
      {data && making && <NewLimit known={data.items} close={() => setMaking(false)} />}
      {data && !rows.length && !making && (
        <Empty title={w.limits.empty}>
          <Text c="dimmed" mb="sm">{w.limits.emptyHint}</Text>
          <Command line="windlass limit set '*' --user '*' --jobs 50" />
        </Empty>
      )}
      {rows.length > 0 && (
        <Wide label={w.limits.title}>
          <Table miw={560} verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{w.limits.project}</Table.Th><Table.Th>{w.limits.user}</Table.Th><Table.Th>{w.limits.kind}</Table.Th>
                <Table.Th ta="right">{w.limits.jobs}</Table.Th><Table.Th ta="right">{w.limits.live}</Table.Th>{may && <Table.Th aria-label={w.actions} />}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {rows.map(({ of, limit }) => (
                <Table.Tr key={`${of.project}/${limit.user}/${limit.kind}`}>
                  <Table.Td>{of.project === "*" ? <span className="quiet">{w.limits.every}</span> : of.project}</Table.Td>
                  <Table.Td>{limit.user === "*" ? w.limits.eachUser : (limit.user ?? w.limits.anyUser)}</Table.Td>
                  <Table.Td>{limit.kind ?? w.limits.anyKind}</Table.Td>
                  <Table.Td ta="right">{limit.jobs}</Table.Td>
                  <Table.Td ta="right">{limit.live ?? "–"}</Table.Td>
                  {may && <Table.Td><Remove of={of} limit={limit} /></Table.Td>}
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
    </Part>
  );
} // prettier-ignore

function put(project: string, limits: readonly Spec[], revision: number | null): Promise<unknown> {
  const bare = limits.map(({ user, kind, jobs }) => ({ user, kind, jobs }));
  return got(api.PUT("/api/v1/limits/{project}", { params: { path: { project } }, body: { limits: bare as never, revision } }));
}

function same(one: Pick<Spec, "user" | "kind">, other: Pick<Spec, "user" | "kind">): boolean {
  return (one.user ?? null) === (other.user ?? null) && (one.kind ?? null) === (other.kind ?? null);
}

function Remove({ of, limit }: { of: Of; limit: Limit }): ReactNode {
  const w = useWords(words);
  const act = useAct(() => put(of.project, of.limits.filter((each) => !same(each, limit)), of.revision), ["limits"]);
  return (
    <Sure label={w.remove} ask={w.limits.removeAsk} act={() => act.run()} busy={act.busy} error={act.error}
      aria-label={`${w.remove}: ${of.project} ${limit.user ?? ""} ${limit.kind ?? ""}`}
      line={line("limit", "rm", of.project, limit.user && ["--user", limit.user], limit.kind && ["--kind", limit.kind])} />
  );
} // prettier-ignore

function NewLimit({ known, close }: { known: readonly Of[]; close: () => void }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [project, setProject] = useState(who.project ?? "*");
  const [user, setUser] = useState("");
  const [kind, setKind] = useState<string | null>(null);
  const [jobs, setJobs] = useState<number | string>(10);
  const act = useAct(
    () => {
      const of = known.find((each) => each.project === project);
      const made: Spec = { user: user.trim() || null, kind: kind as Spec["kind"], jobs: Number(jobs) };
      const rest = of?.limits.filter((each) => !same(each, made)) ?? [];
      return put(project, [...rest, made], of?.revision ?? null);
    },
    ["limits"],
    close,
  );
  const told = fieldErrors(act.error, ["limits", "project"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    act.run();
  };
  const projects = [{ value: "*", label: w.limits.every }, ...who.projects.map((each) => ({ value: each.name, label: each.name }))];
  return (
    <form onSubmit={submit} aria-label={w.limits.fresh}>
      <Stack gap="sm" maw={640} mb="md">
        <Group grow align="end">
          <Select label={w.limits.project} data={projects} allowDeselect={false} value={project} onChange={(next) => next && setProject(next)} error={told.at.project} />
          <TextInput label={w.limits.user} placeholder={`${w.limits.anyUser} (*: ${w.limits.eachUser})`} value={user} onChange={(event) => setUser(event.currentTarget.value)} />
        </Group>
        <Group grow align="end">
          <Select label={w.limits.kind} placeholder={w.limits.anyKind} clearable data={[...KINDS]} value={kind} onChange={setKind} />
          <NumberInput label={w.limits.jobs} value={jobs} onChange={setJobs} min={0} allowDecimal={false} required />
        </Group>
        {told.at.limits && <Text size="sm" c="red" role="alert">{told.at.limits}</Text>}
        {Boolean(told.rest) && <Told error={told.rest} />}
        <Group gap="xs"><Button type="submit" loading={act.busy}>{w.save}</Button><Button variant="default" onClick={close}>{w.cancel}</Button></Group>
        <Cli line={line("limit", "set", project, user.trim() && ["--user", user.trim()], kind && ["--kind", kind], ["--jobs", String(jobs)])} />
      </Stack>
    </form>
  );
} // prettier-ignore
