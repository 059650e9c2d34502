/** The ledger, summed by what one asks for. */
import { Button, Group, Select, Table, Text, TextInput } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { Bars, type BarKind } from "../charts/Bars";
import { useTheme } from "../charts/ink";
import { useLanguage, useWords } from "../i18n";
import { bytes, duration, moment } from "../i18n/format";
import { Cli, useAct } from "../look/Act";
import { Command } from "../look/Command";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Empty } from "../look/Page";
import { Part, Waiting, Wide } from "../look/Part";
import { save } from "../look/save";
import { Told } from "../look/Told";
import { Typed } from "../look/Typed";
import { useUrl } from "../look/url";
import { useWho } from "../shell/who";
import { hours, money } from "./money";
import { asFlags, RANGES, span } from "./range";
import { amounts, bars, idle, OFS, PARTS, type Bar, type Of, type PartName } from "./stack";
import css from "./usage.module.css";
import { words } from "./words";

const BYS = ["project", "user", "day", "gpu", "pool", "job"] as const;
type By = (typeof BYS)[number];

export function Report(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [url, change] = useUrl();
  const [opened] = useState(() => Date.now());
  const all = who.may("usage.read-all");
  const range = url["range"] ?? "7d";
  const by = BYS.find((each) => each === url["by"]) ?? (all ? "project" : "user");
  const of: Of = OFS.find((each) => each === url["of"]) ?? "gpu";
  const asked = span(range, url, opened);
  const query = { by: by as By, from: asked.from, to: asked.to, user: url["user"], project: url["project"], limit: 1000 };
  const { data, error, refetch } = useQuery({
    queryKey: ["usage", "report", query],
    queryFn: () => got(api.GET("/api/v1/usage", { params: { query } })) as Promise<Schema["UsageReport"]>,
    placeholderData: keepPreviousData,
  });
  const csv = useAct(() => save("usage", { by, from: asked.from, to: asked.to, user: url["user"], project: url["project"], format: "csv" }, `usage-by-${by}.csv`), []);
  const ledger = useAct(() => save("usage/entries", { from: asked.from, to: asked.to, project: url["project"], format: "csv" }, "ledger.csv"), []);
  const made = useMemo(() => bars(data?.rows ?? [], of, by), [data, of, by]);
  const names = <T extends string>(all: readonly T[], said: Record<T, string>): { value: T; label: string }[] =>
    all.map((each) => ({ value: each, label: said[each] }));
  return (
    <>
      <Group mb="md" gap="xs" align="end">
        <Select size="xs" w={150} label={w.range} data={names(RANGES, w.ranges)} value={range} allowDeselect={false}
          onChange={(next) => change({ range: next === "7d" ? undefined : (next ?? undefined), from: undefined, to: undefined })} />
        {range === "own" && (
          <>
            <TextInput size="xs" type="date" label={w.from} value={url["from"] ?? ""} onChange={(event) => change({ from: event.currentTarget.value }, true)} />
            <TextInput size="xs" type="date" label={w.to} value={url["to"] ?? ""} onChange={(event) => change({ to: event.currentTarget.value }, true)} />
          </>
        )}
        <Select size="xs" w={130} label={w.by} data={names(BYS, w.bys)} value={by} allowDeselect={false} onChange={(next) => change({ by: next ?? undefined })} />
        <Select size="xs" w={130} label={w.of} data={names(OFS, w.ofs)} value={of} allowDeselect={false} onChange={(next) => change({ of: next ?? undefined })} />
        {all && (
          <Select size="xs" w={150} label={w.project} placeholder={w.everywhere} clearable searchable data={who.projects.map((each) => each.name)}
            value={url["project"] ?? null} onChange={(next) => change({ project: next ?? undefined })} />
        )}
        <Typed size="xs" w={130} label={w.user} placeholder={w.everybody} text={url["user"] ?? ""} onTyped={(user) => change({ user }, true)} />
        <Button size="xs" variant="default" leftSection={<Icon name="download" />} loading={csv.busy} onClick={() => csv.run()}>{w.csv}</Button>
        <Button size="xs" variant="default" leftSection={<Icon name="download" />} loading={ledger.busy} onClick={() => ledger.run()}>{w.ledger}</Button>
      </Group>
      {[error, csv.error, ledger.error].filter(Boolean).slice(0, 1).map((each) => <Told key="told" error={each} again={() => void refetch()} />)}
      {!data && !error && <Waiting rows={6} />}
      {data && <Figures report={data} />}
      {data && !data.rows.length && (
        <Empty title={w.nothing}>
          <Text c="dimmed" mb="sm">{w.nothingHint}</Text>
          <Command line="windlass run -- python train.py" />
        </Empty>
      )}
      {data && made.length > 0 && <Chart bars={made} of={of} by={by} report={data} />}
      {data && data.rows.length > 0 && (
        <Part title={w.table}>
          <Lines report={data} by={by} />
          {data.left_off ? <Text size="sm" mt="xs">{w.leftOff(data.left_off)}</Text> : null}
        </Part>
      )}
      <Cli line={line("usage", "report", ["--by", by], asFlags(range, asked), url["user"] && ["--user", url["user"]], url["project"] && ["--project", url["project"]])} />
    </>
  );
} // prettier-ignore

const COLOURS: Record<"light" | "dark", Record<PartName, string>> = {
  light: { used: "#0b6e6e", held: "#0b6e6e", charged: "#0b6e6e", idle: "#d99a2b", grace: "#7c8794", lost: "#b3261e" },
  dark: { used: "#35a6a1", held: "#35a6a1", charged: "#35a6a1", idle: "#c98f2e", grace: "#7c8794", lost: "#ff8a80" },
};
const MOST = 40;

function Chart({ bars, of, by, report }: { bars: readonly Bar[]; of: Of; by: By; report: Schema["UsageReport"] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const theme = useTheme();
  const found = new Set(bars.flatMap((bar) => bar.parts.map((part) => part.name)));
  const kinds: BarKind[] = PARTS.filter((name) => found.has(name)).map((name) => ({ kind: name, label: w.parts[name], colour: COLOURS[theme][name] }));
  return (
    <Part title={w.chart(w.ofs[of], w.bys[by])} hint={of === "gpu" && w.gpuUse}>
      <Bars
        title={w.chart(w.ofs[of], w.bys[by])}
        heading={<Text span size="sm" c="dimmed" fw={400}>{w.upTo(moment(report.until, language))}</Text>}
        direction={by === "day" ? "vertical" : "horizontal"}
        kinds={kinds}
        bars={bars.slice(0, MOST).map((bar) => ({
          label: by === "day" ? bar.label.slice(5) : bar.label,
          parts: bar.parts.map((part) => ({ kind: part.name, value: part.amount })),
          ...(by === "job" ? { id: bar.key } : {}),
        }))}
        format={(amount) => (of === "cost" ? `${money(amount, language)} ${report.currency}` : of === "memory" ? `${hours(amount, language)} ${w.gibHours}` : duration(amount * 3600, language))}
      />
    </Part>
  );
} // prettier-ignore

function Figures({ report }: { report: Schema["UsageReport"] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const { total, platform } = report;
  const share = (part: number | null): string => (part === null ? "" : w.notUsed(`${Math.round(part * 100)} %`));
  const memory = amounts(total, "memory");
  const figures: [string, string, string][] = [
    [w.gpuHeld, duration(total.gpu_seconds, language), ""],
    [w.cpuHeld, duration(total.cpu_seconds, language), ""],
    [w.cpuIdle, duration(Math.max(0, total.cpu_seconds - total.used_cpu_seconds), language), share(idle(total, "cpu"))],
    [w.memoryIdle, `${hours(Math.max(0, memory.held - (memory.used ?? 0)), language)} ${w.gibHours}`, share(idle(total, "memory"))],
    [w.cost, `${money(total.cost_micro / 1e6, language)} ${report.currency}`, ""],
  ];
  if (platform.cpu_seconds > 0 || platform.gpu_seconds > 0) {
    figures.push([w.notCharged, duration(platform.cpu_seconds, language), w.notChargedHint]);
  }
  return (
    <div className={css.figures}>
      {figures.map(([name, said, more]) => (
        <div key={name} className={css.figure}>
          <Text size="xs" c="dimmed">{name}</Text>
          <Text fw={650} size="lg">{said}</Text>
          {more && <Text size="xs" c="dimmed">{more}</Text>}
        </div>
      ))}
    </div>
  );
} // prettier-ignore

function Lines({ report, by }: { report: Schema["UsageReport"]; by: By }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const percent = (part: number | null): string => (part === null ? "–" : `${Math.round(part * 100)} %`);
  const cells = (row: Schema["UsageRow"]): ReactNode => {
    const memory = amounts(row, "memory");
    return (
      <>
        <Table.Td ta="right">{duration(row.gpu_seconds, language)}</Table.Td>
        <Table.Td ta="right">{duration(row.cpu_seconds, language)}</Table.Td>
        <Table.Td ta="right">{duration(row.used_cpu_seconds, language)}</Table.Td>
        <Table.Td ta="right">{percent(idle(row, "cpu"))}</Table.Td>
        <Table.Td ta="right">{hours(memory.held, language)}</Table.Td>
        <Table.Td ta="right">{percent(idle(row, "memory"))}</Table.Td>
        <Table.Td ta="right">{row.peak_memory_bytes ? bytes(row.peak_memory_bytes, language) : "–"}</Table.Td>
        <Table.Td ta="right">{money(row.cost_micro / 1e6, language)}</Table.Td>
      </>
    );
  };
  return (
    <Wide label={w.table}>
      <Table verticalSpacing={6} miw={920} striped>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{w.bys[by]}</Table.Th>
            <Table.Th>{w.line}</Table.Th>
            <Table.Th ta="right">GPU</Table.Th>
            <Table.Th ta="right">CPU: {w.held}</Table.Th>
            <Table.Th ta="right">{w.used}</Table.Th>
            <Table.Th ta="right">{w.idleShare}</Table.Th>
            <Table.Th ta="right">{w.ofs.memory} ({w.gibHours})</Table.Th>
            <Table.Th ta="right">{w.idleShare}</Table.Th>
            <Table.Th ta="right">{w.peak}</Table.Th>
            <Table.Th ta="right">{w.cost} ({report.currency})</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {report.rows.map((row) => (
            <Table.Tr key={`${row.key}-${row.line}`}>
              <Table.Td>{by === "job" ? <Link to="/jobs/$job" params={{ job: row.key }}>{row.job ?? row.key}</Link> : row.key || "–"}</Table.Td>
              <Table.Td>{w.lines[row.line]}</Table.Td>
              {cells(row)}
            </Table.Tr>
          ))}
        </Table.Tbody>
        <Table.Tfoot>
          <Table.Tr><Table.Th>{w.total}</Table.Th><Table.Td>{w.lines.charged}</Table.Td>{cells(report.total)}</Table.Tr>
        </Table.Tfoot>
      </Table>
    </Wide>
  );
} // prettier-ignore
