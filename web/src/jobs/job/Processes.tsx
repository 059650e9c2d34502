/** The Processes tab: ranks, what they use, how they ended; and a look into those that run. */
import { Button, Group, NumberInput, Table, Text } from "@mantine/core";
import { useMemo, useState, type ReactNode } from "react";

import { api, got, type Schema } from "../../api/client";
import { useLanguage, useWords } from "../../i18n";
import { bytes, count, value } from "../../i18n/format";
import { Cli, useAct } from "../../look/Act";
import { Took } from "../../look/Ago";
import { Icon } from "../../look/Icon";
import { line } from "../../look/line";
import { Part, Wide } from "../../look/Part";
import { State } from "../../look/State";
import { Told } from "../../look/Told";
import { useWho } from "../../shell/who";
import { useSystem } from "./charts/useSystem";
import { Because } from "../Because";
import { isOver, type Detail } from "./asking";
import css from "./job.module.css";
import { ranksOf } from "./ranks";
import { Picture } from "./Viewer";
import { words } from "./words";

const MOST_RANKS = 256;

export default function Processes({ job }: { job: Detail }): ReactNode {
  return (
    <>
      <Ranks job={job} />
      <Look job={job} />
      <Attempts job={job} />
    </>
  );
}

function Ranks({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const system = useSystem(job.id);
  const ranks = ranksOf(job.spec);
  const attempt = job.attempts.at(-1);
  const ended = new Map((attempt?.ranks ?? []).map((each) => [each.rank, each]));
  const last = useMemo(() => {
    const found = new Map<number, Map<string, number>>();
    for (const each of system) {
      const point = each.points.at(-1);
      if (!point) continue;
      const mine = found.get(each.rank) ?? new Map<string, number>();
      found.set(each.rank, mine.set(each.key, point[1]));
    }
    return found;
  }, [system]);
  const gpus = [...new Set(system.map((each) => each.key).filter((key) => /^gpu\d+_percent$/.test(key)))];
  const of = (rank: number, key: string, format: (found: number) => string): string => {
    const found = last.get(rank)?.get(key);
    return found === undefined ? "–" : format(found);
  };
  const percent = (found: number): string => `${value(Math.round(found), language)} %`;
  const size = (found: number): string => bytes(found, language);
  return (
    <Part title={isOver(job.state) ? w.ranksTableEnd : w.ranksTable}>
      <Wide label={w.ranksTable}>
        <Table fz="sm" verticalSpacing={4}>
          <Table.Thead>
            <Table.Tr>
              {[w.rank, w.role, w.node, w.cpu, w.memory, ...gpus.map((key) => `GPU ${/\d+/.exec(key)?.[0]}`), w.processesCount, w.exit].map((each) => (
                <Table.Th key={each} scope="col">{each}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {ranks.slice(0, MOST_RANKS).map((rank) => {
              const how = ended.get(rank.number);
              return (
                <Table.Tr key={rank.number}>
                  <Table.Th scope="row">{rank.number}</Table.Th>
                  <Table.Td className="mono">{rank.name}</Table.Td>
                  <Table.Td>{how?.node ?? (attempt?.nodes.length === 1 ? attempt.nodes[0] : "–")}</Table.Td>
                  <Table.Td>{of(rank.number, "cpu_percent", percent)}</Table.Td>
                  <Table.Td>{of(rank.number, "memory_bytes", size)}</Table.Td>
                  {gpus.map((key) => (
                    <Table.Td key={key}>{of(rank.number, key, percent)}</Table.Td>
                  ))}
                  <Table.Td>{of(rank.number, "processes", (found) => count(Math.round(found), language))}</Table.Td>
                  <Table.Td>{how ? exitOf(how, w) : "–"}</Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </Wide>
      {ranks.length > MOST_RANKS && <Text size="xs" c="dimmed">{w.moreRanks(count(ranks.length - MOST_RANKS, language))}</Text>}
    </Part>
  );
}

function exitOf(how: Schema["RankView"], w: (typeof words)["en"]): string {
  if (how.oom) return w.outcomes.oom;
  if (how.signal) return w.signal(String(how.signal));
  return how.exit === null || how.exit === undefined ? "–" : String(how.exit);
}

interface Seen {
  rank?: number;
  text?: string;
  svg?: string;
  error?: string;
}

/** Stacks and flame graphs of a job that runs. */
function Look({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const { user, may } = useWho();
  const allowed = may("job.debug") && (job.user === user || may("job.debug-any"));
  const [seconds, setSeconds] = useState(10);
  const act = useAct(
    (kind: "stack" | "profile") =>
      got(api.POST("/api/v1/jobs/{ref}/debug", { params: { path: { ref: job.id } }, body: { kind, seconds, rank: null } })),
    [],
  );
  const [asked, setAsked] = useState<"stack" | "profile">("stack");
  const run = (kind: "stack" | "profile"): void => {
    setAsked(kind);
    act.run(kind);
  };
  const seen = (act.made?.ranks ?? []) as Seen[];
  return (
    <Part title={w.inside}>
      {job.state !== "running" && <Text size="sm" c="dimmed">{w.debugOnlyRunning}</Text>}
      {job.state === "running" && !allowed && <Text size="sm" c="dimmed">{w.debugNotAllowed}</Text>}
      {job.state === "running" && allowed && (
        <Group gap="xs" align="end" mb="xs">
          <Button size="xs" leftSection={<Icon name="bug" size={14} />} loading={act.busy && asked === "stack"} onClick={() => run("stack")}>
            {w.stack}
          </Button>
          <Button size="xs" variant="default" loading={act.busy && asked === "profile"} onClick={() => run("profile")}>
            {w.flame}
          </Button>
          <NumberInput size="xs" w={90} label={w.seconds} min={1} max={300} allowDecimal={false} value={seconds} onChange={(next) => setSeconds(Math.min(300, Math.max(1, Number(next) || 10)))} />
        </Group>
      )}
      {act.busy && <Text size="sm" role="status">{asked === "profile" ? w.profiling(`${count(seconds, language)} s`) : w.looking}</Text>}
      {Boolean(act.error) && <Told error={act.error} />}
      {act.made?.errors.map((each) => <Told key={each} error={each} />)}
      {seen.map((each, at) => (
        <div key={at}>
          <Text size="sm" fw={600} mt="xs">{each.svg !== undefined ? w.flameOf(String(each.rank)) : w.stackOf(String(each.rank))}</Text>
          {each.text !== undefined && <pre className={css.pre} tabIndex={0} aria-label={w.stackOf(String(each.rank))}>{each.text}</pre>}
          {each.svg ? <Flame svg={each.svg} label={w.flameOf(String(each.rank))} /> : each.error && <Told error={each.error} />}
        </div>
      ))}
      {job.state === "running" && allowed && <Cli line={asked === "profile" ? line("debug", "profile", job.name, "--seconds", String(seconds)) : line("debug", "stack", job.name)} />}
    </Part>
  );
}

/** Drawn as an image: what is written in it cannot run. */
/** The tool writes its own command line over the picture, wider than that. */
function untitled(svg: string): string {
  return svg.replace(/(<text id="title"[^>]*>)[^<]*/, "$1");
}

function Flame({ svg, label }: { svg: string; label: string }): ReactNode {
  const blob = useMemo(() => new Blob([untitled(svg)], { type: "image/svg+xml" }), [svg]);
  return (
    <Wide label={label}>
      <Picture blob={blob} name={label} wide />
    </Wide>
  );
}

function Attempts({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  return (
    <Part title={w.attempts}>
      {!job.attempts.length && <Text size="sm" c="dimmed">{w.noAttempts}</Text>}
      {job.attempts.length > 0 && (
        <Wide label={w.attempts}>
          <Table fz="sm" verticalSpacing={4}>
            <Table.Thead>
              <Table.Tr>
                {[w.attemptN, w.nodes, w.took, w.exit, w.why].map((each) => (
                  <Table.Th key={each} scope="col">{each}</Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {[...job.attempts].reverse().map((each) => (
                <Table.Tr key={each.number}>
                  <Table.Th scope="row">
                    <Group gap={6} wrap="nowrap">
                      {each.number}
                      <State state={each.outcome ?? each.state} />
                    </Group>
                  </Table.Th>
                  <Table.Td>{each.nodes.join(", ") || "–"}</Table.Td>
                  <Table.Td style={{ whiteSpace: "nowrap" }}>{each.started ? <Took from={each.started} to={each.ended ?? null} /> : "–"}</Table.Td>
                  <Table.Td>{each.exit_code ?? "–"}</Table.Td>
                  <Table.Td><Because said={each.reason} code={each.outcome} /></Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
    </Part>
  );
}
