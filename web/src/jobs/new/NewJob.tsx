/** A new job: from a script, files, a command or an earlier job, as a form and as its file at once. */
import { Alert, Button, FileButton, Grid, Group, SegmentedControl, Text, Textarea } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import { api, got, Refused, type Schema } from "../../api/client";
import { useLanguage, useWords } from "../../i18n";
import { bytes } from "../../i18n/format";
import { line } from "../../look/line";
import { Page } from "../../look/Page";
import { Told } from "../../look/Told";
import { useUrl } from "../../look/url";
import { useKeys } from "../../shell/keys";
import { useWho } from "../../shell/who";
import { at, read, textOf, write, type Path, type Spec } from "./document";
import { Doors, DOORS, type Door, type Repository, type Script } from "./Doors";
import { dropDraft, FIRST_DRAFT, keepDraft, keptDraft } from "./draft";
import { Fields, OPEN_FIELDS } from "./Fields";
import { guessedCommand, merged, send, type CodeFile } from "./files";
import css from "./new.module.css";
import { roleFields } from "./Roles";
import { placed, textAt } from "./values";
import { Verdict, type DryRun } from "./Verdict";
import { words } from "./words";

const TYPING_MS = 300;
/** Which code goes along is not known before it is sent, and a dry run does not ask. */
const SOME_CODE = "0".repeat(64);
const REPOSITORY = ["git", "ref", "commit"] as const;
const NEVER_FITS = "never-fits";

export default function NewJob(): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const who = useWho();
  const navigate = useNavigate();
  const [query, change] = useUrl();
  const from = query.from ?? null;
  const asText = query.as === "yaml";
  const [draft, setDraft] = useState(() => (from ? FIRST_DRAFT : keptDraft()));
  const { text, script } = draft;
  const [files, setFiles] = useState<CodeFile[]>([]);
  const [sending, setSending] = useState<string | null>(null);

  const setText = useCallback((how: (text: string) => string) => setDraft((before) => ({ ...before, text: how(before.text) })), []);
  const set = useCallback((path: Path, value: unknown) => setText((before) => write(before, path, value)), [setText]);
  const { spec, wrong } = useMemo(() => read(text), [text]);
  const door: Door = DOORS.find((each) => each === query.door) ?? (from ? "clone" : isInGit(spec) ? "git" : "script");
  useEffect(() => keepDraft(draft), [draft]);

  // 1. An earlier job, once it is here.
  const cloned = useQuery({ queryKey: ["job", from, "clone"], queryFn: () => clone(from as string), enabled: from !== null, staleTime: Infinity, retry: false });
  const taken = useRef<string | null>(null);
  useEffect(() => {
    if (!cloned.data || taken.current === cloned.data.id) return;
    taken.current = cloned.data.id;
    setText(() => cloned.data.text);
  }, [cloned.data, setText]);

  // 2. What the server says of it, as one types and as the cluster changes.
  const code = door === "script" ? scriptFiles(script) : door === "files" ? files : [];
  const bundle = textAt(spec, ["code", "bundle"]) || null;
  const whole = useMemo(() => (spec && code.length ? withBundle(spec, SOME_CODE) : spec), [spec, code.length]);
  const [asked] = useDebouncedValue(whole ? JSON.stringify(whole) : "", TYPING_MS);
  const homeless = door === "git" && !isInGit(spec);
  const ready = Boolean(spec && hasCommand(spec)) && !homeless;
  const dry = useQuery({
    queryKey: ["queues", "dry", asked],
    queryFn: () => post(JSON.parse(asked) as Spec, true) as Promise<DryRun>,
    enabled: asked !== "" && ready && who.may("job.write"),
    placeholderData: (before) => before,
    retry: false,
  });

  // 3. Off it goes. The same job sent twice, after a lost answer, is one job: it has one key.
  const sent = useRef({ body: "", key: "" });
  const submitting = useMutation({
    retry: false,
    mutationFn: async () => {
      let body = whole as Spec;
      if (code.length) {
        const told = (done: number, all: number): void => setSending(w.sending(bytes(done, language), bytes(all, language)));
        const digest = await send(code, told);
        body = withBundle(body, digest);
      }
      const text = JSON.stringify(body);
      if (sent.current.body !== text) sent.current = { body: text, key: newKey() };
      return (await post(body, false, sent.current.key)) as Schema["JobView"];
    },
    onSuccess: (job) => {
      dropDraft();
      void navigate({ to: "/jobs/$job", params: { job: job.id } });
    },
    onSettled: () => setSending(null),
  });
  const submit = (): void => {
    if (ready && who.may("job.write") && !submitting.isPending) submitting.mutate();
  };
  useKeys({ "mod+enter": submit });

  const error = submitting.error ?? (ready && !dry.isFetching ? dry.error : null);
  const never = error instanceof Refused && error.code === NEVER_FITS;
  const errors = useMemo(() => {
    if (!error) return { at: {}, rest: [] };
    if (!(error instanceof Refused)) return { at: {}, rest: [String(error)] };
    const found = placed(error.fields, error.message, asText ? [] : [...OPEN_FIELDS, ...roleFields(spec)]);
    return error.hint ? { ...found, rest: found.rest.length ? [...found.rest, error.hint] : found.rest } : found;
  }, [error, spec, asText]);

  const enter = (next: Door): void => {
    change({ door: next, from: next === "clone" ? query.from : undefined });
    if (next === "git") set(["code", "bundle"], undefined);
    else for (const field of REPOSITORY) set(["code", field], undefined);
    if (next === "script" && !ready) set(["run"], `python3 ${script.name}`);
  };
  const setScript = (next: Script): void => {
    if (textAt(spec, ["run"]) === `python3 ${script.name}`) set(["run"], `python3 ${next.name}`);
    setDraft((before) => ({ ...before, script: next }));
  };
  const takeFiles = (next: CodeFile[]): void => {
    setFiles(next);
    const likely = guessedCommand(next);
    const standing = textAt(spec, ["run"]);
    if (likely && (!standing || standing === `python3 ${script.name}`)) set(["run"], likely);
  };
  const setRepository = (field: keyof Repository, value: string): void => {
    set(["code", field], value || undefined);
    if (field !== "commit") set(["code", "commit"], undefined); // what was found elsewhere, or under another name
  };
  const take = ({ role, count, gpus }: Schema["Smaller"]): void => {
    if (role === "worker") set(["workers"], undefined);
    set(["roles", role, "count"], count);
    if (gpus || at(spec, ["roles", role, "gpus"]) !== undefined) set(["roles", role, "gpus"], gpus);
  };
  const openFile = (file: File | null): void => void file?.text().then((found) => setText(() => found));
  const chosen = from ? { id: cloned.data?.id ?? from, name: cloned.data?.name ?? from } : null;
  const why = wrong && (wrong.why === "several" ? w.several : wrong.why === "mapping" ? w.mapping : wrong.why);

  return (
    <Page title={w.title}>
      <Grid gap="lg">
        <Grid.Col span={{ base: 12, md: 7.5 }}>
          <Doors
            door={door}
            change={enter}
            script={script}
            setScript={setScript}
            files={files}
            setFiles={takeFiles}
            from={chosen}
            setFrom={(job) => change({ from: job?.id, door: "clone" })}
            bundle={bundle}
            dropBundle={() => set(["code", "bundle"], undefined)}
            repository={{ git: textAt(spec, ["code", "git"]), ref: textAt(spec, ["code", "ref"]), commit: textAt(spec, ["code", "commit"]) }}
            setRepository={setRepository}
            errors={errors.at}
            line={line("run", "--", ...textAt(spec, ["run"]).split(" "))}
          />
          {cloned.error && <Told error={cloned.error} />}
          <Group justify="space-between" mb="sm">
            <SegmentedControl
              size="xs"
              aria-label={w.as}
              data={[{ value: "form", label: w.form }, { value: "yaml", label: w.yaml }]}
              value={asText ? "yaml" : "form"}
              onChange={(value) => change({ as: value === "yaml" ? "yaml" : undefined })}
            />
            {asText && (
              <FileButton onChange={openFile} accept=".yaml,.yml,text/yaml" inputProps={{ "aria-label": w.open }}>
                {(props) => (
                  <Button {...props} size="xs" variant="default">
                    {w.open}
                  </Button>
                )}
              </FileButton>
            )}
          </Group>
          {asText ? (
            <Textarea
              label={w.file}
              description={w.fileHelp}
              value={text}
              onChange={(event) => {
                const next = event.currentTarget.value;
                setText(() => next);
              }}
              autosize
              minRows={14}
              spellCheck={false}
              classNames={{ input: css.yaml }}
              error={wrong ? w.wrongYaml(String(wrong.line), why ?? "") : undefined}
              data-field="yaml"
            />
          ) : spec ? (
            <Fields spec={spec} set={set} errors={errors.at} />
          ) : (
            <Alert color="orange" variant="light">
              <Text size="sm">{w.formWaits}</Text>
              <Text size="sm">{wrong && w.wrongYaml(String(wrong.line), why ?? "")}</Text>
            </Alert>
          )}
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 4.5 }}>
          <Verdict
            found={dry.error ? undefined : dry.data}
            asking={dry.isFetching}
            ready={ready}
            wanted={homeless ? w.wantRepository : w.wantCommand}
            problems={[...errors.rest, ...Object.entries(errors.at).map(([field, said]) => `${field}: ${said}`)]}
            never={never}
            busy={submitting.isPending}
            sending={sending}
            submit={submit}
            may={who.may("job.write")}
            yaml={text}
            sends={code.length > 0}
            shrink={(smaller) => smaller.forEach(take)}
          />
        </Grid.Col>
      </Grid>
    </Page>
  );
}

function scriptFiles(script: Script): CodeFile[] {
  if (!script.text.trim() || !script.name.trim()) return [];
  return merged([], [{ path: script.name.trim(), blob: new Blob([script.text]) }]);
}

function hasCommand(spec: Spec): boolean {
  const roles = at(spec, ["roles"]);
  const own = typeof roles === "object" && roles !== null ? Object.values(roles as Record<string, Spec | null>) : [];
  return Boolean(spec.run) || (own.length > 0 && own.every((role) => role?.run));
}

/** What is sent from here takes the place of what the file names. */
function withBundle(spec: Spec, bundle: string): Spec {
  const { git: _git, ref: _ref, commit: _commit, ...code } = (at(spec, ["code"]) ?? {}) as Spec;
  return { ...spec, code: { ...code, bundle } };
}

function isInGit(spec: Spec | null): boolean {
  return textAt(spec, ["code", "git"]) !== "";
}

async function post(spec: Spec, dryRun: boolean, key?: string): Promise<DryRun | Schema["JobView"]> {
  return got(
    api.POST("/api/v1/jobs", {
      params: { header: key ? { "Idempotency-Key": key } : {} },
      body: { spec, dry_run: dryRun } as never,
    }),
  );
}

/** An earlier job as a file to begin with: what was asked, not what was filled in. */
async function clone(ref: string): Promise<{ id: string; name: string; text: string }> {
  const params = { path: { ref } };
  const [job, spelled] = await Promise.all([
    got(api.GET("/api/v1/jobs/{ref}", { params })),
    got(api.GET("/api/v1/jobs/{ref}/spellings", { params })),
  ]);
  const { spec } = read(spelled.yaml);
  const bundle = job.spec.code?.bundle;
  const text = bundle && spec ? write(spelled.yaml, ["code", "bundle"], bundle) : spelled.yaml;
  return { id: job.id, name: job.name, text: spec ? text : textOf(job.spec as Spec) };
}

/** Made without `randomUUID`, which plain http pages do not have. */
function newKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
