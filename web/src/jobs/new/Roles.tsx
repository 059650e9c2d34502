/** The parts of the gang: how many members each has, and what a member gets. */
import { ActionIcon, Box, Button, Fieldset, Group, NativeSelect, SimpleGrid, Text, TextInput } from "@mantine/core";
import { useState, type FormEvent, type ReactNode } from "react";

import { useWords } from "../../i18n";
import { Icon } from "../../look/Icon";
import { at, type Spec } from "./document";
import type { FieldsProps } from "./Fields";
import { TypedLine } from "./Typed";
import { commandOf, listOf, rolesOf, textAt, valueOf } from "./values";
import { words } from "./words";

const FINISHES = ["all", "first", "never"] as const;

/** Places of roles that an error can stand at. */
export function roleFields(spec: Spec | null): string[] {
  return rolesOf(spec).flatMap(({ name }) =>
    ["count", "gpus", "cpus", "memory", "nproc", "min", "gpu_model", "finish", "run"].map((field) => `roles.${name}.${field}`),
  );
}

export function Roles({ spec, set, errors }: FieldsProps): ReactNode {
  const w = useWords(words);
  const [adding, setAdding] = useState<string | null>(null);
  const roles = rolesOf(spec);
  const several = roles.length > 1 || roles[0]?.name !== "worker";
  const shorthand = spec.workers !== undefined;
  const change = (role: string, field: string, value: unknown): void => {
    if (role === "worker" && shorthand && field === "count") {
      set(["workers"], undefined);
    }
    set(["roles", role, field], value);
  };
  const add = (event: FormEvent): void => {
    event.preventDefault();
    const name = (adding ?? "").trim();
    if (!name) return;
    for (const each of roles) if (at(spec, ["roles", each.name]) === undefined) set(["roles", each.name, "count"], 1);
    set(["roles", name, "count"], 1);
    setAdding(null);
  };
  const field = (role: string, name: string, label: string, hint: string, typed: (text: string) => unknown = valueOf): ReactNode => (
    <TypedLine
      label={label}
      placeholder={hint}
      value={name === "run" ? commandOf(at(spec, ["roles", role, "run"])) : name === "count" && role === "worker" && shorthand ? textAt(spec, ["workers"]) : textAt(spec, ["roles", role, name])}
      commit={(text) => change(role, name, text.trim() === "" ? undefined : typed(text.trim()))}
      error={errors[`roles.${role}.${name}`]}
      data-field={`roles.${role}.${name}`}
    />
  );
  return (
    <Fieldset legend={w.resources} radius="md" p="sm">
      {roles.map(({ name, role }) => (
        <Box key={name} mb="sm">
          {several && (
            <Group gap={6} mb={4}>
              <Text size="sm" fw={600} className="mono">
                {name}
              </Text>
              <ActionIcon variant="subtle" color="gray" aria-label={w.removeRole(name)} onClick={() => set(["roles", name], undefined)}>
                <Icon name="close" size={14} />
              </ActionIcon>
            </Group>
          )}
          <SimpleGrid cols={{ base: 2, xs: 4 }} spacing="xs" verticalSpacing="xs">
            {field(name, "count", w.count, "1")}
            {field(name, "gpus", w.gpus, "0")}
            {field(name, "cpus", w.cpus, "0")}
            {field(name, "memory", w.memory, "8GiB", (text) => text)}
            {field(name, "nproc", w.nproc, String(role.gpus || 1))}
            {field(name, "gpu_model", w.gpuModel, w.anyModel, listOf)}
            {several && (
              <NativeSelect
                label={w.finish}
                value={textAt(spec, ["roles", name, "finish"])}
                data={[{ value: "", label: w.finishes.none }, ...FINISHES.map((value) => ({ value: value as string, label: w.finishes[value] }))]}
                onChange={(event) => change(name, "finish", event.currentTarget.value || undefined)}
                error={errors[`roles.${name}.finish`]}
              />
            )}
          </SimpleGrid>
          {several && <Box mt="xs">{field(name, "run", w.roleCommand, w.commandHint, (text) => text)}</Box>}
        </Box>
      ))}
      {adding === null ? (
        <Button size="compact-sm" variant="subtle" leftSection={<Icon name="plus" size={14} />} onClick={() => setAdding("")}>
          {w.addRole}
        </Button>
      ) : (
        <form onSubmit={add}>
          <Group gap="xs" align="flex-end">
            <TextInput size="xs" label={w.roleName} placeholder="ps" value={adding} onChange={(event) => setAdding(event.currentTarget.value)} autoFocus autoComplete="off" />
            <Button size="xs" type="submit" disabled={!adding.trim()}>
              {w.addRole}
            </Button>
          </Group>
        </form>
      )}
    </Fieldset>
  );
}
