/** Every GPU of every node at one look: how busy, and whose. */
import { Group, Text } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, type ReactNode } from "react";

import type { Schema } from "../api/client";
import { Heat, type HeatGpu } from "../charts/Heat";
import { useLanguage, useWords } from "../i18n";
import { bytes } from "../i18n/format";
import { Part } from "../look/Part";
import { State } from "../look/State";
import { cells, type Cell } from "./cells";
import { words } from "./words";

const NOBODY = "-";

export function GpuMap({ nodes }: { nodes: readonly Schema["NodeView"][] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const navigate = useNavigate();
  const rows = useMemo(() => {
    const drawn = (cell: Cell): HeatGpu => ({
      index: cell.index,
      utilisation: cell.busy ?? (cell.state === "free" ? 0 : null),
      jobs:
        cell.state !== "used" ? []
        : cell.owners.length ? cell.owners.map((each) => ({ id: each.id ?? NOBODY, name: each.name ?? w.others }))
        : [{ id: NOBODY, name: w.used }],
      note: [
        cell.memory !== null && w.memoryUsed(bytes(cell.memory, language)),
        cell.celsius !== null && `${Math.round(cell.celsius)} °C`,
        cell.watts !== null && `${Math.round(cell.watts)} W`,
      ].filter(Boolean).join(", "),
      healthy: cell.state !== "down",
    }); // prettier-ignore
    return nodes
      .filter((node) => node.capacity.gpus > 0)
      .map((node) => ({
        name: node.name,
        heading: (
          <Group gap={8} wrap="nowrap">
            <span>{node.name}</span>
            {node.state !== "ready" && <State state={node.state} />}
            {node.gpu_model && <Text size="xs" c="dimmed" span>{node.gpu_model}</Text>}
          </Group>
        ),
        gpus: cells(node).map(drawn),
      })); // prettier-ignore
  }, [nodes, w, language]);
  return (
    <Part title={w.heat}>
      <Heat
        title={w.heat}
        heading={<Text span size="sm" c="dimmed" fw={400}>{w.heatHint}</Text>}
        nodes={rows}
        onPick={(node, gpu) => {
          const job = gpu.jobs?.find((each) => each.id !== NOBODY);
          if (job) void navigate({ to: "/jobs/$job", params: { job: job.id } });
          else void navigate({ to: ".", search: ((before: object) => ({ ...before, node: node.name })) as never });
        }}
      />
    </Part>
  );
}
