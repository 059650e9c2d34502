/** Where gangs run: what each node has, who holds it, and why one is not used. */
import { Button, Code, Group, Select, SimpleGrid, Table, Text, TextInput, UnstyledButton } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Fragment, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { bytes, value } from "../i18n/format";
import { Command } from "../look/Command";
import { Icon } from "../look/Icon";
import { Empty, Page } from "../look/Page";
import { Meter, Opened, Part, Waiting, Wide } from "../look/Part";
import { State } from "../look/State";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { useFeed } from "../shell/feed";
import { useFresh } from "../shell/fresh";
import { matches, together, type Total } from "./cells";
import { GpuMap } from "./GpuMap";
import css from "./nodes.module.css";
import { words } from "./words";

type Node = Schema["NodeView"];
const SAMPLES_MS = 2000;
type Kind = "gpus" | "cpus_milli" | "memory_bytes";

export default function Nodes(): ReactNode {
  const w = useWords(words);
  const [url, change] = useUrl();
  const fresh = useFresh("nodes", SAMPLES_MS);
  useFeed({ system: fresh });
  const { data, error, refetch } = useQuery({ queryKey: ["nodes"], queryFn: () => got(api.GET("/api/v1/nodes")) });
  if (error) return <Page title={w.title}><Told error={error} again={() => void refetch()} /></Page>;
  if (!data) return <Page title={w.title}><Waiting rows={8} /></Page>;
  if (!data.items.length) {
    return (
      <Page title={w.title}>
        <Empty title={w.empty}>
          <Text c="dimmed" mb="sm">{w.emptyHint}</Text>
          <Command line="windlass up --fake-gpus 4" />
        </Empty>
      </Page>
    );
  } // prettier-ignore
  const pools = [...new Set(data.items.map((each) => each.pool).filter(Boolean))].sort();
  const states = [...new Set(data.items.map((each) => each.state))].sort();
  const shown = data.items.filter(
    (each) =>
      matches(each, url["q"] ?? "") &&
      (!url["pool"] || each.pool === url["pool"]) &&
      (!url["state"] || each.state === url["state"]),
  );
  const ready = shown.filter((each) => each.state === "ready").length;
  return (
    <Page
      title={w.title}
      actions={
        <>
          <TextInput
            size="xs"
            aria-label={w.filter}
            placeholder={w.filterHint}
            leftSection={<Icon name="search" size={14} />}
            value={url["q"] ?? ""}
            onChange={(event) => change({ q: event.currentTarget.value }, true)}
          />
          {pools.length > 0 && (
            <Select size="xs" w={140} aria-label={w.pool} placeholder={w.anyPool} data={pools} value={url["pool"] ?? null}
              clearable onChange={(pool) => change({ pool: pool ?? undefined })} />
          )}
          {states.length > 1 && (
            <Select size="xs" w={140} aria-label={w.state} placeholder={w.anyState} data={states} value={url["state"] ?? null}
              clearable onChange={(state) => change({ state: state ?? undefined })} />
          )}
        </>
      }
    >
      <Part title={w.all} hint={w.summary(shown.length, ready)}>
        <SimpleGrid cols={{ base: 1, sm: 3 }} spacing="lg">
          <Sum label={w.gpus} found={together(shown, "gpus")} kind="gpus" />
          <Sum label={w.cpu} found={together(shown, "cpus_milli")} kind="cpus_milli" />
          <Sum label={w.memory} found={together(shown, "memory_bytes")} kind="memory_bytes" />
        </SimpleGrid>
      </Part>
      {!shown.length && (
        <Empty title={w.none}>
          <Button variant="default" onClick={() => change({ q: undefined, pool: undefined, state: undefined })}>{w.clear}</Button>
        </Empty>
      )}
      {shown.some((each) => each.capacity.gpus > 0) && <GpuMap nodes={shown} />}
      {shown.length > 0 && (
        <Part title={w.list}>
          <Wide label={w.list}>
            <Table verticalSpacing="xs" miw={820}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th w={36} aria-label={w.details} />
                  <Table.Th>{w.name}</Table.Th>
                  <Table.Th>{w.state}</Table.Th>
                  <Table.Th>{w.use}</Table.Th>
                  <Table.Th>{w.jobs}</Table.Th>
                  <Table.Th>{w.pool}, {w.labels}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {shown.map((node) => (
                  <NodeRow key={node.name} node={node} open={url["node"] === node.name}
                    toggle={() => change({ node: url["node"] === node.name ? undefined : node.name }, true)} />
                ))}
              </Table.Tbody>
            </Table>
          </Wide>
        </Part>
      )}
    </Page>
  );
} // prettier-ignore

function useAmount(): (kind: Kind, amount: number) => string {
  const { language } = useLanguage();
  return (kind, amount) =>
    kind === "memory_bytes" ? bytes(amount, language) : value(kind === "gpus" ? amount : amount / 1000, language);
}

function Sum({ label, found, kind }: { label: string; found: Total; kind: Kind }): ReactNode {
  const w = useWords(words);
  const said = useAmount();
  if (found.free === null) {
    return <Text size="sm" title={w.unknownHint}>{label}: {said(kind, found.total)} ({w.unknown})</Text>;
  } // prettier-ignore
  return (
    <Meter
      label={label}
      used={found.total - found.free}
      total={found.total}
      said={w.freeOf(said(kind, found.free), said(kind, found.total))}
    />
  );
}

function NodeRow({ node, open, toggle }: { node: Node; open: boolean; toggle: () => void }): ReactNode {
  const w = useWords(words);
  const one = (kind: Kind, label: string): ReactNode =>
    node.capacity[kind] > 0 && (
      <Sum label={label} found={{ total: node.capacity[kind], free: node.free?.[kind] ?? null }} kind={kind} />
    );
  return (
    <Fragment>
      <Table.Tr data-node={node.name}>
        <Table.Td>
          <UnstyledButton onClick={toggle} aria-expanded={open} aria-label={`${w.details}: ${node.name}`}>
            <Icon name={open ? "down" : "right"} />
          </UnstyledButton>
        </Table.Td>
        <Table.Td>
          <Text fw={600} size="sm">{node.name}</Text>
          <Text size="xs" c="dimmed">{[node.engine, node.gpu_model].filter(Boolean).join(" · ")}</Text>
        </Table.Td>
        <Table.Td maw={260}>
          <State state={node.state} />
          {node.reason && <Text size="xs" mt={4}>{node.reason}</Text>}
        </Table.Td>
        <Table.Td>
          <div className={css.bars}>
            {one("gpus", w.gpus)}
            {one("cpus_milli", w.cpu)}
            {one("memory_bytes", w.memory)}
          </div>
        </Table.Td>
        <Table.Td>
          <Jobs node={node} />
        </Table.Td>
        <Table.Td>
          <Text size="sm">{node.pool || <span className="quiet">{w.noPool}</span>}</Text>
          <Text size="xs" c="dimmed">{node.labels.join(", ")}</Text>
        </Table.Td>
      </Table.Tr>
      {open && (
        <Table.Tr>
          <Table.Td />
          <Table.Td colSpan={5}>
            <Opened><Details node={node} /></Opened>
          </Table.Td>
        </Table.Tr>
      )}
    </Fragment>
  );
} // prettier-ignore

function Jobs({ node }: { node: Node }): ReactNode {
  const w = useWords(words);
  if (!node.jobs.length) return <Text size="sm" c="dimmed">{w.idle}</Text>; // prettier-ignore
  return (
    <ul className={css.jobs}>
      {node.jobs.map((job, at) => (
        <li key={job.id ?? at}>
          {job.id ? (
            <Link to="/jobs/$job" params={{ job: job.id }}>{job.name}</Link>
          ) : (
            <Text size="sm" span c="dimmed">{w.others}</Text>
          )}
          {job.members > 1 && <Text size="xs" span c="dimmed">{` · ${w.members(job.members)}`}</Text>}
        </li>
      ))}
    </ul>
  );
} // prettier-ignore

function Details({ node }: { node: Node }): ReactNode {
  const w = useWords(words);
  const said = useAmount();
  const kept = node.reserve;
  const { node_cpu_percent: cpu, node_memory_bytes: memory } = node.used;
  const rows: [string, ReactNode][] = [
    [w.engine, node.engine],
    [w.model, node.gpu_model],
    [w.rack, node.rack],
    [w.block, node.block],
    [w.slots, node.capacity.slots ? `${node.free?.slots ?? "?"} / ${node.capacity.slots}` : ""],
    [w.reserve, [kept.cpus_milli && `${said("cpus_milli", kept.cpus_milli)} ${w.cpu}`,
      kept.memory_bytes && said("memory_bytes", kept.memory_bytes)].filter(Boolean).join(", ")],
    [w.nodeUse, [cpu !== undefined && `${w.cpu} ${Math.round(cpu)} %`, memory !== undefined && `${w.memory} ${said("memory_bytes", memory)}`].filter(Boolean).join(", ")],
    [w.isolation, Object.keys(node.isolation).length > 0 && (
      <Group gap={6}>{Object.entries(node.isolation).map(([part, how]) => <Code key={part}>{part}: {how}</Code>)}</Group>
    )],
  ]; // prettier-ignore
  return (
    <dl className={css.facts}>
      {rows.filter(([, said]) => said).map(([name, said]) => (
        <Fragment key={name}>
          <dt>{name}</dt>
          <dd>{said}</dd>
        </Fragment>
      ))}
    </dl>
  );
} // prettier-ignore
