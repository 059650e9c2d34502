/** The Files tab: what the job left behind, and its checkpoints. */
import { ActionIcon, Anchor, Breadcrumbs, Button, Group, Table, Text, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { api, got } from "../../api/client";
import { useLanguage, useWords } from "../../i18n";
import { bytes } from "../../i18n/format";
import { Ago } from "../../look/Ago";
import { Icon } from "../../look/Icon";
import { Part, Wide, Waiting } from "../../look/Part";
import { save } from "../../look/save";
import { Told } from "../../look/Told";
import { useUrl } from "../../look/url";
import { useWho } from "../../shell/who";
import { Checkpoints } from "./Checkpoints";
import { pathOf } from "./Code";
import type { Detail } from "./asking";
import { Register } from "./Register";
import { Viewer } from "./Viewer";
import { words } from "./words";

export default function Files({ job }: { job: Detail }): ReactNode {
  return (
    <>
      <Checkpoints job={job} />
      <Artifacts job={job} />
    </>
  );
}

function Artifacts({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const { may } = useWho();
  const [url, change] = useUrl();
  const folder = url.folder ?? "";
  const [registering, setRegistering] = useState<string | null>(null);
  const { data, error, refetch } = useQuery({
    queryKey: ["job", job.id, "artifacts", folder],
    enabled: may("track.read"),
    queryFn: () => got(api.GET("/api/v1/runs/{ref}/artifacts", { params: { path: { ref: job.id }, query: { path: folder } } })),
  });
  const steps = folder ? folder.split("/") : [];
  const shown = data?.items.find((each) => !each.folder && each.path === url.file);
  const of = (path: string): string => `runs/${job.id}/artifacts/${pathOf(path)}`;
  const nameOf = (path: string): string => path.split("/").at(-1) ?? path;
  return (
    <Part title={w.artifacts} hint={w.artifactsHint}>
      {Boolean(error) && <Told error={error} again={() => void refetch()} />}
      {!data && !error && <Waiting rows={3} />}
      {steps.length > 0 && (
        <Breadcrumbs mb="xs" fz="sm">
          <Anchor component="button" type="button" size="sm" onClick={() => change({ folder: undefined, file: undefined })}>{w.artifacts}</Anchor>
          {steps.map((each, at) => (
            <Anchor key={at} component="button" type="button" size="sm" onClick={() => change({ folder: steps.slice(0, at + 1).join("/"), file: undefined })}>{each}</Anchor>
          ))}
        </Breadcrumbs>
      )}
      {data && !data.items.length && (
        <Text size="sm" c="dimmed">
          {`${w.noFiles} · ${w.noFilesHint}`}
        </Text>
      )}
      {data && data.items.length > 0 && (
        <Wide label={w.artifacts}>
          <Table fz="sm" verticalSpacing={4} highlightOnHover>
            <Table.Thead>
              <Table.Tr>
                <Table.Th scope="col">{w.name}</Table.Th>
                <Table.Th scope="col">{w.size}</Table.Th>
                <Table.Th scope="col">{w.changedAt}</Table.Th>
                <Table.Th scope="col">{w.actions}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {data.items.map((each) => (
                <Table.Tr key={each.path}>
                  <Table.Th scope="row" fw={500}>
                    <Anchor component="button" type="button" size="sm" ta="left" onClick={() => (each.folder ? change({ folder: each.path, file: undefined }) : change({ file: each.path === url.file ? undefined : each.path }, true))}>
                      {nameOf(each.path)}
                      {each.folder && "/"}
                    </Anchor>
                  </Table.Th>
                  <Table.Td style={{ whiteSpace: "nowrap" }}>{bytes(each.size, language)}</Table.Td>
                  <Table.Td style={{ whiteSpace: "nowrap" }}>{each.changed && <Ago at={each.changed} />}</Table.Td>
                  <Table.Td>
                    <Group gap={2} wrap="nowrap">
                      {!each.folder && (
                        <Tooltip label={w.download}>
                          <ActionIcon variant="subtle" color="gray" aria-label={`${w.download}: ${each.path}`} onClick={() => void save(of(each.path), {}, nameOf(each.path))}>
                            <Icon name="download" size={15} />
                          </ActionIcon>
                        </Tooltip>
                      )}
                      {may("model.write") && (
                        <Tooltip label={w.register}>
                          <ActionIcon variant="subtle" color="gray" aria-label={`${w.register}: ${each.path}`} onClick={() => setRegistering(registering === each.path ? null : each.path)}>
                            <Icon name="models" size={15} />
                          </ActionIcon>
                        </Tooltip>
                      )}
                    </Group>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
      {registering !== null && <Register key={registering} job={job} path={registering} close={() => setRegistering(null)} />}
      {shown && <Viewer key={shown.path} address={of(shown.path)} path={shown.path} size={shown.size} digest={shown.digest ?? ""} />}
      {steps.length > 0 && (
        <Button size="compact-xs" variant="subtle" mt="xs" onClick={() => change({ folder: steps.slice(0, -1).join("/") || undefined, file: undefined })}>
          {w.up}
        </Button>
      )}
    </Part>
  );
}
