/** One model: its versions, its aliases, who moved which when, and all of the version chosen. */
import { Anchor, Button, Group, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { shown } from "../compare/diff";
import { directionOf } from "../compare/goals";
import { numberOf, type RunRow } from "../compare/sides";
import { useLanguage, useWords } from "../i18n";
import { bytes, count } from "../i18n/format";
import { Sure, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Page } from "../look/Page";
import { Part, Waiting, Wide } from "../look/Part";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { useWho } from "../shell/who";
import { Alias } from "./Alias";
import { useModelsLive } from "./live";
import css from "./models.module.css";
import { RegisterForm } from "./RegisterForm";
import { Version } from "./Version";
import { words } from "./words";

export default function Model(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const name = useParams({ strict: false }).model ?? "";
  const [url, change] = useUrl();
  const navigate = useNavigate();
  useModelsLive();
  const { data, error, refetch } = useQuery({
    queryKey: ["model", name],
    queryFn: () => got(api.GET("/api/v1/models/{name}", { params: { path: { name } } })),
  });
  const runs = useRuns(data?.listed ?? []);
  const remove = useAct(
    () => got(api.DELETE("/api/v1/models/{name}", { params: { path: { name } } })),
    ["models"],
    () => void navigate({ to: "/models" }),
  );
  if (error && !data) return <Told error={error} again={() => void refetch()} />;
  const may = who.may("model.write");
  const chosen = data?.listed.find((each) => String(each.version) === url.v) ?? data?.listed[0];

  return (
    <Page
      title={
        <>
          <span className="quiet">{w.model}</span> {name}
        </>
      }
      name={name}
      actions={
        may &&
        url.register === undefined && (
          <Button size="xs" variant="default" leftSection={<Icon name="plus" size={14} />} onClick={() => change({ register: "1" })}>
            {w.register}
          </Button>
        )
      }
    >
      {data?.description && <Text mb="sm" className={css.plain}>{data.description}</Text>}
      {data && <Tags tags={data.tags ?? {}} />}
      {may && url.register !== undefined && (
        <RegisterForm start={{ model: name }} close={() => change({ register: undefined })} />
      )}
      {!data && <Waiting />}
      {data && (
        <Part title={w.versions}>
          {data.listed.length ? (
            <Versions model={data} runs={runs} chosen={chosen?.version ?? 0} choose={(v) => change({ v: String(v) })} />
          ) : (
            <Text c="dimmed">{w.missing}</Text>
          )}
        </Part>
      )}
      {data && chosen && (
        <Version
          key={chosen.version}
          model={data}
          number={chosen.version}
          run={runs.get(chosen.run ?? "")}
          before={data.listed.filter((each) => each.version < chosen.version).map((each) => ({ number: each.version, run: runs.get(each.run ?? "") })).find((each) => each.run)}
        />
      )}
      {data && <History moves={data.moves} />}
      {data && (who.may("model.remove-any") || (who.may("model.remove") && data.user === who.user)) && (
        <Sure
          label={w.removeModel}
          ask={w.removeModelAsk(name, data.listed.length)}
          name={name}
          act={() => remove.run()}
          busy={remove.busy}
          error={remove.error}
          line={line("model", "rm", "--all", name)}
        />
      )}
    </Page>
  );
}

/** What the runs of the versions told, by run. */
function useRuns(listed: readonly Schema["VersionView"][]): ReadonlyMap<string, RunRow> {
  const who = useWho();
  const ids = [...new Set(listed.map((each) => each.run).filter((each): each is string => Boolean(each)))].slice(0, 100);
  const { data } = useQuery({
    queryKey: ["model", "runs", ids],
    queryFn: () => got(api.GET("/api/v1/runs", { params: { query: { id: ids.join(","), columns: "*", limit: 100 } } })),
    enabled: ids.length > 0 && who.may("job.read"),
    placeholderData: (before) => before,
  });
  return new Map((data?.items ?? []).map((each) => [String(each.id), each as unknown as RunRow]));
}

/** The metrics that most versions have. */
function commonKeys(runs: Iterable<RunRow>, most: number): string[] {
  const times = new Map<string, number>();
  for (const run of runs) for (const key of Object.keys(run.metrics)) times.set(key, (times.get(key) ?? 0) + 1);
  const known = (key: string): number => Number(directionOf(key) !== null); // what can be better comes first
  return [...times].sort(([a, n], [b, m]) => known(b) - known(a) || m - n || a.localeCompare(b)).slice(0, most).map(([key]) => key);
}

function Versions({ model, runs, chosen, choose }: {
  model: Schema["ModelDetail"];
  runs: ReadonlyMap<string, RunRow>;
  chosen: number;
  choose: (version: number) => void;
}): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [all, setAll] = useState(false);
  const keys = commonKeys(runs.values(), 3);
  const listed = all ? model.listed : model.listed.slice(0, 20);
  return (
    <Wide label={w.versions}>
      <Table verticalSpacing={6} highlightOnHover miw={680}>
        <Table.Thead>
          <Table.Tr>
            {[w.versionWord, w.aliases, w.stage, ...keys, w.format, w.size, w.from, w.by, w.created].map((each) => (
              <Table.Th key={each} scope="col">
                {each}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {listed.map((each) => (
            <Table.Tr key={each.version} className={each.version === chosen ? css.chosen : ""}>
              <Table.Th scope="row">
                <Anchor
                  component="button"
                  type="button"
                  size="sm"
                  onClick={() => choose(each.version)}
                  aria-label={w.choose(each.version)}
                  aria-current={each.version === chosen ? "true" : undefined}
                >
                  {each.version}
                </Anchor>
              </Table.Th>
              <Table.Td>
                <Group gap={4}>
                  {each.aliases.map((alias) => (
                    <Alias key={alias} alias={alias} />
                  ))}
                </Group>
              </Table.Td>
              <Table.Td>{each.stage === "None" ? "" : w.stages[each.stage]}</Table.Td>
              {keys.map((key) => {
                const found = numberOf(runs.get(each.run ?? "")?.metrics[key]?.last);
                return <Table.Td key={key}>{found === null ? "–" : shown(found)}</Table.Td>;
              })}
              <Table.Td>
                {each.format}
                {each.unsafe.length > 0 && (
                  <Text size="xs" c="var(--unsafe)">
                    {w.unsafeShort}
                  </Text>
                )}
              </Table.Td>
              <Table.Td style={{ whiteSpace: "nowrap" }}>{bytes(each.bytes, language)}</Table.Td>
              <Table.Td>
                {each.job ? (
                  <Anchor component={Link} to={`/jobs/${each.job}`} size="sm">
                    {runs.get(each.run ?? "")?.name ?? each.job.slice(0, 8)}
                  </Anchor>
                ) : (
                  ""
                )}
              </Table.Td>
              <Table.Td>{each.user}</Table.Td>
              <Table.Td style={{ whiteSpace: "nowrap" }}>
                <Ago at={each.created} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      {listed.length < model.listed.length && (
        <Button size="xs" variant="subtle" mt="xs" onClick={() => setAll(true)}>
          {w.showAll(count(model.listed.length, language))}
        </Button>
      )}
    </Wide>
  );
}

export function Tags({ tags }: { tags: Readonly<Record<string, string>> }): ReactNode {
  if (!Object.keys(tags).length) return null;
  return (
    <Group gap={4} mb="sm">
      {Object.entries(tags).map(([key, value]) => (
        <span key={key} className={css.alias} data-bare>
          {key}
          {value && <span className="quiet"> = {value}</span>}
        </span>
      ))}
    </Group>
  );
}

function History({ moves }: { moves: readonly Schema["MoveView"][] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [all, setAll] = useState(false);
  const seen = all ? moves : moves.slice(0, 10);
  const said = (version: number | null | undefined): string => (version ? w.version(version) : w.nowhere);
  return (
    <Part title={w.history}>
      {!moves.length && <Text c="dimmed">{w.historyEmpty}</Text>}
      {moves.length > 0 && (
        <Wide label={w.history}>
          <Table verticalSpacing={4}>
            <Table.Thead>
              <Table.Tr>
                {[w.when, w.move, w.who].map((each) => (
                  <Table.Th key={each} scope="col">
                    {each}
                  </Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {seen.map((each, at) => (
                <Table.Tr key={at}>
                  <Table.Td style={{ whiteSpace: "nowrap" }}>
                    <Ago at={each.at} />
                  </Table.Td>
                  <Table.Td>{w.moved(each.alias, said(each.before), said(each.after))}</Table.Td>
                  <Table.Td>{each.user}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
      {seen.length < moves.length && (
        <Button size="xs" variant="subtle" mt="xs" onClick={() => setAll(true)}>
          {w.showAll(count(moves.length, language))}
        </Button>
      )}
    </Part>
  );
}
