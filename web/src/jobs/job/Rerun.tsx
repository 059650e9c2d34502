/** A new job like this one, with changes. */
import { ActionIcon, Button, Group, NumberInput, Paper, Select, SimpleGrid, Stack, Text, TextInput, Title } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import { api, got } from "../../api/client";
import { useLanguage, useWords } from "../../i18n";
import { count } from "../../i18n/format";
import { Cli, useAct } from "../../look/Act";
import { fieldErrors } from "../../look/fields";
import { Icon } from "../../look/Icon";
import { Told } from "../../look/Told";
import { useUrl } from "../../look/url";
import { paramsIn } from "./argv";
import { useCheckpoints, type Detail } from "./asking";
import { asTyped, bodyOf, cliOf, mainRole, type Changes } from "./changing";
import { words } from "./words";

export function Rerun({ job, close }: { job: Detail; close: () => void }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [url] = useUrl();
  const navigate = useNavigate();
  const checkpoints = useCheckpoints(job.id).data ?? [];
  const before = useMemo(() => {
    const run = job.spec.run.length ? job.spec.run : (Object.values(job.spec.roles).find((role) => role.run)?.run ?? []);
    const declared = Object.entries(job.spec.params).map(([name, value]): [string, string] => [name, String(value)]);
    return asTyped(job.spec, Object.fromEntries([...paramsIn(run), ...declared]));
  }, [job.spec]);
  const [changes, setChanges] = useState<Changes>(() => ({ ...before, from: url.from ?? "", memory: url.memory ?? before.memory }));
  const [fresh, setFresh] = useState("");
  const set = (part: Partial<Changes>): void => setChanges((now) => ({ ...now, ...part }));
  const act = useAct(
    () =>
      got(
        api.POST("/api/v1/jobs/{ref}/rerun", {
          params: { path: { ref: job.id } },
          body: bodyOf(job, before, changes),
        }),
      ),
    ["jobs"],
    (made) => void navigate({ to: "/jobs/$job", params: { job: made.id } }),
  );
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    form.current?.scrollIntoView({ block: "nearest" });
    form.current?.querySelector<HTMLElement>("input")?.focus({ preventScroll: true });
  }, []);
  const problems = fieldErrors(act.error, ["name", "roles", "params", "start_from"]);
  const names = Object.keys(changes.params);
  const starts = [
    { value: "", label: w.fromScratch },
    ...(checkpoints.length ? [{ value: "latest", label: w.fromLatest }] : []),
    ...(checkpoints.length && job.spec.outputs.keep_best ? [{ value: "best", label: w.fromBest }] : []),
    ...[...new Set(checkpoints.filter((each) => !each.bad).map((each) => each.step))].map((step) => ({
      value: String(step),
      label: w.fromStep(count(step, language)),
    })),
  ];
  if (changes.from && !starts.some((each) => each.value === changes.from)) starts.push({ value: changes.from, label: w.fromStep(changes.from) });
  const add = (): void => {
    const name = fresh.trim();
    if (name && !(name in changes.params)) set({ params: { ...changes.params, [name]: "" } });
    setFresh("");
  };

  return (
    <Paper withBorder p="md" mb="md" component="section" aria-label={w.rerunTitle}>
      <form
        ref={form}
        onSubmit={(event) => {
          event.preventDefault();
          act.run();
        }}
      >
        <Group justify="space-between" align="baseline" mb="xs">
          <Title order={2}>{w.rerunTitle}</Title>
          <Text size="xs" c="dimmed">
            {w.oldCode}
          </Text>
        </Group>
        <Stack gap="sm">
          <SimpleGrid cols={{ base: 1, xs: 2, md: 4 }} spacing="sm">
            {names.map((name) => (
              <TextInput
                key={name}
                size="xs"
                label={<span title={name}>{name.length > 60 ? `${name.slice(0, 60)}…` : name}</span>}
                value={changes.params[name]}
                onChange={(event) => set({ params: { ...changes.params, [name]: event.currentTarget.value } })}
                rightSection={
                  name in before.params ? undefined : (
                    <ActionIcon
                      size="sm"
                      variant="subtle"
                      color="gray"
                      aria-label={w.removeParam(name)}
                      onClick={() => set({ params: Object.fromEntries(Object.entries(changes.params).filter(([each]) => each !== name)) })}
                    >
                      <Icon name="close" size={12} />
                    </ActionIcon>
                  )
                }
              />
            ))}
            <TextInput
              size="xs"
              label={w.addParam}
              placeholder="lr"
              value={fresh}
              onChange={(event) => setFresh(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key === "Enter" && fresh.trim()) {
                  event.preventDefault();
                  add();
                }
              }}
              rightSection={
                <ActionIcon size="sm" variant="subtle" color="gray" aria-label={w.addParam} onClick={add}>
                  <Icon name="plus" size={14} />
                </ActionIcon>
              }
            />
          </SimpleGrid>
          {!names.length && (
            <Text size="xs" c="dimmed">
              {w.noParams}
            </Text>
          )}
          <SimpleGrid cols={{ base: 1, xs: 2, md: 5 }} spacing="sm">
            <TextInput size="xs" label={w.name} description={w.nameHint} value={changes.name} error={problems.at.name} maxLength={63} onChange={(event) => set({ name: event.currentTarget.value })} />
            <NumberInput size="xs" label={w.workers} description={w.roleN(mainRole(job.spec))} min={1} max={4096} allowDecimal={false} value={changes.workers ?? ""} onChange={(value) => set({ workers: value === "" ? null : Number(value) })} />
            <NumberInput size="xs" label={w.gpusEach} description={w.roleN(mainRole(job.spec))} min={0} max={64} allowDecimal={false} value={changes.gpus ?? ""} onChange={(value) => set({ gpus: value === "" ? null : Number(value) })} />
            <TextInput size="xs" label={w.memoryEach} description={w.memoryHint} value={changes.memory} error={problems.at.roles} onChange={(event) => set({ memory: event.currentTarget.value })} />
            <Select size="xs" label={w.from} description={"\u00a0"} allowDeselect={false} data={starts} value={changes.from} error={problems.at.start_from} onChange={(from) => set({ from: from ?? "" })} />
          </SimpleGrid>
          {problems.at.params && <Text size="sm" c="red">{problems.at.params}</Text>}
          {Boolean(problems.rest) && <Told error={problems.rest} />}
          <Group gap="xs">
            <Button type="submit" size="xs" loading={act.busy} leftSection={<Icon name="play" size={14} />}>
              {w.submit}
            </Button>
            <Button size="xs" variant="default" onClick={close}>
              {w.cancel}
            </Button>
          </Group>
          <Cli line={cliOf(job, before, changes)} />
        </Stack>
      </form>
    </Paper>
  );
}
