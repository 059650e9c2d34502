/** What can be done with a study: add trials, stop it, promote its best, copy it, remove it. */
import { Anchor, Button, Group, Menu, NumberInput, Select, Stack, Switch, Text, Textarea } from "@mantine/core"; // prettier-ignore
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { Cli, Sure, useAct } from "../look/Act";
import { Command } from "../look/Command";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Part } from "../look/Part";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { RegisterForm } from "../models/RegisterForm";
import { useWho } from "../shell/who";
import { changesOf } from "./changes";
import { words } from "./words";

type Detail = Schema["StudyDetail"];
const AsText = lazy(() => import("./AsText"));

function Buttons({ study }: { study: Detail }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [url, change] = useUrl();
  const open = (panel: string): void => change({ do: url.do === panel ? undefined : panel });
  const mine = who.may("job.write-any") || (who.may("job.write") && study.user === who.user);
  return (
    <>
      {mine && (
        <Button size="xs" variant="default" leftSection={<Icon name="plus" size={14} />} onClick={() => open("add")} aria-expanded={url.do === "add"}>
          {w.add}
        </Button>
      )}
      {who.may("job.write") && study.best.length > 0 && (
        <Button size="xs" leftSection={<Icon name="star" size={14} />} onClick={() => open("promote")} aria-expanded={url.do === "promote"}>
          {w.promote}
        </Button>
      )}
      <Menu position="bottom-end">
        <Menu.Target>
          <Button size="xs" variant="default" leftSection={<Icon name="copy" size={14} />}>
            {w.copyAs}
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          {["CLI", "YAML", "Python"].map((each) => (
            <Menu.Item key={each} onClick={() => open(each.toLowerCase())}>
              {each}
            </Menu.Item>
          ))}
        </Menu.Dropdown>
      </Menu>
      {mine && study.state === "running" && <Stop study={study} />}
      {mine && study.state !== "running" && study.state !== "stopping" && <Remove study={study} />}
    </>
  );
}

function Stop({ study }: { study: Detail }): ReactNode {
  const w = useWords(words);
  const act = useAct(
    () => got(api.POST("/api/v1/studies/{ref}/stop", { params: { path: { ref: study.id } }, body: { reason: "" } })),
    ["study", "studies"],
  );
  if (study.wish) return <Text size="sm">{w.wishStop}</Text>;
  return (
    <Sure
      label={w.stop}
      variant="default"
      leftSection={<Icon name="stop" size={14} />}
      ask={w.stopAsk}
      act={() => act.run()}
      busy={act.busy}
      error={act.error}
      line={line("study", "stop", study.name)}
    />
  );
}

function Remove({ study }: { study: Detail }): ReactNode {
  const w = useWords(words);
  const navigate = useNavigate();
  const act = useAct(
    () => got(api.DELETE("/api/v1/studies/{ref}", { params: { path: { ref: study.id } } })),
    ["studies"],
    () => void navigate({ to: "/studies" }),
  );
  return (
    <Sure label={w.remove} ask={w.removeAsk(study.name)} act={() => act.run()} busy={act.busy} error={act.error} line={line("study", "rm", study.name)} />
  );
}

function Panels({ study, trials, best }: {
  study: Detail;
  trials: readonly Schema["TrialView"][];
  best: ReadonlySet<number>;
}): ReactNode {
  const [url, change] = useUrl();
  const close = (): void => change({ do: undefined });
  if (url.do === "add") return <Add study={study} close={close} />;
  if (url.do === "promote") return <Promote study={study} trials={trials.filter((each) => best.has(each.number))} close={close} />;
  if (url.do === "cli" || url.do === "yaml" || url.do === "python") {
    return (
      <Suspense>
        <AsText spec={study.spec} form={url.do} close={close} />
      </Suspense>
    );
  }
  return null;
}

function Add({ study, close }: { study: Detail; close: () => void }): ReactNode {
  const w = useWords(words);
  const [many, setMany] = useState<number | string>(20);
  const act = useAct(
    (trials: number) => got(api.POST("/api/v1/studies/{ref}/trials", { params: { path: { ref: study.id } }, body: { trials } })),
    ["study", "studies"],
    close,
  );
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (typeof many === "number") act.run(many);
  };
  return (
    <Part title={w.add} hint={w.addHint}>
      <form onSubmit={submit} aria-label={w.add}>
        <Group align="end" gap="sm" mb="sm">
          <NumberInput label={w.addMany} min={1} max={100_000} allowDecimal={false} value={many} onChange={setMany} w={140} />
          <Button type="submit" loading={act.busy} disabled={typeof many !== "number"}>
            {w.add}
          </Button>
          <Button variant="default" onClick={close}>
            {w.cancel}
          </Button>
        </Group>
        {Boolean(act.error) && <Told error={act.error} />}
        <Cli line={line("study", "add-trials", study.name, String(many || 20))} />
      </form>
    </Part>
  );
}

function Promote({ study, trials, close }: { study: Detail; trials: readonly Schema["TrialView"][]; close: () => void }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [number, setNumber] = useState(String(trials[0]?.number ?? ""));
  const [way, setWay] = useState<"longer" | "register">("longer");
  const trial = trials.find((each) => String(each.number) === number) ?? trials[0];
  if (!trial) return null;
  return (
    <>
      <Part
        title={w.promote}
        actions={
          <Button size="xs" variant="subtle" color="gray" onClick={close}>
            {w.close}
          </Button>
        }
      >
        <Group gap="sm" align="end">
          {trials.length > 1 && (
            <Select
              label={w.which}
              size="xs"
              data={trials.map((each) => ({ value: String(each.number), label: w.trial(each.number) }))}
              value={String(trial.number)}
              allowDeselect={false}
              onChange={(value) => value && setNumber(value)}
            />
          )}
          <Button size="xs" variant={way === "longer" ? "light" : "default"} aria-pressed={way === "longer"} onClick={() => setWay("longer")}>
            {w.longer}
          </Button>
          {who.may("model.write") && (
            <Button size="xs" variant={way === "register" ? "light" : "default"} aria-pressed={way === "register"} onClick={() => setWay("register")}>
              {w.register}
            </Button>
          )}
        </Group>
        {way === "longer" && <Longer key={trial.job} trial={trial} />}
      </Part>
      {way === "register" && (
        <RegisterForm key={trial.job} start={{ job: { id: trial.job, name: `${study.name}-${trial.number}` }, model: study.name }} close={close} />
      )}
    </>
  );
}

/** The trial's job again, with more steps, from the beginning or from its checkpoint. */
function Longer({ trial }: { trial: Schema["TrialView"] }): ReactNode {
  const w = useWords(words);
  const [text, setText] = useState("");
  const [resume, setResume] = useState(false);
  const checkpoints = useQuery({
    queryKey: ["checkpoints", trial.job],
    queryFn: () => got(api.GET("/api/v1/jobs/{ref}/checkpoints", { params: { path: { ref: trial.job } } })),
  });
  const can = Boolean(checkpoints.data?.items.some((each) => !each.bad));
  const [params, wrong] = changesOf(text);
  const act = useAct(
    () =>
      got(
        api.POST("/api/v1/jobs/{ref}/rerun", {
          params: { path: { ref: trial.job } },
          body: { params, changes: resume && can ? { start_from: { job: trial.job, step: "latest", model: null, resume: true } } : {} },
        }),
      ),
    ["jobs"],
  );
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!wrong) act.run();
  };
  const words_ = Object.entries(params).map(([name, value]) => `${name}=${String(value)}`);
  return (
    <form onSubmit={submit} aria-label={w.longer}>
      <Stack gap="sm" mt="sm">
        <Text size="sm" c="dimmed">
          {w.longerHint}
        </Text>
        <Textarea
          label={w.changes}
          description={w.changesHint}
          autosize
          minRows={2}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
          error={wrong && w.changesWrong(wrong)}
        />
        {can && <Switch label={w.goOn} checked={resume} onChange={(event) => setResume(event.currentTarget.checked)} />}
        {Boolean(act.error) && <Told error={act.error} />}
        <Group gap="sm">
          <Button type="submit" loading={act.busy} disabled={Boolean(wrong)}>
            {w.again}
          </Button>
          {act.made && (
            <Anchor component={Link} to={`/jobs/${act.made.id}`} role="status">
              {w.made(act.made.name)}
            </Anchor>
          )}
        </Group>
        <Command line={line("rerun", trial.job, resume && can && ["--from", "latest"], words_)} />
      </Stack>
    </form>
  );
}

export const Actions = { Buttons, Panels };
