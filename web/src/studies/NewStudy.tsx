/** A new study: a form and a file that edit each other. */
import { ActionIcon, Anchor, Button, Group, NumberInput, SegmentedControl, Select, SimpleGrid, Stack, Tabs, Text, Textarea, TextInput } from "@mantine/core"; // prettier-ignore
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState, type FormEvent, type ReactNode } from "react";
import { parse, stringify } from "yaml";

import { api, got, Refused } from "../api/client";
import { useWords } from "../i18n";
import { useAct } from "../look/Act";
import { Command } from "../look/Command";
import { Icon } from "../look/Icon";
import { JobPicker } from "../look/JobPicker";
import { Part } from "../look/Part";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { baseOf, goalOf, kindOf, spaceOf, withGoal, withKind, withSpace, type File, type Range } from "./drafting";
import { createLine, createPython } from "./spec";
import css from "./studies.module.css";
import { usualJob } from "./usual";
import { words } from "./words";

const FIRST: File = { kind: "study", job: { run: "" }, space: { lr: "log:1e-4..1e-1" }, minimize: "loss", trials: 20, parallel: 4 };

export default function NewStudy({ start, close }: { start: string | null; close: () => void }): ReactNode {
  const w = useWords(words);
  const navigate = useNavigate();
  const [url, change] = useUrl();
  const [file, setFile] = useState<File>(FIRST);
  const [text, setText] = useState(() => stringify(FIRST));
  const [wrong, setWrong] = useState("");
  const [job, setJob] = useState<{ id: string; name: string } | null>(null);
  const [form, setForm] = useState("cli");

  const set = (next: File): void => {
    setFile(next);
    setText(stringify(next, { lineWidth: 100 }));
    setWrong("");
    act.reset();
  };
  const write = (next: string): void => {
    setText(next);
    act.reset();
    try {
      const read: unknown = parse(next);
      if (typeof read !== "object" || read === null || Array.isArray(read)) throw new Error(w.fileWrong);
      setFile(read as File);
      setWrong("");
    } catch (error) {
      setWrong(error instanceof Error ? (error.message.split("\n")[0] ?? "") : w.fileWrong);
    }
  };
  const act = useAct(
    (dry: boolean) => got(api.POST("/api/v1/studies", { body: { spec: file as never, dry_run: dry } })),
    ["studies"],
    (answer, dry) => {
      if (!dry) void navigate({ to: `/studies/${answer.name}` as never });
    },
  );
  const checked = act.made as unknown as { framework?: string; id?: string } | undefined;

  const take = useAct(
    async (chosen: { id: string; name: string }) => {
      const [detail, usual, runs] = await Promise.all([
        got(api.GET("/api/v1/jobs/{ref}", { params: { path: { ref: chosen.id } } })),
        usualJob(),
        got(api.GET("/api/v1/runs", { params: { query: { id: chosen.id, columns: "*" } } })),
      ]);
      const metrics = Object.keys((runs.items[0]?.metrics ?? {}) as Record<string, unknown>);
      return { name: detail.name, id: detail.id, ...baseOf(detail.spec as unknown as Record<string, unknown>, usual, metrics) };
    },
    [],
    (found) => {
      setJob({ id: found.id, name: found.name });
      set({ ...file, job: found.job, ...(found.space ? { space: found.space } : {}), ...(found.goal ? withGoal(file, found.goal) : {}) });
    },
  );
  useEffect(() => {
    if (start) take.run({ id: start, name: start });
    // only the job that the address names, once
  }, [start]);

  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!wrong) act.run(false);
  };
  return (
    <Part
      title={w.newStudy}
      actions={
        <Button size="xs" variant="subtle" color="gray" onClick={close}>
          {w.cancel}
        </Button>
      }
    >
      <form onSubmit={submit} aria-label={w.newStudy}>
        <Tabs value={url.as ?? "form"} onChange={(tab) => change({ as: tab === "yaml" ? "yaml" : undefined }, true)} keepMounted={false}>
          <Tabs.List mb="sm">
            <Tabs.Tab value="form">{w.form}</Tabs.Tab>
            <Tabs.Tab value="yaml">{w.file}</Tabs.Tab>
          </Tabs.List>
          <Tabs.Panel value="form">
            <Fields
              file={file}
              set={set}
              picker={
                <JobPicker
                  label={w.job_}
                  description={w.jobHint}
                  chosen={job}
                  clearable
                  onChoose={(found) => {
                    setJob(found);
                    if (found) take.run(found);
                  }}
                />
              }
            />
            {Boolean(take.error) && <Told error={take.error} />}
          </Tabs.Panel>
          <Tabs.Panel value="yaml">
            <Textarea
              className={css.file ?? ""}
              label={w.fileLabel}
              autosize
              minRows={14}
              maxRows={40}
              spellCheck={false}
              value={text}
              onChange={(event) => write(event.currentTarget.value)}
              error={wrong && `${w.fileWrong}: ${wrong}`}
            />
          </Tabs.Panel>
        </Tabs>
        {act.error instanceof Refused || act.error ? <Told error={act.error} /> : null}
        <Group mt="md" gap="sm">
          <Button type="submit" loading={act.busy} disabled={Boolean(wrong)}>
            {w.create}
          </Button>
          <Button variant="default" disabled={Boolean(wrong)} loading={act.busy} onClick={() => act.run(true)}>
            {w.check}
          </Button>
          {checked && !checked.id && (
            <Text size="sm" role="status">
              {w.fine(checked.framework ?? "")}
            </Text>
          )}
        </Group>
      </form>
      <Group mt="md" mb={6} gap="xs">
        <Text size="xs" c="dimmed">
          {w.copyAs}
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
      <Command line={form === "cli" ? createLine(file) : form === "python" ? createPython(file) : text} />
    </Part>
  );
}

function Fields({ file, set, picker }: { file: File; set: (file: File) => void; picker: ReactNode }): ReactNode {
  const w = useWords(words);
  const goal = goalOf(file);
  const sampler = kindOf(file.sampler);
  const pruner = kindOf(file.pruner);
  const ends = (typeof file.pruner === "object" && file.pruner ? file.pruner : {}) as Record<string, unknown>;
  const run = (file.job as Record<string, unknown> | undefined)?.run;
  const number = (name: string, label: string, usual: number | string): ReactNode => (
    <NumberInput
      size="sm"
      label={label}
      min={1}
      allowDecimal={false}
      value={typeof ends[name] === "number" ? ends[name] : usual}
      onChange={(value) => set({ ...file, pruner: { ...ends, kind: pruner, [name]: value === "" ? undefined : value } })}
    />
  );
  const count = (name: "trials" | "parallel", label: string, usual: number): ReactNode => (
    <NumberInput
      label={label}
      min={1}
      allowDecimal={false}
      value={typeof file[name] === "number" ? file[name] : usual}
      onChange={(value) => set({ ...file, [name]: value === "" ? undefined : value })}
    />
  );
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
      <Stack gap="sm">
        {picker}
        <TextInput
          label={w.command}
          description={w.commandHint}
          value={Array.isArray(run) ? run.join(" ") : String(run ?? "")}
          readOnly={Array.isArray(run) && run.some((word) => /\s/.test(String(word)))}
          onChange={(event) => set({ ...file, job: { ...(file.job as object), run: event.currentTarget.value } })}
          placeholder="python train.py"
        />
        <TextInput
          label={w.name}
          description={w.nameHint}
          value={String(file.name ?? "")}
          onChange={(event) => set({ ...file, name: event.currentTarget.value || undefined })}
        />
        <Ranges file={file} set={set} />
      </Stack>
      <Stack gap="sm">
        <Group grow align="end">
          <TextInput
            label={w.metric}
            description={w.metricHint}
            value={goal.metric}
            onChange={(event) => set({ ...file, ...withGoal(file, { ...goal, metric: event.currentTarget.value }) })}
          />
          <Select
            label={w.goal}
            data={[
              { value: "minimize", label: w.less },
              { value: "maximize", label: w.much },
            ]}
            value={goal.way}
            allowDeselect={false}
            onChange={(way) => way && set({ ...file, ...withGoal(file, { ...goal, way: way as "minimize" }) })}
          />
        </Group>
        <Group grow>
          {count("trials", w.many, 20)}
          {count("parallel", w.atOnce, 4)}
        </Group>
        <Select
          label={w.sampler}
          data={[{ value: "", label: w.kindAuto }, ...Object.entries(w.samplers).map(([value, label]) => ({ value, label }))]}
          value={sampler}
          allowDeselect={false}
          onChange={(kind) => set({ ...file, sampler: withKind(file.sampler, kind ?? "") })}
        />
        <Select
          label={w.pruner}
          data={Object.entries(w.pruners).map(([value, label]) => ({ value, label }))}
          value={pruner || "none"}
          allowDeselect={false}
          onChange={(kind) => set({ ...file, pruner: withKind(undefined, kind === "none" ? "" : (kind ?? "")) })}
        />
        {(pruner === "asha" || pruner === "halving") && (
          <Group grow align="start">
            {number("min_step", w.minStep, 1)}
            {number("factor", w.factor, 3)}
            {number("max_step", w.maxStep, "")}
          </Group>
        )}
        {pruner === "median" && number("min_step", w.minStep, 1)}
        {pruner === "pbt" && number("interval", w.interval, "")}
        <TextInput
          label={w.maxTime}
          description={w.maxTimeHint}
          value={String(file.max_time ?? "")}
          onChange={(event) => set({ ...file, max_time: event.currentTarget.value || undefined })}
        />
      </Stack>
    </SimpleGrid>
  );
}

function Ranges({ file, set }: { file: File; set: (file: File) => void }): ReactNode {
  const w = useWords(words);
  const rows = spaceOf(file);
  const put = (next: readonly Range[]): void => set({ ...file, space: withSpace(file, next) });
  return (
    <fieldset style={{ border: 0, padding: 0, margin: 0 }}>
      <Text component="legend" size="sm" fw={500}>
        {w.space}
      </Text>
      <Text size="xs" c="dimmed" mb={4}>
        {w.rangeHint}
      </Text>
      <Stack gap={6}>
        {rows.map((row, at) => (
          <div key={at} className={css.row}>
            <TextInput
              size="xs"
              aria-label={w.param}
              value={row.name}
              onChange={(event) => put(rows.map((each, n) => (n === at ? { ...each, name: event.currentTarget.value } : each)))}
            />
            <TextInput
              size="xs"
              aria-label={`${w.range}: ${row.name}`}
              value={row.text}
              readOnly={row.bound}
              onChange={(event) => put(rows.map((each, n) => (n === at ? { ...each, text: event.currentTarget.value } : each)))}
            />
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label={w.removeParam(row.name)}
              onClick={() => put(rows.filter((_, n) => n !== at))}
              disabled={rows.length < 2}
            >
              <Icon name="close" size={14} />
            </ActionIcon>
          </div>
        ))}
      </Stack>
      <Anchor component="button" type="button" size="sm" mt={6} onClick={() => put([...rows, { name: `p${rows.length + 1}`, text: "float:0..1", bound: false }])}>
        {w.addParam}
      </Anchor>
    </fieldset>
  );
}
