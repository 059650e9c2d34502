/** One version: aliases and stage, where it came from, its files, how to use it. */
import { ActionIcon, Alert, Anchor, Autocomplete, Button, Group, SegmentedControl, Select, SimpleGrid, Table, Text, Tooltip } from "@mantine/core"; // prettier-ignore
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { changeOf, shown } from "../compare/diff";
import { directionOf } from "../compare/goals";
import { numberOf, type RunRow } from "../compare/sides";
import { useLanguage, useWords } from "../i18n";
import { bytes, count } from "../i18n/format";
import { Cli, Sure, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { Command, Copy } from "../look/Command";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Part, Waiting, Wide } from "../look/Part";
import { save } from "../look/save";
import { Told } from "../look/Told";
import { useWho } from "../shell/who";
import { Alias } from "./Alias";
import { Tags } from "./Model";
import css from "./models.module.css";
import { isAlias, STAGES, usePython } from "./naming";
import { words } from "./words";

const LARGE = 500_000_000;

interface Before {
  number: number;
  run: RunRow | undefined;
}

export function Version({ model, number, run, before }: {
  model: Schema["ModelDetail"];
  number: number;
  run: RunRow | undefined;
  /** The version before it that has metrics. */
  before: Before | undefined;
}): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const name = model.name;
  const path = { name, version: String(number) };
  const { data, error } = useQuery({
    queryKey: ["model", name, "version", number],
    queryFn: () => got(api.GET("/api/v1/models/{name}/versions/{version}", { params: { path } })),
  });
  const remove = useAct(
    () => got(api.DELETE("/api/v1/models/{name}/versions/{version}", { params: { path } })),
    ["model", "models"],
  );
  if (error) return <Told error={error} />;
  if (!data) return <Waiting />;
  const mine = who.may("model.remove-any") || (who.may("model.remove") && data.user === who.user);
  return (
    <>
      {data.unsafe.length > 0 && (
        <Alert color="orange" variant="light" title={<Text span fw={650} c="var(--mantine-color-text)">{w.unsafe}</Text>} mb="md" icon={<Icon name="bug" />}>
          {w.unsafeHint} {w.unsafeFiles(data.unsafe.slice(0, 5).join(", "))}
        </Alert>
      )}
      <Part
        title={w.version(number)}
        hint={
          <>
            <Ago at={data.created} /> · {data.user}
          </>
        }
        actions={
          mine && (
            <Sure
              label={w.removeVersion}
              ask={w.removeAsk(`${name}@${number}`)}
              act={() => remove.run()}
              busy={remove.busy}
              error={remove.error}
              line={line("model", "rm", `${name}@${number}`)}
            />
          )
        }
      >
        {data.description && <Text mb="sm" className={css.plain}>{data.description}</Text>}
        <Tags tags={data.tags ?? {}} />
        <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
          <Aliases model={model} version={data} />
          <Use version={data} />
        </SimpleGrid>
      </Part>
      {run && Object.keys(run.metrics).length > 0 && <Metrics run={run} before={before} />}
      <Lineage version={data} />
      <Files version={data} />
    </>
  );
}

function Aliases({ model, version }: { model: Schema["ModelDetail"]; version: Schema["VersionDetail"] }): ReactNode {
  const w = useWords(words);
  const may = useWho().may("model.write");
  const name = model.name;
  const [alias, setAlias] = useState("");
  const stale = ["model", "models"];
  const put = useAct(
    (to: string) =>
      got(
        api.PUT("/api/v1/models/{name}/aliases/{alias}", {
          params: { path: { name, alias: to } },
          body: { version: version.version },
        }),
      ),
    stale,
    () => setAlias(""),
  );
  const drop = useAct(
    (from: string) => got(api.DELETE("/api/v1/models/{name}/aliases/{alias}", { params: { path: { name, alias: from } } })),
    stale,
  );
  const wrong = alias !== "" && !isAlias(alias);
  const elsewhere = model.aliases[alias];
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (alias && !wrong) put.run(alias);
  };
  const known = [...new Set([...Object.keys(model.aliases), "champion", "challenger", "candidate"])];
  return (
    <section aria-label={w.aliases}>
      <Text size="sm" fw={600} mb={4}>
        {w.aliases}
      </Text>
      <Group gap={4} mb="xs">
        {version.aliases.map((each) => (
          <Alias key={each} alias={each} busy={drop.busy} {...(may ? { remove: () => drop.run(each) } : {})} />
        ))}
        {!version.aliases.length && (
          <Text size="sm" c="dimmed">
            {w.none}
          </Text>
        )}
      </Group>
      {may && (
        <>
          <form onSubmit={submit} aria-label={w.setAlias}>
            <Group gap="xs" align="end" wrap="nowrap">
              <Autocomplete
                size="xs"
                label={w.alias}
                data={known.filter((each) => !version.aliases.includes(each) && !(STAGES as readonly string[]).includes(each))}
                value={alias}
                onChange={(text) => setAlias(text.trim())}
                error={wrong && w.aliasWrong}
                style={{ flex: 1 }}
              />
              <Button size="xs" type="submit" loading={put.busy} disabled={!alias || wrong}>
                {w.setAlias}
              </Button>
            </Group>
          </form>
          {elsewhere !== undefined && elsewhere !== version.version && (
            <Text size="xs" mt={4} role="status">
              {w.moveHere(alias, elsewhere)}
            </Text>
          )}
          <Select
            size="xs"
            mt="sm"
            maw={260}
            label={w.setStage}
            description={w.stageHint}
            data={STAGES.map((each) => ({ value: each, label: w.stages[each] }))}
            value={version.stage}
            allowDeselect={false}
            onChange={(to) => to && to !== version.stage && put.run(to)}
          />
          {Boolean(put.error ?? drop.error) && <Told error={put.error ?? drop.error} />}
          <div style={{ marginTop: 12 }}>
            <Cli line={line("model", "alias", name, String(version.version), alias || "champion")} />
          </div>
        </>
      )}
    </section>
  );
}

function Use({ version }: { version: Schema["VersionDetail"] }): ReactNode {
  const w = useWords(words);
  const [form, setForm] = useState("cli");
  const ref = `${version.model}@${version.aliases[0] ?? version.version}`;
  const lines: Record<string, string> = {
    cli: line("model", "get", ref, "./weights"),
    python: usePython(ref, "weights"),
    yaml: `start_from: {model: ${JSON.stringify(ref)}}\n`,
  };
  return (
    <section aria-label={w.use}>
      <Group gap="xs" mb="xs" justify="space-between">
        <Text size="sm" fw={600}>
          {w.use}
        </Text>
        <SegmentedControl
          size="xs"
          aria-label={w.copyAs}
          value={form}
          onChange={setForm}
          data={[
            { value: "cli", label: "CLI" },
            { value: "python", label: "Python" },
            { value: "yaml", label: "YAML" },
          ]}
        />
      </Group>
      <Command line={lines[form] ?? ""} />
      {form === "yaml" && (
        <Text size="xs" c="dimmed" mt={4}>
          {w.startHere}
        </Text>
      )}
    </section>
  );
}

function Metrics({ run, before }: { run: RunRow; before: Before | undefined }): ReactNode {
  const w = useWords(words);
  const [all, setAll] = useState(false);
  const { language } = useLanguage();
  const keys = Object.keys(run.metrics).sort();
  const seen = all ? keys : keys.slice(0, 12);
  return (
    <Part title={w.metrics} hint={before && w.against(before.number)}>
      <dl className={css.facts}>
        {seen.map((key) => {
          const found = numberOf(run.metrics[key]?.last);
          const from = numberOf(before?.run?.metrics[key]?.last);
          const [change, better] = found === null ? ["", null] : changeOf(from, found, directionOf(key));
          return (
            <div key={key} style={{ display: "contents" }}>
              <dt>{key}</dt>
              <dd>
                {found === null ? "–" : shown(found)}{" "}
                {change && (
                  <Text span size="sm" c={better === null ? "dimmed" : better ? "var(--better)" : "var(--worse)"}>
                    {change} {better === null ? "" : better ? "✓" : "✗"}
                  </Text>
                )}
              </dd>
            </div>
          );
        })}
      </dl>
      {seen.length < keys.length && (
        <Button size="xs" variant="subtle" mt="xs" onClick={() => setAll(true)}>
          {w.showAll(count(keys.length, language))}
        </Button>
      )}
    </Part>
  );
}

interface JobLineage {
  id: string;
  name: string;
  command?: string;
  code?: string;
  params?: Record<string, unknown>;
  start_from?: { job?: string | null; step?: unknown; model?: string | null };
}

function Lineage({ version }: { version: Schema["VersionDetail"] }): ReactNode {
  const w = useWords(words);
  const job = version.lineage.job as JobLineage | undefined;
  const data = (version.lineage.data ?? []) as { name: string; digest: string }[];
  const from = job?.start_from;
  const rows: [string, ReactNode][] = [];
  if (job) {
    rows.push([
      w.job,
      <Anchor key="job" component={Link} to={`/jobs/${job.id}`} size="sm">
        {job.name}
      </Anchor>,
    ]);
    if (job.command) rows.push([w.command, <code key="command" className="mono">{job.command}</code>]);
    if (job.params) rows.push([w.params, Object.entries(job.params).map(([key, value]) => `${key} = ${String(value)}`).join(", ")]);
    if (job.code) rows.push([w.code, <code key="code" className="mono">{job.code.slice(0, 12)}</code>]);
  }
  if (from?.model || from?.job) {
    rows.push([w.startedFrom, from.model ?? `${from.job ?? ""}${from.step === null || from.step === undefined ? "" : ` @ ${String(from.step)}`}`]);
  }
  if (version.run && version.run !== job?.id) rows.push([w.run, <code key="run" className="mono">{version.run}</code>]);
  if (data.length) rows.push([w.data, data.map((each) => `${each.name} (${each.digest})`).join(", ")]);
  if (version.source) rows.push([w.source, <code key="source" className="mono">{version.source}</code>]);
  if (!job && !version.run) rows.push([w.from, w.uploaded]);
  rows.push([
    w.digest,
    <Group key="digest" gap={4} wrap="nowrap">
      <code className="mono">{version.digest.slice(0, 16)}</code>
      <Copy text={version.digest} label={w.digest} />
    </Group>,
  ]);
  return (
    <Part title={w.lineage}>
      <dl className={css.facts}>
        {rows.map(([name, value]) => (
          <div key={name} style={{ display: "contents" }}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </Part>
  );
}

function Files({ version }: { version: Schema["VersionDetail"] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [all, setAll] = useState(false);
  const get = useAct(
    (path: string) => {
      const parts = ["models", version.model, "versions", String(version.version), "files", ...path.split("/")];
      return save(parts.map(encodeURIComponent).join("/"), {}, path.split("/").pop() ?? path);
    },
    [],
  );
  const files = all ? version.listed : version.listed.slice(0, 50);
  const size = bytes(version.bytes, language);
  return (
    <Part title={w.files} hint={version.files === 1 ? w.oneFile(size) : w.listed(count(version.files, language), size)}>
      {version.bytes > LARGE && (
        <Text size="sm" mb="xs">
          {w.large}
        </Text>
      )}
      {Boolean(get.error) && <Told error={get.error} />}
      <Wide label={w.files}>
        <Table verticalSpacing={4}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">{w.file}</Table.Th>
              <Table.Th scope="col">{w.size}</Table.Th>
              <Table.Th scope="col">{w.digest}</Table.Th>
              <Table.Th scope="col">
                <span className="seen-only-by-readers">{w.download}</span>
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {files.map((each) => (
              <Table.Tr key={each.path}>
                <Table.Td>
                  <code className="mono">{each.path}</code>
                  {version.unsafe.includes(each.path) && (
                    <Text span size="xs" c="var(--unsafe)" ml={6}>
                      {w.unsafeShort}
                    </Text>
                  )}
                </Table.Td>
                <Table.Td style={{ whiteSpace: "nowrap" }}>{bytes(each.size, language)}</Table.Td>
                <Table.Td>
                  <code className="mono quiet">{each.digest.slice(0, 12)}</code>
                </Table.Td>
                <Table.Td ta="right">
                  <Tooltip label={w.download}>
                    <ActionIcon variant="subtle" color="gray" aria-label={w.downloadOf(each.path)} loading={get.busy} onClick={() => get.run(each.path)}>
                      <Icon name="download" />
                    </ActionIcon>
                  </Tooltip>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      {files.length < version.listed.length && (
        <Button size="xs" variant="subtle" mt="xs" onClick={() => setAll(true)}>
          {w.showAll(count(version.listed.length, language))}
        </Button>
      )}
    </Part>
  );
}
