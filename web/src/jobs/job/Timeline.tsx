/** The Timeline tab: how long it was in each state, what happened in order, and its relatives. */
import { Anchor, Badge, Group, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState, type ReactNode } from "react";

import { api, got } from "../../api/client";
import { Timeline as Picture } from "../../charts/Timeline";
import { useLanguage, useWords } from "../../i18n";
import { count, moment } from "../../i18n/format";
import { Part, Wide, Waiting } from "../../look/Part";
import { State } from "../../look/State";
import { Told } from "../../look/Told";
import { words as look } from "../../look/words";
import { useWho } from "../../shell/who";
import { useEvents, type Detail, type Event } from "./asking";
import css from "./job.module.css";
import { phasesOf } from "./phases";
import { words } from "./words";

const MOST_EVENTS = 500;

export default function Timeline({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const states = useWords(look).states as Record<string, string>;
  const { language } = useLanguage();
  const { data, error, refetch } = useEvents(job.id);
  const phases = useMemo(
    () =>
      phasesOf(data ?? [], job.attempts, {
        job: w.job,
        attempt: (n) => `${w.attemptN} ${n}`,
        state: (state) => states[state] ?? (w.outcomes as Record<string, string>)[state] ?? state,
      }),
    [data, job.attempts, w, states],
  );
  const shown = (data ?? []).slice(-MOST_EVENTS).reverse();
  return (
    <>
      <Part title={w.phases}>{data ? <Picture title={w.phases} heading=" " phases={phases} /> : !error && <Waiting rows={2} />}</Part>
      <Lineage job={job} />
      <Part title={w.story}>
        {Boolean(error) && <Told error={error} again={() => void refetch()} />}
        <Wide label={w.story}>
          <Table fz="sm" verticalSpacing={4}>
            <Table.Thead>
              <Table.Tr>
                {[w.when, w.what, w.why].map((each) => (
                  <Table.Th key={each} scope="col">{each}</Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {shown.map((each) => (
                <Row key={each.cursor} event={each} />
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
        {(data?.length ?? 0) > MOST_EVENTS && <Text size="xs" c="dimmed">{w.moreRanks(count((data?.length ?? 0) - MOST_EVENTS, language))}</Text>}
      </Part>
    </>
  );
}

function Row({ event }: { event: Event }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [open, setOpen] = useState(false);
  const told = Object.keys(event.data).length > 0;
  return (
    <Table.Tr>
      <Table.Td style={{ whiteSpace: "nowrap", verticalAlign: "top" }}>
        <time dateTime={event.at}>{moment(event.at, language)}</time>
      </Table.Td>
      <Table.Td style={{ verticalAlign: "top" }}>
        <Group gap={6}>
          {event.kind === "moved" && event.state ? <State state={event.state} /> : <Badge variant="default" tt="none" fw={500}>{event.kind}</Badge>}
          {event.attempt !== null && <Text size="xs" c="dimmed">{`${w.attemptN} ${event.attempt}`}</Text>}
        </Group>
      </Table.Td>
      <Table.Td style={{ verticalAlign: "top" }}>
        {event.reason}
        {told && (
          <>
            {" "}
            <Anchor component="button" type="button" size="xs" aria-expanded={open} onClick={() => setOpen(!open)}>{w.detailsOf}</Anchor>
            {open && <pre className={css.pre} tabIndex={0} aria-label={w.detailsOf}>{JSON.stringify(event.data, null, 2).slice(0, 20_000)}</pre>}
          </>
        )}
      </Table.Td>
    </Table.Tr>
  );
}

/** Where it comes from, and what came of it. */
function Lineage({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const { may } = useWho();
  const near = useQuery({
    queryKey: ["jobs", "reruns-of", job.id],
    queryFn: async () => {
      const page = await got(api.GET("/api/v1/jobs", { params: { query: { limit: 500 } } }));
      return page.items.filter((each) => each.rerun_of === job.id);
    },
  }).data;
  const models = useQuery({
    queryKey: ["models", "of-job", job.id],
    enabled: may("model.read"),
    queryFn: async () => {
      const all = (await got(api.GET("/api/v1/models"))).items;
      const details = await Promise.all(all.slice(0, 50).map((each) => got(api.GET("/api/v1/models/{name}", { params: { path: { name: each.name } } }))));
      return details.flatMap((each) => each.listed.filter((version) => version.job === job.id));
    },
  }).data;
  const rows: [string, ReactNode][] = [];
  if (job.rerun_of) rows.push([w.rerunOf, <JobLink key="r" id={job.rerun_of} />]);
  job.lineage.forEach((each, at) =>
    rows.push([
      w.startedFrom,
      <span key={at}>
        {each.kind === "job" ? w.fromJob(each.step === null || each.step === undefined ? "?" : count(each.step, language)) : w.fromModel}{" "}
        {each.kind === "job" ? <JobLink id={each.id ?? each.name} name={each.name} /> : <Link to="/models/$model" params={{ model: each.name }}>{`${each.name} v${each.version ?? ""}`}</Link>}
        {each.resume && <span className="quiet">{` · ${w.resumed}`}</span>}
      </span>,
    ]),
  );
  if (near?.length) rows.push([w.reruns, <Group key="n" gap="sm">{near.map((each) => <span key={each.id}><JobLink id={each.id} name={each.name} /> <State state={each.state} /></span>)}</Group>]); // prettier-ignore
  if (models?.length) rows.push([w.models, <Group key="m" gap="sm">{models.map((each) => <Link key={`${each.model} ${each.version}`} to="/models/$model" params={{ model: each.model }}>{`${each.model} v${each.version}`}</Link>)}</Group>]); // prettier-ignore
  return (
    <Part title={w.lineage}>
      {!rows.length && <Text size="sm" c="dimmed">{w.noLineage}</Text>}
      {rows.length > 0 && (
        <table className={css.rows}>
          <tbody>
            {rows.map(([name, what], at) => (
              <tr key={at}>
                <th scope="row">{name}</th>
                <td>{what}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Part>
  );
}

function JobLink({ id, name }: { id: string; name?: string }): ReactNode {
  return (
    <Link to="/jobs/$job" params={{ job: id }}>
      {name ?? id.slice(0, 12)}
    </Link>
  );
}
