/** Who is in a project, and as what; service accounts of it. */
import { Autocomplete, Button, Group, Select, SegmentedControl, Stack, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { Cli, Sure, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { fieldErrors } from "../look/fields";
import { line } from "../look/line";
import { Wide } from "../look/Part";
import { Told } from "../look/Told";
import { useWho } from "../shell/who";
import { IN_PROJECT } from "./Users";
import { words } from "./words";

type Role = Schema["ProjectRole"];

export function Members({ project, may }: { project: Schema["ProjectDetail"]; may: boolean }): ReactNode {
  const w = useWords(words);
  return (
    <>
      <Wide label={w.projects.members}>
      <Table verticalSpacing={4} withTableBorder>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{w.projects.user}</Table.Th><Table.Th>{w.role}</Table.Th><Table.Th>{w.projects.since}</Table.Th>{may && <Table.Th aria-label={w.actions} />}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {project.people.map((each) => <Member key={each.user} project={project.name} member={each} may={may} />)}
        </Table.Tbody>
      </Table>
      </Wide>
      {may && <Add project={project} />}
    </>
  );
} // prettier-ignore

function useSetMember(project: string, then?: () => void) {
  return useAct(
    ({ user, role }: { user: string; role: Role }) =>
      got(api.PUT("/api/v1/projects/{name}/members/{user}", { params: { path: { name: project, user } }, body: { role } })),
    ["projects", "users", "who"],
    then,
  );
}

function Member({ project, member, may }: { project: string; member: Schema["MemberView"]; may: boolean }): ReactNode {
  const w = useWords(words);
  const { user } = member;
  const set = useSetMember(project);
  const out = useAct(
    () => got(api.DELETE("/api/v1/projects/{name}/members/{user}", { params: { path: { name: project, user } } })),
    ["projects", "users", "who"],
  );
  return (
    <Table.Tr data-member={user}>
      <Table.Td>
        {user}
        {(member.kind === "service" || member.disabled) && (
          <Text size="xs" c="dimmed">{[member.kind === "service" && w.users.kinds.service, member.disabled && w.projects.disabled].filter(Boolean).join(" · ")}</Text>
        )}
      </Table.Td>
      <Table.Td>
        {may ? (
          <Select size="xs" w={130} aria-label={w.projects.roleOf(user)} allowDeselect={false} value={member.role} disabled={set.busy}
            data={IN_PROJECT.map((each) => ({ value: each, label: w.roles[each] }))} onChange={(role) => role && set.run({ user, role: role as Role })} />
        ) : w.roles[member.role]}
        {Boolean(set.error) && <Told error={set.error} />}
      </Table.Td>
      <Table.Td><Ago at={member.added} /></Table.Td>
      {may && (
        <Table.Td>
          <Sure label={w.projects.takeOut} ask={w.projects.removeMember(user)} act={() => out.run()} busy={out.busy} error={out.error}
            aria-label={`${w.projects.takeOut}: ${user}`} line={line("project", "remove", project, user)} />
        </Table.Td>
      )}
    </Table.Tr>
  );
} // prettier-ignore

function Add({ project }: { project: Schema["ProjectDetail"] }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [kind, setKind] = useState<"member" | "service">("member");
  const [user, setUser] = useState("");
  const [role, setRole] = useState<Role>("member");
  const all = useQuery({ queryKey: ["users"], queryFn: () => got(api.GET("/api/v1/users")), enabled: who.may("user.read") });
  const inside = new Set(project.people.map((each) => each.user));
  const set = useSetMember(project.name, () => setUser(""));
  const service = useAct(
    () => got(api.POST("/api/v1/projects/{name}/services", { params: { path: { name: project.name } }, body: { name: user.trim(), role } })),
    ["projects", "users"],
    () => setUser(""),
  );
  const act = kind === "service" ? service : set;
  const told = fieldErrors(act.error, ["name", "user", "role"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (kind === "service") service.run();
    else set.run({ user: user.trim(), role });
  };
  const names = (all.data?.items ?? []).map((each) => each.name).filter((each) => !inside.has(each));
  return (
    <form onSubmit={submit} aria-label={w.projects.addMember}>
      <Stack gap="xs" maw={560}>
        <SegmentedControl size="xs" aria-label={w.users.kind} value={kind} onChange={(next) => setKind(next as "member")}
          data={[{ value: "member", label: w.projects.addMember }, { value: "service", label: w.projects.service }]} />
        {kind === "service" && <Text size="xs" c="dimmed">{w.projects.serviceHint}</Text>}
        <Group align="start" gap="xs">
          <Autocomplete size="xs" label={kind === "service" ? w.name : w.projects.user} data={kind === "service" ? [] : names} value={user} onChange={setUser}
            required error={told.at.name ?? told.at.user} autoComplete="off" />
          <Select size="xs" w={140} label={w.role} allowDeselect={false} value={role} error={told.at.role} onChange={(next) => next && setRole(next as Role)}
            data={IN_PROJECT.map((each) => ({ value: each, label: w.roles[each] }))} />
          <Button size="xs" mt={22} type="submit" loading={act.busy}>{w.add}</Button>
        </Group>
        {Boolean(told.rest) && <Told error={told.rest} />}
        <Cli line={line("project", "add", project.name, user.trim() || "USER", role !== "member" && ["--role", role], kind === "service" && "--service")} />
      </Stack>
    </form>
  );
} // prettier-ignore
