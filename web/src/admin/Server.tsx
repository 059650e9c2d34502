/** The server about itself. */
import { Alert, Checkbox, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Fragment, useState, type ReactNode } from "react";

import { api, got } from "../api/client";
import { useWords } from "../i18n";
import { Cli, Sure, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { line } from "../look/line";
import { Part, Waiting, Wide } from "../look/Part";
import { State } from "../look/State";
import { Told } from "../look/Told";
import { useWho } from "../shell/who";
import css from "./admin.module.css";
import { words } from "./words";

export function Server(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const { data, error } = useQuery({ queryKey: ["status"], queryFn: () => got(api.GET("/api/v1/status")) });
  if (error) return <Told error={error} />;
  if (!data) return <Waiting rows={8} />;
  const { isolation } = data;
  const facts: [string, ReactNode][] = [
    [w.server.version, data.version],
    [w.server.url, data.url],
    [w.server.started, <Ago key="at" at={data.started} />],
    [w.server.database, data.database],
    [w.server.leader, data.leader ? w.server.leads : w.server.follows],
    [w.server.isolation, (
      <Fragment key="isolation">
        {w.server.level} {isolation.level} · {w.server.wish}: {isolation.wish} · {isolation.shared ? w.server.shared : w.server.alone}
        <Text size="xs" c="dimmed">{w.server.isolationHint}</Text>
      </Fragment>
    )],
    [w.server.pid, data.pid],
    [w.server.home, data.home],
  ]; // prettier-ignore
  return (
    <>
      <Part title={w.server.title}>
        <dl className={css.facts}>
          {facts.filter(([, said]) => said !== null).map(([name, said]) => <Fragment key={name}><dt>{name}</dt><dd>{said}</dd></Fragment>)}
        </dl>
        <div style={{ height: 12 }} />
        <Cli line={line("status")} />
      </Part>
      <Engines />
      <Part title={w.server.jobs}>
        <Wide label={w.server.jobs}>
          <Table verticalSpacing={6} maw={360}>
            <Table.Tbody>
              {Object.entries(data.jobs).map(([state, count]) => <Table.Tr key={state}><Table.Td><State state={state} /></Table.Td><Table.Td ta="right">{count}</Table.Td></Table.Tr>)}
            </Table.Tbody>
          </Table>
        </Wide>
      </Part>
      {who.may("server.write") && <Sealing />}
    </>
  );
} // prettier-ignore

/** Where gangs run, and whether each answers. */
function Engines(): ReactNode {
  const w = useWords(words);
  const { may } = useWho();
  const { data, error } = useQuery({ queryKey: ["nodes", "engines"], queryFn: () => got(api.GET("/api/v1/engines")), enabled: may("node.read") });
  if (!may("node.read")) return null;
  return (
    <Part title={w.server.engines}>
      {Boolean(error) && <Told error={error} />}
      {!data && !error && <Waiting rows={2} />}
      {data && (
        <Wide label={w.server.engines}>
          <Table verticalSpacing={6}>
            <Table.Thead><Table.Tr>{[w.server.engine, w.server.kind, w.server.answers, w.server.nodes, w.server.added].map((each) => <Table.Th key={each} scope="col">{each}</Table.Th>)}</Table.Tr></Table.Thead>
            <Table.Tbody>
              {data.items.map((each) => (
                <Table.Tr key={each.name}>
                  <Table.Th scope="row">{each.name}</Table.Th>
                  <Table.Td>{each.kind}</Table.Td>
                  <Table.Td><State state={each.state} />{each.reason && <Text size="xs" c="dimmed">{each.reason}</Text>}</Table.Td>
                  <Table.Td>{each.nodes}</Table.Td>
                  <Table.Td>{each.created ? <Ago at={each.created} /> : w.server.fromStart}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
      <div style={{ height: 12 }} />
      <Cli line={line("engine", "ls")} />
    </Part>
  );
} // prettier-ignore

function Sealing(): ReactNode {
  const w = useWords(words);
  const [drop, setDrop] = useState(false);
  const act = useAct(() => got(api.POST("/api/v1/rekey", { body: { drop_old: drop } })), []);
  return (
    <Part title={w.server.sealing}>
      <Sure label={w.server.rekey} ask={w.server.rekeyAsk} act={() => act.run()} busy={act.busy} error={act.error} line={line("key", "rekey", drop && "--drop-old")}>
        <Checkbox size="xs" label={w.server.dropOld} checked={drop} onChange={(event) => setDrop(event.currentTarget.checked)} />
      </Sure>
      {act.made && <Alert color="sea" variant="light" mt="sm" role="status">{w.server.rekeyed(act.made.rewrapped)}</Alert>}
    </Part>
  );
} // prettier-ignore
