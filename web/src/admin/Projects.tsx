/** Tenants, and who is what in them. */
import { Badge, Button, Group, Stack, Table, Text, TextInput, UnstyledButton } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Fragment, useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { Cli, Sure, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { fieldErrors } from "../look/fields";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Opened, Part, Waiting, Wide } from "../look/Part";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { useWho } from "../shell/who";
import { Members } from "./Members";
import { words } from "./words";

export function Projects(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const may = who.may("project.admin");
  const [url, change] = useUrl();
  const [making, setMaking] = useState(false);
  const { data, error } = useQuery({ queryKey: ["projects"], queryFn: () => got(api.GET("/api/v1/projects")) });
  return (
    <Part title={w.projects.title} hint={w.projects.hint}
      actions={may && <Button size="xs" leftSection={<Icon name="plus" />} onClick={() => setMaking(!making)} aria-expanded={making}>{w.projects.fresh}</Button>}>
      {making && <NewProject close={() => setMaking(false)} made={(name) => change({ open: name }, true)} />}
      {error && <Told error={error} />}
      {!data && !error && <Waiting />}
      {data && (
        <Wide label={w.projects.title}>
          <Table miw={680} verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th w={30} aria-label={w.details} />
                <Table.Th>{w.name}</Table.Th><Table.Th>{w.projects.yours}</Table.Th><Table.Th>{w.projects.members}</Table.Th>
                <Table.Th>{w.projects.jobs}</Table.Th><Table.Th>{w.created}</Table.Th><Table.Th aria-label={w.actions} />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {data.items.map((each) => {
                const open = url["open"] === each.name;
                return (
                  <Fragment key={each.name}>
                    <Table.Tr data-project={each.name}>
                      <Table.Td>
                        <UnstyledButton aria-expanded={open} aria-label={`${w.details}: ${each.name}`} onClick={() => change({ open: open ? undefined : each.name }, true)}>
                          <Icon name={open ? "down" : "right"} />
                        </UnstyledButton>
                      </Table.Td>
                      <Table.Td><Text size="sm" fw={550}>{each.name}</Text></Table.Td>
                      <Table.Td>{each.role ? w.roles[each.role] : <span className="quiet">{w.projects.byOrg}</span>}</Table.Td>
                      <Table.Td>{each.members}</Table.Td>
                      <Table.Td>{each.jobs}</Table.Td>
                      <Table.Td><Ago at={each.created} /></Table.Td>
                      <Table.Td>
                        {each.name === who.project ? <Badge size="sm" variant="default" tt="none">{w.projects.here}</Badge>
                        : <Button size="compact-xs" variant="subtle" onClick={() => who.choose(each.name)} aria-label={`${w.projects.switchTo}: ${each.name}`}>{w.projects.switchTo}</Button>}
                      </Table.Td>
                    </Table.Tr>
                    {open && <Table.Tr><Table.Td /><Table.Td colSpan={6}><Opened><One name={each.name} gone={() => change({ open: undefined }, true)} /></Opened></Table.Td></Table.Tr>}
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

function One({ name, gone }: { name: string; gone: () => void }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const { data, error } = useQuery({
    queryKey: ["projects", name],
    queryFn: () => got(api.GET("/api/v1/projects/{name}", { params: { path: { name } } })),
  });
  const remove = useAct(() => got(api.DELETE("/api/v1/projects/{name}", { params: { path: { name } } })), ["projects", "who"], gone);
  if (error) return <Told error={error} />;
  if (!data) return <Waiting rows={2} />;
  const admin = who.may("project.admin");
  return (
    <Stack gap="sm" py="xs">
      <Members project={data} may={admin || data.role === "maintainer"} />
      {admin && (
        <div>
          <Sure label={w.projects.removeIt} ask={w.projects.removeAsk} name={name} act={() => remove.run()} busy={remove.busy} error={remove.error} line={line("project", "rm", name)} />
        </div>
      )}
    </Stack>
  );
} // prettier-ignore

function NewProject({ close, made }: { close: () => void; made: (name: string) => void }): ReactNode {
  const w = useWords(words);
  const [name, setName] = useState("");
  const act = useAct(
    () => got(api.POST("/api/v1/projects", { body: { name: name.trim() } })) as Promise<Schema["ProjectDetail"]>,
    ["projects", "who"],
    (answer) => {
      made(answer.name);
      close();
    },
  );
  const told = fieldErrors(act.error, ["name"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    act.run();
  };
  return (
    <form onSubmit={submit} aria-label={w.projects.fresh}>
      <Stack gap="sm" maw={420} mb="md">
        <TextInput label={w.name} value={name} required autoFocus autoComplete="off" error={told.at.name} onChange={(event) => setName(event.currentTarget.value)} />
        {Boolean(told.rest) && <Told error={told.rest} />}
        <Group gap="xs"><Button type="submit" loading={act.busy}>{w.make}</Button><Button variant="default" onClick={close}>{w.cancel}</Button></Group>
        <Cli line={line("project", "create", name.trim() || "NAME")} />
      </Stack>
    </form>
  );
} // prettier-ignore
