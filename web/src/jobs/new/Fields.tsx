/** The form: each field is a place in the job file. */
import { Accordion, Autocomplete, Checkbox, Select, SimpleGrid, Stack, TagsInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { api, got } from "../../api/client";
import { useWords } from "../../i18n";
import { useWho } from "../../shell/who";
import { at, type Path, type Spec } from "./document";
import { Roles } from "./Roles";
import { TypedLine, TypedText } from "./Typed";
import { commandOf, linesAt, listOf, mappingOf, textAt, valueOf } from "./values";
import { words } from "./words";

export interface FieldsProps {
  spec: Spec;
  set: (path: Path, value: unknown) => void;
  errors: Readonly<Record<string, string>>;
}

/** Places that an error can stand at; roles add theirs. */
export const OPEN_FIELDS = [
  "name", "run", "code", "code.git", "code.ref", "params", "framework", "queue.name", "queue.priority", "limits.time", "retry.times", "retry.on",
  "environment.vars", "environment.secrets", "environment.python", "after", "begin", "work", "placement",
]; // prettier-ignore
const MORE = new Set(["queue.name", "queue.priority", "limits.time", "retry.times", "retry.on", "environment.vars", "environment.secrets", "environment.python", "after", "begin", "work", "placement"]);
const FRAMEWORKS = [
  "python", "pytorch", "tensorflow", "keras", "jax", "horovod", "mpi", "xgboost", "lightgbm", "sklearn", "paddle", "mxnet",
  "spark", "tensorflow1", "chainer", "caffe", "cntk", "theano",
]; // prettier-ignore

export function Fields({ spec, set, errors }: FieldsProps): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const queues = useQuery({ queryKey: ["queues"], queryFn: () => got(api.GET("/api/v1/queues")), enabled: who.may("queue.read") });
  const secrets = useQuery({ queryKey: ["secrets"], queryFn: () => got(api.GET("/api/v1/secrets")), enabled: who.may("secret.read") });
  const line = (path: string, label: string, hint = "", typed: (text: string) => unknown = (text) => text): ReactNode => {
    const parts = path.split(".");
    return (
      <TypedLine
        label={label}
        placeholder={hint}
        value={textAt(spec, parts)}
        commit={(text) => set(parts, text.trim() === "" ? undefined : typed(text.trim()))}
        error={errors[path]}
        data-field={path}
      />
    );
  };
  const level = textAt(spec, ["placement", "level"]);
  const opened = Object.keys(errors).some((field) => MORE.has(field));
  return (
    <Stack gap="sm">
      <TypedText
        label={w.command}
        description={w.commandHelp}
        placeholder={w.commandHint}
        minRows={1}
        value={commandOf(spec.run)}
        commit={(text) => set(["run"], text.trim() === "" ? undefined : text.replaceAll("\n", " "))}
        error={errors.run}
        data-field="run"
      />
      <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="sm">
        {line("name", w.name, w.nameHint)}
        <Autocomplete
          label={w.framework}
          placeholder={w.frameworkHint}
          data={FRAMEWORKS}
          value={textAt(spec, ["framework"])}
          onChange={(text) => set(["framework"], text || undefined)}
          error={errors.framework}
          limit={20}
        />
      </SimpleGrid>
      <TypedText
        label={`${w.params} (${w.perLine})`}
        placeholder={w.paramsHint}
        value={linesAt(spec, ["params"])}
        commit={(text) => set(["params"], mappingOf(text, false))}
        error={errors.params}
        data-field="params"
      />
      <Roles spec={spec} set={set} errors={errors} />
      <Accordion variant="contained" chevronPosition="left" defaultValue={opened ? "more" : null} key={String(opened)}>
        <Accordion.Item value="more">
          <Accordion.Control>{w.more}</Accordion.Control>
          <Accordion.Panel>
            <Stack gap="sm">
              <SimpleGrid cols={{ base: 1, xs: 2, lg: 3 }} spacing="sm">
                {line("limits.time", w.time, w.timeHint)}
                {line("retry.times", w.retries, "3", valueOf)}
                {line("retry.on", w.retryOn, w.retryOnHint, listOf)}
                <Autocomplete
                  label={w.queue}
                  placeholder="default"
                  data={(queues.data?.items ?? []).map((each) => each.name)}
                  value={textAt(spec, ["queue", "name"])}
                  onChange={(text) => set(["queue", "name"], text || undefined)}
                  error={errors["queue.name"]}
                />
                {line("queue.priority", w.priority, w.priorityHint, valueOf)}
                <Select
                  label={w.work}
                  data={(["train", "notebook", "serve"] as const).map((value) => ({ value, label: w.works[value] }))}
                  value={textAt(spec, ["work"]) || "train"}
                  onChange={(value) => set(["work"], value === "train" ? undefined : (value ?? undefined))}
                  allowDeselect={false}
                  error={errors.work}
                />
                {line("after", w.after, w.afterHint, listOf)}
                {line("begin", w.begin, w.beginHint)}
                <Select
                  label={w.near}
                  data={(["none", "host", "rack", "block"] as const).map((value) => ({ value, label: w.nears[value] }))}
                  value={level || "none"}
                  onChange={(value) => set(["placement", "level"], value === "none" ? undefined : (value ?? undefined))}
                  allowDeselect={false}
                  error={errors.placement}
                />
                {line("environment.python", w.python, w.pythonHint)}
                <TagsInput
                  label={w.secrets}
                  placeholder={w.secretsHint}
                  data={(secrets.data?.items ?? []).map((each) => each.name)}
                  value={listAt(spec, ["environment", "secrets"])}
                  onChange={(list) => set(["environment", "secrets"], list.length ? list : undefined)}
                  error={errors["environment.secrets"]}
                />
              </SimpleGrid>
              <TypedText
                label={`${w.env} (${w.perLine})`}
                placeholder={w.envHint}
                value={linesAt(spec, ["environment", "vars"])}
                commit={(text) => set(["environment", "vars"], mappingOf(text, true))}
                error={errors["environment.vars"]}
              />
              <Checkbox label={w.hold} checked={spec.hold === true} onChange={(event) => set(["hold"], event.currentTarget.checked || undefined)} />
              <Checkbox
                label={w.fixed}
                checked={at(spec, ["queue", "preemptible"]) === false}
                onChange={(event) => set(["queue", "preemptible"], event.currentTarget.checked ? false : undefined)}
              />
            </Stack>
          </Accordion.Panel>
        </Accordion.Item>
      </Accordion>
    </Stack>
  );
}

function listAt(spec: Spec, path: Path): string[] {
  const found = at(spec, path);
  return Array.isArray(found) ? found.map(String) : [];
}
