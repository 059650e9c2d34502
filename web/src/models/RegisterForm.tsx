/** Files that a job left become a version of a model. */
import { Anchor, Autocomplete, Breadcrumbs, Button, Group, SegmentedControl, SimpleGrid, Stack, Text, Textarea, TextInput } from "@mantine/core"; // prettier-ignore
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { bytes } from "../i18n/format";
import { useAct } from "../look/Act";
import { Command } from "../look/Command";
import { fieldErrors } from "../look/fields";
import { Icon } from "../look/Icon";
import { JobPicker } from "../look/JobPicker";
import { Part } from "../look/Part";
import { Told } from "../look/Told";
import { isAlias, registerLine, registerPython, tagsOf, type Registration } from "./naming";
import css from "./models.module.css";
import { words } from "./words";

export interface Start {
  job?: { id: string; name: string };
  model?: string;
}

export function RegisterForm({ start = {}, close }: { start?: Start; close: () => void }): ReactNode {
  const w = useWords(words);
  const [job, setJob] = useState(start.job ?? null);
  const [path, setPath] = useState("");
  const [model, setModel] = useState(start.model ?? "");
  const [alias, setAlias] = useState("");
  const [description, setDescription] = useState("");
  const [tagText, setTagText] = useState("");
  const [tried, setTried] = useState(false);
  const [form, setForm] = useState("cli");
  const known = useQuery({ queryKey: ["models"], queryFn: () => got(api.GET("/api/v1/models")) });
  const tags = tagsOf(tagText);
  const what: Registration = {
    model, job: job?.name ?? "", path, aliases: alias ? [alias] : [], description, tags: tags ?? {},
  }; // prettier-ignore
  const act = useAct(
    (id: string) =>
      got(
        api.POST("/api/v1/models/{name}/versions", {
          params: { path: { name: model } },
          body: { run: id, path, description, tags: tags ?? {}, aliases: alias ? [alias] : [], files: [] },
        }),
      ),
    ["models", "model"],
  );
  const wrong = fieldErrors(act.error, ["name", "aliases", "path", "tags", "description"] as const);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    setTried(true);
    if (job && model && tags && (!alias || isAlias(alias))) act.run(job.id);
  };

  return (
    <Part
      title={w.register}
      hint={w.registerHint}
      actions={
        <Button size="xs" variant="subtle" color="gray" onClick={close}>
          {w.close}
        </Button>
      }
    >
      <form onSubmit={submit} aria-label={w.register}>
        <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
          <Stack gap="sm">
            <JobPicker
              label={w.job}
              placeholder={w.jobHint}
              chosen={job}
              onChoose={(found) => {
                setJob(found);
                setPath("");
              }}
              error={tried && !job ? w.pickJob : undefined}
            />
            <Files job={job?.id ?? null} path={path} choose={setPath} error={wrong.at.path} />
          </Stack>
          <Stack gap="sm">
            <Autocomplete
              label={w.modelName}
              description={w.modelNameHint}
              data={(known.data?.items ?? []).map((each) => each.name)}
              value={model}
              onChange={setModel}
              required
              error={wrong.at.name ?? (tried && !model ? w.modelNameHint : undefined)}
            />
            <TextInput
              label={w.alias}
              description={w.aliasHint}
              value={alias}
              onChange={(event) => setAlias(event.currentTarget.value.trim())}
              error={wrong.at.aliases ?? (alias && !isAlias(alias) ? w.aliasWrong : undefined)}
            />
            <Textarea
              label={w.description}
              placeholder={w.descriptionHint}
              autosize
              minRows={2}
              maxRows={8}
              value={description}
              onChange={(event) => setDescription(event.currentTarget.value)}
              error={wrong.at.description}
            />
            <TextInput
              label={w.tags}
              placeholder={w.tagsHint}
              value={tagText}
              onChange={(event) => setTagText(event.currentTarget.value)}
              error={wrong.at.tags ?? (tags ? undefined : w.tagsWrong)}
            />
          </Stack>
        </SimpleGrid>
        {Boolean(wrong.rest) && <Told error={wrong.rest} />}
        <Group mt="md" gap="sm">
          <Button type="submit" loading={act.busy}>
            {w.doRegister}
          </Button>
          {act.made && <Made made={act.made} />}
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
          ]}
        />
      </Group>
      <Command line={form === "cli" ? registerLine(what) : registerPython(what)} />
    </Part>
  );
}

function Made({ made }: { made: Schema["VersionDetail"] }): ReactNode {
  const w = useWords(words);
  return (
    <Text size="sm" role="status">
      <Anchor component={Link} to={`/models/${encodeURIComponent(made.model)}`} search={{ v: String(made.version) } as never}>
        {w.registered(`${made.model}@${made.version}`)}
      </Anchor>
      {made.unsafe.length > 0 && ` · ${w.unsafeShort}`}
    </Text>
  );
}

/** What a job left, folder by folder. */
function Files({ job, path, choose, error }: {
  job: string | null;
  path: string;
  choose: (path: string) => void;
  error: string | undefined;
}): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [folder, setFolder] = useState("");
  const [of, setOf] = useState(job);
  if (of !== job) {
    setOf(job);
    setFolder("");
  }
  const { data, error: refused } = useQuery({
    queryKey: ["artifacts", job, folder],
    queryFn: () =>
      got(api.GET("/api/v1/runs/{ref}/artifacts", { params: { path: { ref: job as string }, query: { path: folder } } })),
    enabled: job !== null,
  });
  const parts = folder.split("/").filter(Boolean);
  const show = (to: string): void => {
    setFolder(to);
    choose(to);
  };
  return (
    <fieldset className={css.files}>
      <legend>{w.files}</legend>
      <Text size="xs" c="dimmed">
        {job ? w.filesHint : w.pickJob}
      </Text>
      {Boolean(refused) && <Told error={refused} />}
      {job && data && (
        <>
          <Breadcrumbs separator="/" my={6} separatorMargin={4}>
            {["", ...parts].map((name, at) => (
              <Anchor key={at} component="button" type="button" size="xs" onClick={() => show(parts.slice(0, at).join("/"))}>
                {name || w.everything}
              </Anchor>
            ))}
          </Breadcrumbs>
          {data.items.length === 0 && (
            <Text size="sm" c="dimmed">
              {w.noFiles}
            </Text>
          )}
          <ul className={css.list}>
            {data.items.map((each) => (
              <li key={each.path}>
                <button
                  type="button"
                  aria-pressed={path === each.path}
                  onClick={() => (each.folder ? show(each.path) : choose(path === each.path ? folder : each.path))}
                >
                  <Icon name={each.folder ? "right" : path === each.path ? "check" : "audit"} size={14} />
                  <span className="clip">{each.path.slice(folder ? folder.length + 1 : 0)}</span>
                  <span className="quiet">{bytes(each.size, language)}</span>
                </button>
              </li>
            ))}
          </ul>
          <Text size="xs">{w.chosen(path || w.everything)}</Text>
        </>
      )}
      {error && (
        <Text size="xs" c="red">
          {error}
        </Text>
      )}
    </fieldset>
  );
}
