/** ⌘K: any page, job, study or model, by a few letters. */
import { Modal, Text, TextInput, UnstyledButton } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState, type KeyboardEvent, type ReactNode } from "react";

import { api, got } from "../api/client";
import { useWords } from "../i18n";
import { Icon, type IconName } from "../look/Icon";
import { PLACES } from "./Shell";
import { useWho } from "./who";
import { words } from "./words";

interface Found {
  key: string;
  icon: IconName;
  label: string;
  more: string;
  to: string;
}

export default function Palette({ close }: { close: () => void }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const [asked] = useDebouncedValue(text.trim(), 120);
  const [at, setAt] = useState(0);
  const { data } = useQuery({
    queryKey: ["palette", asked],
    queryFn: () => find(asked),
    enabled: asked.length > 0 && who.may("job.read"),
    placeholderData: (before) => before,
  });
  const places: Found[] = PLACES.flatMap((each) => each.places)
    .filter((each) => !each.right || who.may(each.right))
    .map((each) => ({ key: each.to, icon: each.word as IconName, label: w[each.word], more: "", to: each.to }))
    .filter((each) => each.label.toLowerCase().includes(text.trim().toLowerCase()));
  const all = [...places, ...(asked ? (data ?? []) : [])].slice(0, 24);

  const go = (found: Found): void => {
    close();
    void navigate({ to: found.to });
  };
  const pressed = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const chosen = all[at];
    if (step && all.length) {
      event.preventDefault();
      setAt((at + step + all.length) % all.length);
    } else if (event.key === "Enter" && chosen) {
      event.preventDefault();
      go(chosen);
    }
  };

  return (
    <Modal opened onClose={close} withCloseButton={false} padding="xs" size="lg" yOffset="10vh" aria-label={w.search}>
      <TextInput
        data-autofocus
        role="combobox"
        aria-label={w.search}
        aria-expanded
        aria-controls="palette-list"
        aria-activedescendant={all[at] ? `palette-${at}` : undefined}
        placeholder={w.searchHint}
        leftSection={<Icon name="search" />}
        value={text}
        onChange={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={pressed}
      />
      <div id="palette-list" role="listbox" aria-label={w.search} style={{ marginTop: 8 }}>
        {all.map((each, n) => (
          <UnstyledButton
            key={each.key}
            id={`palette-${n}`}
            role="option"
            aria-selected={n === at}
            tabIndex={-1}
            onMouseMove={() => setAt(n)}
            onClick={() => go(each)}
            px="sm"
            py={6}
            w="100%"
            style={{
              display: "flex", gap: 10, alignItems: "center", borderRadius: 6,
              background: n === at ? "var(--mantine-color-default-hover)" : undefined,
            }}
          >
            <Icon name={each.icon} />
            <Text size="sm" className="clip">
              {each.label}
            </Text>
            <Text size="xs" c="dimmed" className="clip" style={{ flex: 1 }}>
              {each.more}
            </Text>
          </UnstyledButton>
        ))}
      </div>
      {!all.length && (
        <Text size="sm" c="dimmed" p="sm">
          {w.nothing}
        </Text>
      )}
    </Modal>
  );
}

async function find(text: string): Promise<Found[]> {
  const has = (name: string): boolean => name.toLowerCase().includes(text.toLowerCase());
  const [jobs, studies, models] = await Promise.all([
    got(api.GET("/api/v1/jobs", { params: { query: { limit: 200 } } })),
    got(api.GET("/api/v1/studies")),
    got(api.GET("/api/v1/models")),
  ]);
  return [
    ...jobs.items.filter((each) => has(each.name) || has(each.id)).slice(0, 8).map((each) => ({
      key: each.id, icon: "jobs" as const, label: each.name, more: each.reason, to: `/jobs/${each.id}`,
    })),
    ...studies.items.filter((each) => has(each.name)).slice(0, 5).map((each) => ({
      key: each.id, icon: "studies" as const, label: each.name, more: each.reason, to: `/studies/${each.id}`,
    })),
    ...models.items.filter((each) => has(each.name)).slice(0, 5).map((each) => ({
      key: each.name, icon: "models" as const, label: each.name, more: each.description, to: `/models/${each.name}`,
    })),
  ]; // prettier-ignore
}
