/** What the job has saved: with the metrics it had then, and what can be done from there. */
import { ActionIcon, Anchor, Badge, Button, Group, Table, Text, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { api, got, type Schema } from "../../api/client";
import { useLanguage, useWords } from "../../i18n";
import { bytes, count, value } from "../../i18n/format";
import { useMayChange } from "./Actions";
import { Sure, useAct } from "../../look/Act";
import { Ago } from "../../look/Ago";
import { Icon } from "../../look/Icon";
import { line } from "../../look/line";
import { Part, Wide } from "../../look/Part";
import { save } from "../../look/save";
import { Told } from "../../look/Told";
import { useUrl } from "../../look/url";
import { useWho } from "../../shell/who";
import { pathOf } from "./Code";
import { useCheckpoints, type Detail } from "./asking";
import { words } from "./words";

const MOST_METRICS = 6;

export function Checkpoints({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { data, error, refetch } = useCheckpoints(job.id);
  const [open, setOpen] = useState<string | null>(null);
  const metrics = [...new Set((data ?? []).flatMap((each) => Object.keys(each.metrics)))].slice(0, MOST_METRICS);
  const opened = data?.find((each) => each.path === open);
  return (
    <Part title={w.checkpoints}>
      {Boolean(error) && <Told error={error} again={() => void refetch()} />}
      {data && !data.length && (
        <Text size="sm" c="dimmed">
          {`${w.noCheckpoints} · ${w.noCheckpointsHint}`}
        </Text>
      )}
      {data && data.length > 0 && (
        <Wide label={w.checkpoints}>
          <Table fz="sm" verticalSpacing={4} highlightOnHover>
            <Table.Thead>
              <Table.Tr>
                {[w.step, w.saved, w.size, w.ranks].map((each) => (
                  <Table.Th key={each} scope="col">{each}</Table.Th>
                ))}
                {metrics.map((each) => (
                  <Table.Th key={each} scope="col" className="clip" maw={140} title={each}>{each}</Table.Th>
                ))}
                <Table.Th scope="col">{w.actions}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {data.map((each) => (
                <Row key={each.path} job={job} checkpoint={each} metrics={metrics} open={open === each.path} setOpen={(on) => setOpen(on ? each.path : null)} />
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
      {opened && <CheckpointFiles job={job} checkpoint={opened} />}
    </Part>
  );
}

function Row({ job, checkpoint, metrics, open, setOpen }: {
  job: Detail;
  checkpoint: Schema["Checkpoint"];
  metrics: readonly string[];
  open: boolean;
  setOpen: (open: boolean) => void;
}): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const { may } = useWho();
  const mine = useMayChange(job);
  const [, change] = useUrl();
  const which = `${checkpoint.step}.${checkpoint.attempt}`;
  const remove = useAct(
    () => got(api.DELETE("/api/v1/jobs/{ref}/checkpoints/{which}", { params: { path: { ref: job.id, which } } })),
    ["checkpoints"],
  );
  const step = count(checkpoint.step, language);
  return (
    <Table.Tr>
      <Table.Th scope="row" fw={550}>
        <Anchor component="button" type="button" size="sm" aria-expanded={open} onClick={() => setOpen(!open)}>{step}</Anchor>
        {checkpoint.bad && (
          <Tooltip label={checkpoint.bad}>
            <Badge size="xs" color="red" variant="light" ml={6} tt="none">{w.bad}</Badge>
          </Tooltip>
        )}
        {checkpoint.held_by.length > 0 && <Text size="xs" c="dimmed">{`${w.heldBy} ${checkpoint.held_by.join(", ")}`}</Text>}
      </Table.Th>
      <Table.Td style={{ whiteSpace: "nowrap" }}><Ago at={checkpoint.registered} /></Table.Td>
      <Table.Td style={{ whiteSpace: "nowrap" }}>{bytes(checkpoint.bytes, language)}</Table.Td>
      <Table.Td>{checkpoint.ranks ? count(checkpoint.ranks, language) : "–"}</Table.Td>
      {metrics.map((each) => (
        <Table.Td key={each}>{value(checkpoint.metrics[each], language)}</Table.Td>
      ))}
      <Table.Td>
        <Group gap={4} wrap="nowrap">
          {may("job.write") && !checkpoint.bad && (
            <Button size="compact-xs" variant="default" leftSection={<Icon name="again" size={12} />} onClick={() => change({ rerun: String(Date.now()), from: String(checkpoint.step) })}>
              {w.rerunFrom}
            </Button>
          )}
          {mine && (
            <Sure size="compact-xs" label={w.removeCheckpoint} ask={w.removeCheckpointAsk(step)} act={() => remove.run()} busy={remove.busy} error={remove.error} line={line("checkpoint", "rm", job.name, which)} />
          )}
        </Group>
      </Table.Td>
    </Table.Tr>
  );
}

function CheckpointFiles({ job, checkpoint }: { job: Detail; checkpoint: Schema["Checkpoint"] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const which = `${checkpoint.step}.${checkpoint.attempt}`;
  const { data, error } = useQuery({
    queryKey: ["checkpoints", job.id, which],
    queryFn: () => got(api.GET("/api/v1/jobs/{ref}/checkpoints/{which}", { params: { path: { ref: job.id, which } } })),
  });
  if (error) return <Told error={error} />;
  if (!data) return null;
  const title = w.filesOf(count(checkpoint.step, language));
  return (
    <Wide label={title}>
      <Text size="sm" fw={600} mt="sm">{title}</Text>
      <Table fz="sm" verticalSpacing={3}>
        <Table.Tbody>
          {data.files.slice(0, 200).map((file) => (
            <Table.Tr key={file.path}>
              <Table.Th scope="row" fw={500} className="mono">{file.path}</Table.Th>
              <Table.Td>{bytes(file.bytes, language)}</Table.Td>
              <Table.Td>
                <Tooltip label={w.download}>
                  <ActionIcon variant="subtle" color="gray" aria-label={`${w.download}: ${file.path}`} onClick={() => void save(`jobs/${job.id}/checkpoints/${which}/files/${pathOf(file.path)}`, {}, file.path.split("/").at(-1) ?? "file")}>
                    <Icon name="download" size={15} />
                  </ActionIcon>
                </Tooltip>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Wide>
  );
}
