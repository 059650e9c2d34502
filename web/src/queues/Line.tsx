/** The line of a queue: who is next, why each waits, when it should start; and what runs. */
import { ActionIcon, Button, Group, NumberInput, Popover, Stack, Table, Text, Tooltip } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useEffect, useState, type DragEvent, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { bytes, value } from "../i18n/format";
import { Cli, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { fieldErrors } from "../look/fields";
import { Icon, type IconName } from "../look/Icon";
import { line as command } from "../look/line";
import { Empty } from "../look/Page";
import { Part, Wide } from "../look/Part";
import { State } from "../look/State";
import { Told } from "../look/Told";
import { useWho } from "../shell/who";
import { Because } from "../jobs/Because";
import { lacks, type Lack } from "./missing";
import { moved, moveTo, step, type Move, type Way } from "./order";
import css from "./queues.module.css";
import { words } from "./words";

type Job = Schema["QueuedJob"];
const WAYS: readonly [Way, IconName, boolean][] = [
  ["first", "download", true],
  ["up", "up", false],
  ["down", "down", false],
  ["last", "download", false],
];

export function Line({ line, more }: { line: Schema["QueueLine"]; more: () => void }): ReactNode {
  const w = useWords(words);
  const may = useWho().may("queue.write");
  const [rows, setRows] = useState<readonly Job[]>(line.waiting);
  const [dragged, setDragged] = useState<number | null>(null);
  const [over, setOver] = useState<number | null>(null);
  const [said, setSaid] = useState("");
  useEffect(() => setRows(line.waiting), [line.waiting]);
  const ids = rows.map((each) => each.id);
  const act = useAct(
    ({ job, to }: { job: Job; to: Move }) =>
      got(api.POST("/api/v1/jobs/{ref}/move", { params: { path: { ref: job.id ?? "" } }, body: to as Schema["MoveBody"] })),
    ["queues", "jobs", "job"],
    (_, { job }) => setSaid(w.moved(job.name ?? "")),
  );
  useEffect(() => {
    if (act.error) setRows(line.waiting); // it stands where it stood
  }, [act.error, line.waiting]);
  const go = (from: number, told: Move | null, to: number): void => {
    const job = rows[from];
    if (!told || !job?.id) return;
    setRows(moved(rows, from, to));
    act.run({ job, to: told });
  };
  const drop = (event: DragEvent, at: number): void => {
    event.preventDefault();
    setOver(null);
    setDragged(null);
    if (dragged === null) return;
    const to = at > dragged ? at - 1 : at;
    go(dragged, moveTo(ids, dragged, to), to);
  };
  const all = line.queue.waiting;
  return (
    <>
      <Part
        title={`${w.waiting} (${all})`}
        hint={[line.order === "scheduler" ? w.lineHint : w.rowsHint, may && rows.length > 1 && w.moveHint].filter(Boolean).join(" ")}
      >
        <div role="status" className="seen-only-by-readers">{said}</div>
        {Boolean(act.error) && <Told error={act.error} />}
        {!rows.length && <Empty title={w.noLine}><Text c="dimmed">{w.noLineHint}</Text></Empty>}
        {rows.length > 0 && (
          <Wide label={w.waiting}>
            <Table verticalSpacing="xs" miw={may ? 1000 : 860}>
              <Table.Thead>
                <Table.Tr>
                  {may && <Table.Th aria-label={w.drag} w={28} />}
                  <Table.Th w={40}>{w.position}</Table.Th>
                  <Table.Th>{w.job}</Table.Th>
                  <Table.Th>{w.wants}</Table.Th>
                  <Table.Th miw={260}>{w.why}</Table.Th>
                  <Table.Th>{w.start}</Table.Th>
                  <Table.Th>{w.priority}</Table.Th>
                  {may && <Table.Th>{w.move}</Table.Th>}
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {rows.map((job, at) => (
                  <Table.Tr
                    key={job.id ?? `other-${at}`}
                    data-job={job.name}
                    className={over === at ? css.over : undefined}
                    draggable={may && Boolean(job.id)}
                    onDragStart={(event) => { setDragged(at); event.dataTransfer.effectAllowed = "move"; event.dataTransfer.setData("text/plain", job.name ?? ""); }}
                    onDragEnd={() => { setDragged(null); setOver(null); }}
                    onDragOver={(event) => { if (dragged !== null) { event.preventDefault(); setOver(at); } }}
                    onDrop={(event) => drop(event, at)}
                  >
                    {may && <Table.Td className={css.handle} title={w.drag}><Icon name="menu" size={14} /></Table.Td>}
                    <Table.Td>{at + 1}</Table.Td>
                    <Table.Td><Named job={job} /></Table.Td>
                    <Table.Td><Wants job={job} /></Table.Td>
                    <Table.Td><Why job={job} /></Table.Td>
                    <Table.Td>{job.expected_start ? <Ago at={job.expected_start} /> : <span className="quiet">{w.noEstimate}</span>}</Table.Td>
                    <Table.Td><Priority job={job} /></Table.Td>
                    {may && (
                      <Table.Td>
                        <Group gap={2} wrap="nowrap">
                          {WAYS.map(([way, icon, turned]) => {
                            const told = step(ids, at, way);
                            const to = { first: 0, up: at - 1, down: at + 1, last: rows.length - 1 }[way];
                            return (
                              <Tooltip label={w[way]} key={way}>
                                <ActionIcon variant="subtle" color="gray" disabled={!told || !job.id || act.busy}
                                  aria-label={`${w[way]}: ${job.name ?? w.others}`} onClick={() => go(at, told, to)}>
                                  <span className={turned ? css.turned : css.way}>
                                    <Icon name={icon} />
                                  </span>
                                </ActionIcon>
                              </Tooltip>
                            );
                          })}
                        </Group>
                      </Table.Td>
                    )}
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Wide>
        )}
        {rows.length < all && rows.length > 0 && (
          <Group mt="sm"><Text size="sm">{w.cut(rows.length, all)}</Text><Button size="xs" variant="default" onClick={more}>{w.more}</Button></Group>
        )}
      </Part>
      <Part title={`${w.running} (${line.queue.running})`}>
        {!line.running.length ? <Text size="sm" c="dimmed">{w.noRunning}</Text> : (
          <Wide label={w.running}>
            <Table verticalSpacing="xs" miw={620}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{w.job}</Table.Th><Table.Th>{w.wants}</Table.Th><Table.Th>{w.starts}</Table.Th><Table.Th>{w.priority}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {line.running.map((job, at) => (
                  <Table.Tr key={job.id ?? at}>
                    <Table.Td><Named job={job} /></Table.Td>
                    <Table.Td><Wants job={job} /></Table.Td>
                    <Table.Td><Ago at={job.since} /></Table.Td>
                    <Table.Td>{job.priority}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Wide>
        )}
      </Part>
    </>
  );
} // prettier-ignore

function Named({ job }: { job: Job }): ReactNode {
  const w = useWords(words);
  return (
    <>
      <Group gap={8}>
        {job.id ? (
          <Link to="/jobs/$job" params={{ job: job.id }} draggable={false}>{job.name}</Link>
        ) : <Text size="sm" c="dimmed">{w.others}</Text>}
        <State state={job.state} />
      </Group>
      {job.user && <Text size="xs" c="dimmed">{w.of(job.user, job.project ?? "")}</Text>}
    </>
  );
} // prettier-ignore

function Wants({ job }: { job: Job }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const { wants } = job;
  const parts = [
    wants.gpus > 0 && w.gpus(value(wants.gpus, language)) + (wants.gpu_model?.length ? ` ${wants.gpu_model.join("/")}` : ""),
    wants.cpus > 0 && w.cpus(value(wants.cpus, language)),
    wants.memory > 0 && bytes(wants.memory, language),
  ].filter(Boolean);
  return (
    <>
      <Text size="sm">{parts.join(" · ") || "–"}</Text>
      <Text size="xs" c="dimmed">{[wants.members > 1 && w.members(wants.members), job.work !== "train" && job.work].filter(Boolean).join(" · ")}</Text>
    </>
  );
} // prettier-ignore

function Why({ job }: { job: Job }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const said = ({ kind, name, amount }: Lack): string =>
    kind === "memory" ? bytes(amount, language)
    : [value(amount, language), kind === "other" ? name : w.units[kind], kind !== "other" && name].filter(Boolean).join(" "); // prettier-ignore
  const short = lacks(job.missing);
  return (
    <>
      <Text size="sm">{job.sentence ? <Because said={job.sentence} code={job.reason} /> : job.reason || "–"}</Text>
      <Text size="xs" c="dimmed">
        {[
          short.length > 0 && `${w.missing}: ${short.map(said).join(", ")}`,
          job.nodes && job.nodes.length > 0 && w.reserved(job.nodes.join(", ")),
        ].filter(Boolean).join(" · ")}
      </Text>
      <Text size="xs" c="dimmed">{w.since}: <Ago at={job.since} /></Text>
    </>
  );
} // prettier-ignore

function Priority({ job }: { job: Job }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [open, setOpen] = useState(false);
  const [wish, setWish] = useState<number | string>(job.priority);
  const act = useAct(
    () => got(api.POST("/api/v1/jobs/{ref}/priority", { params: { path: { ref: job.id ?? "" } }, body: { priority: Number(wish) } })),
    ["queues", "jobs", "job"],
    () => setOpen(false),
  );
  const may = Boolean(job.id) && (who.may("job.write-any") || (job.user === who.user && who.may("job.write")));
  if (!may) return <>{job.priority}</>;
  const told = fieldErrors(act.error, ["priority"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    act.run();
  };
  return (
    <Popover opened={open} onChange={setOpen} trapFocus position="bottom-end" withArrow>
      <Popover.Target>
        <Button size="compact-sm" variant="default" aria-label={`${w.newPriority(job.name ?? "")}: ${job.priority}. ${w.change}`}
          onClick={() => { setWish(job.priority); setOpen(!open); }}>{job.priority}</Button>
      </Popover.Target>
      <Popover.Dropdown>
        <form onSubmit={submit}>
          <Stack gap="xs" w={260}>
            <NumberInput size="xs" label={w.newPriority(job.name ?? "")} value={wish} onChange={setWish} error={told.at.priority} allowDecimal={false} data-autofocus />
            {Boolean(told.rest) && <Told error={told.rest} />}
            <Button size="xs" type="submit" loading={act.busy}>{w.set}</Button>
            <Cli line={command("queue", "priority", job.name ?? "", String(wish))} />
          </Stack>
        </form>
      </Popover.Dropdown>
    </Popover>
  );
} // prettier-ignore
