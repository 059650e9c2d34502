/** Who acts on this server. */
import { Badge, Button, Checkbox, Group, Select, Stack, Table, Text, TextInput, UnstyledButton } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Fragment, useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { Cli, Once, Sure, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { fieldErrors } from "../look/fields";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Opened, Part, Waiting, Wide } from "../look/Part";
import { Told } from "../look/Told";
import { Typed } from "../look/Typed";
import { useUrl } from "../look/url";
import { useWho } from "../shell/who";
import { words } from "./words";

type User = Schema["UserView"];
type OrgRole = Schema["OrgRole"];
type ProjectRole = Schema["ProjectRole"];
const ORG: readonly OrgRole[] = ["auditor", "admin", "owner"];
export const IN_PROJECT: readonly ProjectRole[] = ["viewer", "member", "maintainer"];

export function Users(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const may = who.may("user.write");
  const [url, change] = useUrl();
  const [making, setMaking] = useState(false);
  const { data, error } = useQuery({ queryKey: ["users"], queryFn: () => got(api.GET("/api/v1/users")) });
  const text = (url["q"] ?? "").toLowerCase();
  const shown = data?.items.filter((each) => each.name.includes(text)) ?? [];
  return (
    <Part title={`${w.users.title}${data ? ` (${data.items.length})` : ""}`} hint={w.users.hint}
      actions={
        <>
          <Typed size="xs" aria-label={w.find} placeholder={w.find} text={url["q"] ?? ""} onTyped={(q) => change({ q }, true)} />
          {may && <Button size="xs" leftSection={<Icon name="plus" />} onClick={() => setMaking(!making)} aria-expanded={making}>{w.users.fresh}</Button>}
        </>
      }>
      {making && <NewUser close={() => setMaking(false)} made={(name) => change({ user: name }, true)} />}
      {error && <Told error={error} />}
      {!data && !error && <Waiting />}
      {shown.length > 0 && (
        <Wide label={w.users.title}>
          <Table miw={680} verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th w={30} aria-label={w.details} />
                <Table.Th>{w.name}</Table.Th><Table.Th>{w.users.orgRole}</Table.Th><Table.Th>{w.users.projects}</Table.Th>
                <Table.Th>{w.users.keys}</Table.Th><Table.Th>{w.users.state}</Table.Th><Table.Th>{w.created}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {shown.map((user) => {
                const open = url["user"] === user.name;
                return (
                  <Fragment key={user.name}>
                    <Table.Tr data-user={user.name}>
                      <Table.Td>
                        {may && (
                          <UnstyledButton aria-expanded={open} aria-label={`${w.details}: ${user.name}`} onClick={() => change({ user: open ? undefined : user.name }, true)}>
                            <Icon name={open ? "down" : "right"} />
                          </UnstyledButton>
                        )}
                      </Table.Td>
                      <Table.Td>
                        <Group gap={6}>
                          <Text size="sm" fw={550}>{user.name}</Text>
                          {user.name === who.user && <Badge size="sm" variant="default" tt="none">{w.users.you}</Badge>}
                        </Group>
                        {user.kind === "service" && <Text size="xs" c="dimmed">{w.users.kinds.service}{user.project && ` ${w.users.of(user.project)}`}</Text>}
                      </Table.Td>
                      <Table.Td>{user.role ? w.roles[user.role] : "–"}</Table.Td>
                      <Table.Td maw={300}>
                        {user.projects.map((each) => `${each.project} (${w.roles[each.role]})`).join(", ") || <span className="quiet">{w.users.inNone}</span>}
                      </Table.Td>
                      <Table.Td>{user.keys}</Table.Td>
                      <Table.Td>{user.disabled ? <Badge color="orange" variant="light" tt="none" size="sm">{w.users.disabled}</Badge> : w.users.active}</Table.Td>
                      <Table.Td><Ago at={user.created} /></Table.Td>
                    </Table.Tr>
                    {open && may && <Table.Tr><Table.Td /><Table.Td colSpan={6}><Opened><Acts user={user} /></Opened></Table.Td></Table.Tr>}
                  </Fragment>
                );
              })}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
    </Part>
  );
} // prettier-ignore

function Acts({ user }: { user: User }): ReactNode {
  const w = useWords(words);
  const name = user.name;
  const path = { params: { path: { name } } };
  const [stop, setStop] = useState(false);
  const role = useAct((next: OrgRole | null) => got(api.PUT("/api/v1/users/{name}/role", { ...path, body: { role: next } })), ["users", "who"]);
  const disable = useAct(() => got(api.PUT("/api/v1/users/{name}/disabled", { ...path, body: { disabled: !user.disabled } })), ["users"]);
  const remove = useAct(() => got(api.DELETE("/api/v1/users/{name}", { params: { path: { name }, query: { stop_jobs: stop } } })), ["users", "projects"]);
  const link = useAct(() => got(api.POST("/api/v1/users/{name}/password-link", { ...path, body: {} })), []);
  return (
    <Stack gap="sm" py="xs">
      <Group align="end" gap="sm">
        <Select size="xs" w={250} label={w.users.setRole(name)} value={user.role ?? "none"} allowDeselect={false}
          data={[{ value: "none", label: w.none }, ...ORG.map((each) => ({ value: each, label: w.roles[each] }))]}
          onChange={(next) => next && role.run(next === "none" ? null : (next as OrgRole))} />
        {user.kind === "person" && (
          <Button size="xs" variant="default" loading={link.busy} onClick={() => link.run()}>{w.users.passwordLink}</Button>
        )}
        {user.disabled ? (
          <Button size="xs" variant="default" loading={disable.busy} onClick={() => disable.run()}>{w.users.enable}</Button>
        ) : (
          <Sure variant="default" label={w.users.disable} ask={w.users.disableAsk} color="orange" act={() => disable.run()} busy={disable.busy} error={disable.error} line={line("user", "disable", name)} />
        )}
        <Sure label={w.remove} ask={w.users.removeAsk} name={name} act={() => remove.run()} busy={remove.busy} error={remove.error}
          line={line("user", "rm", name, stop && "--stop-jobs")}>
          <Checkbox size="xs" label={w.users.stopJobs} checked={stop} onChange={(event) => setStop(event.currentTarget.checked)} />
        </Sure>
      </Group>
      {[role.error, link.error].filter(Boolean).slice(0, 1).map((each) => <Told key="told" error={each} />)}
      {link.made && <Once title={w.users.linkFor(name)} parts={[[w.users.link, link.made.url]]} close={link.reset} />}
      <Cli line={line("user", "role", name, user.role ?? "none")} />
    </Stack>
  );
} // prettier-ignore

function NewUser({ close, made }: { close: () => void; made: (name: string) => void }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [name, setName] = useState("");
  const [kind, setKind] = useState<Schema["UserKind"]>("person");
  const [role, setRole] = useState<OrgRole | null>(null);
  const [project, setProject] = useState<string | null>(who.project);
  const [projectRole, setProjectRole] = useState<ProjectRole>("member");
  const act = useAct(
    () => got(api.POST("/api/v1/users", { body: { name: name.trim(), kind, role, project, project_role: projectRole } })),
    ["users", "projects"],
    (answer) => {
      made(answer.name);
      close();
    },
  );
  const told = fieldErrors(act.error, ["name", "kind", "role", "project", "project_role"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    act.run();
  };
  return (
    <form onSubmit={submit} aria-label={w.users.fresh}>
      <Stack gap="sm" maw={520} mb="md">
        <TextInput label={w.name} value={name} required autoFocus autoComplete="off" error={told.at.name} onChange={(event) => setName(event.currentTarget.value)} />
        <Group grow align="start">
          <Select label={w.users.kind} allowDeselect={false} value={kind} error={told.at.kind} onChange={(next) => next && setKind(next as Schema["UserKind"])}
            data={(["person", "service"] as const).map((each) => ({ value: each, label: w.users.kinds[each] }))} />
          <Select label={w.users.orgRole} clearable placeholder={w.none} value={role} error={told.at.role} onChange={(next) => setRole(next as OrgRole | null)}
            data={ORG.map((each) => ({ value: each, label: w.roles[each] }))} description={role && w.roleSays[role]} />
        </Group>
        <Group grow align="start">
          <Select label={w.users.project} clearable searchable placeholder={w.none} value={project} error={told.at.project} onChange={setProject}
            data={who.projects.map((each) => each.name)} />
          <Select label={w.users.projectRole} allowDeselect={false} disabled={!project} value={projectRole} error={told.at.project_role}
            onChange={(next) => next && setProjectRole(next as ProjectRole)} description={w.roleSays[projectRole]}
            data={IN_PROJECT.map((each) => ({ value: each, label: w.roles[each] }))} />
        </Group>
        {Boolean(told.rest) && <Told error={told.rest} />}
        <Group gap="xs"><Button type="submit" loading={act.busy}>{w.make}</Button><Button variant="default" onClick={close}>{w.cancel}</Button></Group>
        <Cli line={line("user", "create", name.trim() || "NAME", kind === "service" && "--service", role && ["--role", role], project && ["--in", project],
          project && projectRole !== "member" && ["--as", projectRole])} />
      </Stack>
    </form>
  );
} // prettier-ignore
