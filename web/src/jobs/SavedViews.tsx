/** Views that one keeps: filter, columns, order under a name, on the server, for oneself. */
import { ActionIcon, Button, Group, Popover, Stack, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got } from "../api/client";
import { useWords } from "../i18n";
import { useAct } from "../look/Act";
import { Icon } from "../look/Icon";
import { Told } from "../look/Told";
import { parseQuery, writeQuery, type Query } from "../look/url";
import { words } from "./words";

const PAGE = "jobs";

export function SavedViews({ query }: { query: Query }): ReactNode {
  const w = useWords(words);
  const [name, setName] = useState("");
  const [open, setOpen] = useState(false);
  const { data } = useQuery({
    queryKey: ["views", PAGE],
    queryFn: () => got(api.GET("/api/v1/views", { params: { query: { page: PAGE } } })),
  });
  const { chosen: _, ...kept } = query;
  const keep = useAct(
    (named: string) =>
      got(api.PUT("/api/v1/views/{page}/{name}", { params: { path: { page: PAGE, name: named } }, body: { search: writeQuery(kept).slice(1) } })),
    ["views"],
    () => setName(""),
  );
  const drop = useAct((named: string) => got(api.DELETE("/api/v1/views/{page}/{name}", { params: { path: { page: PAGE, name: named } } })), ["views"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (name.trim()) keep.run(name.trim());
  };
  const views = data?.items ?? [];
  return (
    <Popover position="bottom-end" width={280} trapFocus shadow="md" opened={open} onChange={setOpen}>
      <Popover.Target>
        <Button variant="default" leftSection={<Icon name="star" />} onClick={() => setOpen(!open)}>
          {w.views}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <Stack gap={4}>
          {!views.length && (
            <Text size="sm" c="dimmed">
              {w.noViews}
            </Text>
          )}
          {views.map((view) => (
            <Group key={view.name} gap={4} wrap="nowrap" justify="space-between">
              <Link to="/jobs" search={parseQuery(view.search) as never} onClick={() => setOpen(false)} className="clip">
                {view.name}
              </Link>
              <ActionIcon variant="subtle" color="gray" aria-label={w.removeView(view.name)} onClick={() => drop.run(view.name)}>
                <Icon name="trash" size={14} />
              </ActionIcon>
            </Group>
          ))}
        </Stack>
        <form onSubmit={submit}>
          <Group gap={6} mt="sm" wrap="nowrap" align="flex-end">
            <TextInput size="xs" label={w.saveView} placeholder={w.viewName} value={name} onChange={(event) => setName(event.currentTarget.value)} style={{ flex: 1 }} autoComplete="off" />
            <Button size="xs" type="submit" loading={keep.busy} disabled={!name.trim()}>
              {w.save}
            </Button>
          </Group>
        </form>
        {Boolean(keep.error ?? drop.error) && <Told error={keep.error ?? drop.error} />}
      </Popover.Dropdown>
    </Popover>
  );
}
