/** The project's models, by name. */
import { Anchor, Button, Group, Table, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { count } from "../i18n/format";
import { Ago } from "../look/Ago";
import { Command } from "../look/Command";
import { Icon } from "../look/Icon";
import { Empty, Page } from "../look/Page";
import { Waiting, Wide } from "../look/Part";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { useWho } from "../shell/who";
import { Alias } from "./Alias";
import { RegisterForm } from "./RegisterForm";
import { useModelsLive } from "./live";
import { words } from "./words";

export default function Models(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [url, change] = useUrl();
  useModelsLive();
  const { data, error, refetch } = useQuery({ queryKey: ["models"], queryFn: () => got(api.GET("/api/v1/models")) });
  const text = url.q ?? "";
  const found = (data?.items ?? []).filter((each) => each.name.toLowerCase().includes(text.toLowerCase()));
  const may = who.may("model.write");
  const open = may && url.register !== undefined;
  const start = url.register && url.register !== "1" ? { job: { id: url.register, name: url.name ?? url.register } } : {};

  return (
    <Page
      title={w.title}
      actions={
        <>
          {Boolean(data?.items.length) && (
            <TextInput
              size="xs"
              aria-label={w.search}
              placeholder={w.search}
              leftSection={<Icon name="search" size={14} />}
              value={text}
              onChange={(event) => change({ q: event.currentTarget.value }, true)}
            />
          )}
          {may && !open && Boolean(data?.items.length) && (
            <Button size="xs" leftSection={<Icon name="plus" size={14} />} onClick={() => change({ register: "1" })}>
              {w.register}
            </Button>
          )}
        </>
      }
    >
      {open && <RegisterForm start={start} close={() => change({ register: undefined, name: undefined })} />}
      {Boolean(error) && <Told error={error} again={() => void refetch()} />}
      {!data && !error && <Waiting />}
      {data?.items.length === 0 && !open && (
        <Empty title={w.empty}>
          <Text c="dimmed" mb="md">
            {w.emptyHint}
          </Text>
          <Command line="windlass model register - best.pt --as digits --alias champion" />
          {may && (
            <Button mt="md" onClick={() => change({ register: "1" })}>
              {w.register}
            </Button>
          )}
        </Empty>
      )}
      {data && data.items.length > 0 && found.length === 0 && <Text c="dimmed">{w.nothing(text)}</Text>}
      {found.length > 0 && <List items={found} />}
    </Page>
  );
}

function List({ items }: { items: readonly Schema["ModelView"][] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  return (
    <Wide label={w.title}>
      <Table highlightOnHover verticalSpacing="xs" miw={640}>
        <Table.Thead>
          <Table.Tr>
            {[w.name, w.versions, w.aliases, w.description, w.by, w.changed].map((each) => (
              <Table.Th key={each} scope="col">
                {each}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {items.map((each) => (
            <Table.Tr key={each.name}>
              <Table.Th scope="row">
                <Anchor component={Link} to={`/models/${encodeURIComponent(each.name)}`} size="sm">
                  {each.name}
                </Anchor>
              </Table.Th>
              <Table.Td>{count(each.versions, language)}</Table.Td>
              <Table.Td>
                <Group gap={4}>
                  {Object.entries(each.aliases).map(([alias, version]) => (
                    <Alias key={alias} alias={alias} version={version} />
                  ))}
                </Group>
              </Table.Td>
              <Table.Td maw={320}>
                <div className="clip" title={each.description}>
                  {each.description}
                </div>
              </Table.Td>
              <Table.Td>{each.user}</Table.Td>
              <Table.Td style={{ whiteSpace: "nowrap" }}>
                <Ago at={each.changed} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Wide>
  );
}
