/** Things that are done from a page: a call, its refusal, and the question before a dangerous one. */
import { Alert, Button, Code, Group, Stack, Text, TextInput, type ButtonProps } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";

import { useWords } from "../i18n";
import { words } from "./actWords";
import { Command, Copy } from "./Command";
import { Told } from "./Told";

export interface Act<V, T> {
  run: (what: V) => void;
  busy: boolean;
  error: unknown;
  /** What the last call that went well answered. */
  made: T | undefined;
  reset: () => void;
}

/** One call. When it went well the queries that begin with a word of `stale` are asked anew. */
export function useAct<V = void, T = unknown>(
  call: (what: V) => Promise<T>,
  stale: readonly string[],
  then?: (answer: T, what: V) => void,
): Act<V, T> {
  const queries = useQueryClient();
  const made = useMutation({
    mutationFn: call,
    retry: false,
    onSuccess: async (answer, what) => {
      then?.(answer, what);
      await Promise.all(stale.map((key) => queries.invalidateQueries({ queryKey: [key] })));
    },
  });
  return { run: made.mutate, busy: made.isPending, error: made.error, made: made.data, reset: made.reset };
}

/** A button for what cannot be taken back: asks once, in its place; with `name` by typing it. */
export function Sure({ label, ask, name, act, busy, error, line, color = "red", children, ...rest }: {
  label: string;
  ask: string;
  name?: string;
  act: () => void;
  busy: boolean;
  error: unknown;
  line?: string;
  children?: ReactNode;
} & ButtonProps): ReactNode {
  const w = useWords(words);
  const [open, setOpen] = useState(false);
  const [typed, setTyped] = useState("");
  const close = (): void => {
    setOpen(false);
    setTyped("");
  };
  if (!open) {
    return (
      <Button size="xs" variant="subtle" color={color} onClick={() => setOpen(true)} {...rest}>
        {label}
      </Button>
    );
  }
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!name || typed === name) act();
  };
  return (
    <form onSubmit={submit} aria-label={label}>
      <Stack gap={6} p="xs" maw={420} style={{ border: "1px solid var(--line)", borderRadius: 8, whiteSpace: "normal" }}>
        <Text size="sm">{ask}</Text>
        {name && (
          <TextInput
            size="xs"
            label={w.typeName(name)}
            value={typed}
            onChange={(event) => setTyped(event.currentTarget.value)}
            autoComplete="off"
            data-autofocus
            autoFocus
          />
        )}
        {children}
        {Boolean(error) && <Told error={error} />}
        <Group gap="xs">
          <Button size="xs" type="submit" color={color} disabled={Boolean(name) && typed !== name} loading={busy} autoFocus={!name}>
            {name ? label : w.yes}
          </Button>
          <Button size="xs" variant="default" onClick={close}>
            {w.no}
          </Button>
        </Group>
        {line && <Cli line={line} />}
      </Stack>
    </form>
  );
}

/** The same in a terminal: every form ends with it. */
export function Cli({ line }: { line: string }): ReactNode {
  const w = useWords(words);
  return (
    <div>
      <Text size="xs" c="dimmed" mb={2}>
        {w.cli}
      </Text>
      <Command line={line} />
    </div>
  );
}

/** A secret that is shown this once. */
export function Once({ title, parts, close }: {
  title: string;
  parts: readonly (readonly [label: string, text: string])[];
  close: () => void;
}): ReactNode {
  const w = useWords(words);
  return (
    <Alert color="sea" variant="light" title={title} my="sm" role="status" data-testid="once">
      <Stack gap={6}>
        {parts.map(([label, text]) => (
          <div key={label}>
            <Text size="xs" c="dimmed">
              {label}
            </Text>
            <Group gap={4} wrap="nowrap">
              <Code style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>{text}</Code>
              <Copy text={text} label={label} />
            </Group>
          </div>
        ))}
        <Text size="sm">{w.shownOnce}</Text>
        <Group>
          <Button size="xs" variant="default" onClick={close}>
            {w.copied}
          </Button>
        </Group>
      </Stack>
    </Alert>
  );
}
