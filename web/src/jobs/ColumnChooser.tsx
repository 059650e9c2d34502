/** Which columns there are: facts of the job, any parameter, any metric as last, min or max. */
import { Button, Checkbox, Popover, ScrollArea, Select, Stack, Text, TextInput } from "@mantine/core";
import { useState, type ReactNode } from "react";

import { useWords } from "../i18n";
import { Icon } from "../look/Icon";
import { FACTS, type Column } from "./columns";
import { keyed } from "./filter";
import { useKeyNames } from "./FilterBox";
import { words } from "./words";

const MOST_KEYS = 200;

export function ColumnChooser({ columns, change }: {
  columns: readonly Column[];
  change: (columns: string | undefined) => void;
}): ReactNode {
  const w = useWords(words);
  const keys = useKeyNames();
  const [looked, setLooked] = useState("");
  const has = new Set(columns.map((each) => each.word));
  const toggle = (word: string): void => {
    const kept = columns.map((each) => each.word);
    const after = has.has(word) ? kept.filter((each) => each !== word) : [...kept, word];
    change(after.join(",") || "none");
  };
  const wanted = (key: string): boolean => key.toLowerCase().includes(looked.trim().toLowerCase());
  const box = (word: string, label: string, bare = false): ReactNode => (
    <Checkbox key={word} size="xs" label={label} aria-label={bare ? word : undefined} checked={has.has(word)} onChange={() => toggle(word)} />
  );
  const params = keys.params.filter(wanted).slice(0, MOST_KEYS);
  const metrics = keys.metrics.filter(wanted).slice(0, MOST_KEYS);
  return (
    <Popover position="bottom-end" width={320} trapFocus shadow="md">
      <Popover.Target>
        <Button variant="default" leftSection={<Icon name="columns" />}>
          {w.columns}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <TextInput size="xs" aria-label={w.columnsHint} placeholder={w.columnsHint} value={looked} onChange={(event) => setLooked(event.currentTarget.value)} mb="xs" />
        <ScrollArea.Autosize mah={380} type="auto">
          <Stack gap={6} pr="sm">
            {metrics.length > 0 && <Text size="xs" fw={600}>{w.metrics}</Text>}
            {metrics.map((key) => (
              <div key={key}>
                <Text size="sm" className="mono clip">
                  {key}
                </Text>
                <div style={{ display: "flex", gap: 14, margin: "2px 0 4px 2px" }}>
                  {box(keyed("metrics", key), w.last, true)}
                  {box(keyed("min", key), w.min, true)}
                  {box(keyed("max", key), w.max, true)}
                </div>
              </div>
            ))}
            {params.length > 0 && <Text size="xs" fw={600}>{w.params}</Text>}
            {params.map((key) => box(keyed("params", key), key))}
            {!keys.params.length && !keys.metrics.length && <Text size="xs" c="dimmed">{w.noKeys}</Text>}
            <Text size="xs" fw={600}>{w.facts}</Text>
            {FACTS.filter((each) => wanted(w.fact[each]) || wanted(each)).map((each) => box(each, w.fact[each]))}
          </Stack>
        </ScrollArea.Autosize>
        <Button size="xs" variant="subtle" mt="xs" onClick={() => change(undefined)}>
          {w.usual}
        </Button>
      </Popover.Dropdown>
    </Popover>
  );
}

/** The metric that is drawn small in each row. */
export function CurveChooser({ chosen, change }: { chosen: string | undefined; change: (key: string | undefined) => void }): ReactNode {
  const w = useWords(words);
  const keys = useKeyNames();
  const known = chosen && !keys.metrics.includes(chosen) ? [chosen, ...keys.metrics] : keys.metrics;
  if (!known.length) return null;
  return (
    <Select
      aria-label={w.curve}
      placeholder={w.curve}
      data={known.slice(0, MOST_KEYS)}
      value={chosen ?? null}
      onChange={(key) => change(key ?? undefined)}
      clearable
      searchable
      w={130}
      visibleFrom="sm"
      clearButtonProps={{ "aria-label": w.noCurve }}
    />
  );
}
