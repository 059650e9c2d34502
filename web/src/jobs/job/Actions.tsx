/** What can be done with a job, as its state and one's rights allow. */
import { ActionIcon, Button, Group, Menu, Popover, Stack, Text, Tooltip } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";

import { api, got } from "../../api/client";
import { useWords } from "../../i18n";
import { Cli, useAct } from "../../look/Act";
import { Icon } from "../../look/Icon";
import { line } from "../../look/line";
import { Told } from "../../look/Told";
import { useUrl } from "../../look/url";
import { useWho } from "../../shell/who";
import { isOver, type Detail } from "./asking";
import { Board, boardAddress, isBoard } from "./Board";
import { Spellings } from "./Spellings";
import { words } from "./words";

type Asked = "stop" | "stopNow" | "restart" | "remove";
const STALE = ["job", "jobs"] as const;

export function useMayChange(job: Detail): boolean {
  const { user, may } = useWho();
  return may("job.write") && (job.user === user || may("job.write-any"));
}

export function Actions({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const [, change] = useUrl();
  const navigate = useNavigate();
  const { may } = useWho();
  const mine = useMayChange(job);
  const over = isOver(job.state);
  const [asked, setAsked] = useState<Asked | null>(null);
  const [spelt, setSpelt] = useState(false);
  const [board, setBoard] = useState(false);
  const path = { params: { path: { ref: job.id } } };
  const done = (): void => setAsked(null);

  const stop = useAct((now: boolean) => got(api.POST("/api/v1/jobs/{ref}/stop", { ...path, body: { now, reason: "" } })), STALE, done);
  const restart = useAct(() => got(api.POST("/api/v1/jobs/{ref}/restart", { ...path, body: { reason: "" } })), STALE, done);
  const release = useAct(() => got(api.POST("/api/v1/jobs/{ref}/release", { ...path, body: { reason: "" } })), STALE);
  const remove = useAct(
    () => got(api.DELETE("/api/v1/jobs/{ref}", path)),
    ["jobs"],
    () => void navigate({ to: "/jobs" }),
  );
  const backsOff = job.state === "queued" && job.attempt > 0;
  const grace = String(job.spec.limits.grace);
  const questions: Record<Asked, { ask: string; label: string; act: () => void; busy: boolean; error: unknown; cli: string }> = {
    stop: { ask: w.stopAsk(grace), label: w.stop, act: () => stop.run(false), busy: stop.busy, error: stop.error, cli: line("stop", job.name) },
    stopNow: { ask: w.stopNowAsk, label: w.stopNow, act: () => stop.run(true), busy: stop.busy, error: stop.error, cli: line("stop", job.name, "--now") },
    restart: { ask: w.restartAsk, label: w.restart, act: () => restart.run(), busy: restart.busy, error: restart.error, cli: line("restart", job.name) },
    remove: { ask: w.removeAsk, label: w.remove, act: () => remove.run(), busy: remove.busy, error: remove.error, cli: line("rm", job.name) },
  };
  const question = asked && questions[asked];

  return (
    <Stack gap={6} align="flex-end">
      <Group gap="xs" justify="flex-end">
        {mine && (job.state === "held" || backsOff) && (
          <Button size="xs" loading={release.busy} leftSection={<Icon name="play" size={14} />} onClick={() => release.run()}>
            {backsOff ? w.releaseNow : w.release}
          </Button>
        )}
        {may("job.write") && (
          <Button size="xs" variant={over ? "filled" : "default"} leftSection={<Icon name="again" size={14} />} onClick={() => change({ rerun: "" + Date.now() })}>
            {w.rerun}
          </Button>
        )}
        <Popover opened={asked !== null} onChange={(open) => !open && done()} position="bottom-end" shadow="md" trapFocus returnFocus withRoles={false} width={360}>
          <Popover.Target>
            <Group gap="xs" wrap="nowrap">
              {mine && !over && (
                <Tooltip label={w.stopHint}>
                  <Button
                    size="xs"
                    variant="default"
                    c="var(--mantine-color-error)"
                    leftSection={<Icon name="stop" size={13} />}
                    onClick={() => setAsked(job.state === "stopping" ? "stopNow" : "stop")}
                  >
                    {job.state === "stopping" ? w.stopNow : w.stop}
                  </Button>
                </Tooltip>
              )}
              <Menu position="bottom-end" withinPortal>
                <Menu.Target>
                  <ActionIcon variant="default" size={30} aria-label={w.more}>
                    <Icon name="menu" />
                  </ActionIcon>
                </Menu.Target>
                <Menu.Dropdown>
                  <Menu.Item leftSection={<Icon name="copy" size={14} />} onClick={() => setSpelt(true)}>
                    {w.copyAs} CLI / YAML / Python
                  </Menu.Item>
                  <Menu.Item leftSection={<Icon name="compare" size={14} />} onClick={() => void navigate({ to: "/compare", search: { jobs: job.id } as never })}>
                    {w.compareWith}
                  </Menu.Item>
                  {isBoard(job) ? (
                    <Menu.Item component="a" href={boardAddress(job.id)} target="_blank" rel="noreferrer" leftSection={<Icon name="out" size={14} />}>
                      {w.tensorboard}
                    </Menu.Item>
                  ) : (
                    <Menu.Item leftSection={<Icon name="usage" size={14} />} onClick={() => setBoard(true)}>
                      {w.tensorboard}
                    </Menu.Item>
                  )}
                  {mine && (
                    <>
                      <Menu.Divider />
                      {job.state === "running" && <Menu.Item leftSection={<Icon name="again" size={14} />} onClick={() => setAsked("restart")}>{w.restart}</Menu.Item>}
                      {!over && <Menu.Item c="var(--mantine-color-error)" leftSection={<Icon name="close" size={14} />} onClick={() => setAsked("stopNow")}>{w.stopNow}</Menu.Item>}
                      <Menu.Item c="var(--mantine-color-error)" disabled={!over} title={over ? undefined : w.onlyOver} leftSection={<Icon name="trash" size={14} />} onClick={() => setAsked("remove")}>
                        {w.remove}
                      </Menu.Item>
                    </>
                  )}
                </Menu.Dropdown>
              </Menu>
            </Group>
          </Popover.Target>
          <Popover.Dropdown>
            {question && (
              <form
                aria-label={question.label}
                onSubmit={(event) => {
                  event.preventDefault();
                  question.act();
                }}
              >
                <Stack gap="xs">
                  <Text size="sm">{question.ask}</Text>
                  {Boolean(question.error) && <Told error={question.error} />}
                  <Group gap="xs">
                    <Button type="submit" size="xs" color="red" loading={question.busy}>
                      {question.label}
                    </Button>
                    {asked === "stop" && (
                      <Button size="xs" variant="subtle" color="red" onClick={() => stop.run(true)}>
                        {w.stopNow}
                      </Button>
                    )}
                    <Button size="xs" variant="default" onClick={done}>
                      {w.cancel}
                    </Button>
                  </Group>
                  <Cli line={question.cli} />
                </Stack>
              </form>
            )}
          </Popover.Dropdown>
        </Popover>
      </Group>
      {Boolean(release.error) && <Told error={release.error} />}
      {board && <Board job={job} close={() => setBoard(false)} />}
      {spelt && <Spellings job={job} close={() => setSpelt(false)} />}
    </Stack>
  );
}
