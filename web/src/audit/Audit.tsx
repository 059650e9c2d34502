/** Who did what, and whether anybody changed the record of it. */
import { Button, Code, Group, SegmentedControl, Select, Table, Text, TextInput, UnstyledButton } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Fragment, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { moment } from "../i18n/format";
import { Cli, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Empty, Page } from "../look/Page";
import { Opened, Part, Waiting, Wide } from "../look/Part";
import { save } from "../look/save";
import { Told } from "../look/Told";
import { Typed } from "../look/Typed";
import { useUrl } from "../look/url";
import { useFeed } from "../shell/feed";
import { useFresh } from "../shell/fresh";
import { useWho } from "../shell/who";
import css from "./audit.module.css";
import { Head } from "./Head";
import { words } from "./words";

const FILTERS = ["user", "action", "object", "outcome", "since", "until"] as const;
const WAIT_MS = 1000;

export default function Audit(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [url, change] = useUrl();
  const fresh = useFresh("audit", WAIT_MS); // whatever happens in the project may have left a row
  useFeed({ event: fresh });
  const chain = url["chain"] === "server" && who.may("audit.read-all") ? "server" : "project";
  const query = {
    chain,
    user: url["user"], action: url["action"], object: url["object"], outcome: url["outcome"],
    since: iso(url["since"]), until: iso(url["until"]),
    before: url["before"] ? Number(url["before"]) : undefined,
  }; // prettier-ignore
  const { data, error, refetch } = useQuery({
    queryKey: ["audit", "rows", query],
    queryFn: () => got(api.GET("/api/v1/audit", { params: { query } })) as Promise<Schema["AuditPage"]>,
    placeholderData: keepPreviousData,
  });
  const out = useAct(
    (format: "jsonl" | "csv") => save("audit/export", { chain, format, since: query.since, until: query.until }, `audit-${chain}.${format}`),
    [],
  );
  const filtered = FILTERS.some((each) => url[each]);
  return (
    <Page
      title={w.title}
      actions={
        <>
          <Button size="xs" variant="default" leftSection={<Icon name="download" />} loading={out.busy} onClick={() => out.run("jsonl")}>{w.exportJson}</Button>
          <Button size="xs" variant="default" leftSection={<Icon name="download" />} loading={out.busy} onClick={() => out.run("csv")}>{w.exportCsv}</Button>
        </>
      }
    >
      {who.may("audit.read-all") && (
        <SegmentedControl size="xs" mb="sm" aria-label={w.chain} value={chain}
          data={(["project", "server"] as const).map((each) => ({ value: each, label: w.chains[each] }))}
          onChange={(next) => change({ chain: next === "project" ? undefined : next, before: undefined, row: undefined })} />
      )}
      <Filters />
      {[error, out.error].filter(Boolean).slice(0, 1).map((each) => <Told key="told" error={each} again={() => void refetch()} />)}
      {!data && !error && <Waiting rows={8} />}
      {data && !data.items.length && (
        <Empty title={w.none}>
          <Text c="dimmed" mb="sm">{w.noneHint}</Text>
          {filtered && <Button variant="default" onClick={() => change(Object.fromEntries([...FILTERS, "before"].map((each) => [each, undefined])))}>{w.clear}</Button>}
        </Empty>
      )}
      {data && data.items.length > 0 && <Rows rows={data.items} />}
      <Group mt="sm" mb="lg" gap="xs">
        {url["before"] && <Button size="xs" variant="default" onClick={() => change({ before: undefined })}>{w.newest}</Button>}
        {data?.next && <Button size="xs" variant="default" onClick={() => change({ before: data.next ?? undefined })}>{w.older}</Button>}
      </Group>
      <Head key={chain} chain={chain} />
      <Cli line={line("audit", "ls", chain === "server" && "--server", ...FILTERS.map((each) => query[each] && [`--${each}`, query[each] as string]))} />
    </Page>
  );
} // prettier-ignore

/** A time as the input writes it, as the server reads it. */
function iso(local: string | undefined): string | undefined {
  const found = local ? Date.parse(local) : NaN;
  return Number.isNaN(found) ? undefined : new Date(found).toISOString();
}

function Filters(): ReactNode {
  const w = useWords(words);
  const [url, change] = useUrl();
  const text = (name: "user" | "action" | "object", label: string, hint?: string): ReactNode => (
    <Typed size="xs" label={label} placeholder={hint ?? w.any} text={url[name] ?? ""} onTyped={(next) => change({ [name]: next, before: undefined }, true)} />
  );
  return (
    <div className={css.filters} role="search">
      {text("user", w.who)}
      {text("action", w.action, w.actionHint)}
      {text("object", w.object)}
      <Select size="xs" label={w.outcome} placeholder={w.any} clearable value={url["outcome"] ?? null}
        data={Object.entries(w.outcomes).map(([value, label]) => ({ value, label }))}
        onChange={(outcome) => change({ outcome: outcome ?? undefined, before: undefined })} />
      <TextInput size="xs" type="datetime-local" label={w.since} value={url["since"] ?? ""} onChange={(event) => change({ since: event.currentTarget.value, before: undefined }, true)} />
      <TextInput size="xs" type="datetime-local" label={w.until} value={url["until"] ?? ""} onChange={(event) => change({ until: event.currentTarget.value, before: undefined }, true)} />
    </div>
  );
} // prettier-ignore

function Rows({ rows }: { rows: readonly Schema["AuditRow"][] }): ReactNode {
  const w = useWords(words);
  const [url, change] = useUrl();
  return (
    <Part title={w.rows}>
      <Wide label={w.rows}>
        <Table verticalSpacing={5} miw={760} highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th w={30} aria-label={w.details} />
              <Table.Th>{w.number}</Table.Th><Table.Th>{w.at}</Table.Th><Table.Th>{w.who}</Table.Th>
              <Table.Th>{w.action}</Table.Th><Table.Th>{w.object}</Table.Th><Table.Th>{w.outcome}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map((row) => {
              const open = url["row"] === String(row.number);
              return (
                <Fragment key={row.number}>
                  <Table.Tr data-action={row.action}>
                    <Table.Td>
                      <UnstyledButton aria-expanded={open} aria-label={`${w.details}: ${row.number}`}
                        onClick={() => change({ row: open ? undefined : String(row.number) }, true)}>
                        <Icon name={open ? "down" : "right"} />
                      </UnstyledButton>
                    </Table.Td>
                    <Table.Td>{row.number}</Table.Td>
                    <Table.Td className={css.time}><Ago at={row.at} /></Table.Td>
                    <Table.Td>{row.user || "–"}</Table.Td>
                    <Table.Td><span className="mono">{row.action}</span></Table.Td>
                    <Table.Td maw={280}><span className="mono"><About row={row} /></span></Table.Td>
                    <Table.Td>
                      <span className={css.outcome} data-ok={row.outcome === "ok" || row.outcome === "replayed"}>{row.outcome}</span>
                      {row.times > 1 && ` ${w.times(row.times)}`}
                    </Table.Td>
                  </Table.Tr>
                  {open && <Table.Tr><Table.Td /><Table.Td colSpan={6}><Opened><Detail row={row} /></Opened></Table.Td></Table.Tr>}
                </Fragment>
              );
            })}
          </Table.Tbody>
        </Table>
      </Wide>
    </Part>
  );
} // prettier-ignore

/** A job that is still there can be opened. */
function About({ row }: { row: Schema["AuditRow"] }): ReactNode {
  if (!row.action.startsWith("jobs.") || !/^[0-9a-f]{32}$/.test(row.object)) return row.object;
  return <Link to="/jobs/$job" params={{ job: row.object }}>{row.object}</Link>;
} // prettier-ignore

function Detail({ row }: { row: Schema["AuditRow"] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const facts: [string, string][] = [
    [w.at, `${moment(row.at, language)} (${row.at})`], [w.project, row.project], [w.credential, row.credential],
    [w.source, row.source], [w.request, row.request_id], [w.hash, row.hash],
  ]; // prettier-ignore
  return (
    <>
      <dl className={css.facts}>
        {facts.filter(([, said]) => said).map(([name, said]) => (
          <Fragment key={name}><dt>{name}</dt><dd className="mono">{said}</dd></Fragment>
        ))}
      </dl>
      {Object.keys(row.details).length > 0 && <Code block mt="xs">{JSON.stringify(row.details, null, 2)}</Code>}
    </>
  );
} // prettier-ignore
