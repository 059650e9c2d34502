/** Where conditions are written: each becomes a chip; a wrong one is told by the server, here. */
import { Autocomplete, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type KeyboardEvent, type ReactNode } from "react";

import { api, got, Refused } from "../api/client";
import { useWords } from "../i18n";
import { Icon } from "../look/Icon";
import { condition, conditions, joined, keyed } from "./filter";
import css from "./jobs.module.css";
import { words } from "./words";

const FACTS = [
  "name ilike ", "state = ", "user = ", "queue = ", "framework = ", "gpus >= ", "members > ", "priority > ", "duration > ",
  "submitted > ", "outcome = ", "exit_code = ", "reason ilike ", "work = ",
]; // prettier-ignore
const MOST_OFFERED = 12;

export function useKeyNames(): { params: readonly string[]; metrics: readonly string[] } {
  const { data } = useQuery({ queryKey: ["runs", "keys"], queryFn: () => got(api.GET("/api/v1/runs/keys")) });
  return { params: data?.params ?? [], metrics: data?.metrics ?? [] };
}

export function FilterBox({ filter, error, change }: {
  filter: string;
  error: unknown;
  change: (filter: string | undefined) => void;
}): ReactNode {
  const w = useWords(words);
  const [typed, setTyped] = useState("");
  const keys = useKeyNames();
  const chips = conditions(filter);
  const offered = [
    ...FACTS,
    ...keys.metrics.flatMap((key) => [`${keyed("metrics", key)} < `, `${keyed("max", key)} > `]),
    ...keys.params.map((key) => `${keyed("params", key)} = `),
  ];
  const refused = error instanceof Refused && error.status < 500 && filter ? error : null;

  const apply = (text: string): void => {
    const more = condition(text);
    if (!more) return;
    change(joined([...chips, more]));
    setTyped("");
  };
  const pressed = (event: KeyboardEvent<HTMLInputElement>): void => {
    const choosing = event.currentTarget.getAttribute("aria-activedescendant");
    if (event.key === "Enter" && !choosing) apply(typed);
    else if (event.key === "Escape") event.currentTarget.blur();
    else if (event.key === "Backspace" && !typed && chips.length) {
      event.preventDefault();
      edit(chips.length - 1);
    }
  };
  const edit = (n: number): void => {
    setTyped(chips[n] ?? "");
    change(joined(chips.filter((_, other) => other !== n)));
    document.getElementById("job-filter")?.focus();
  };

  return (
    <div className={css.filter}>
      <Autocomplete
        id="job-filter"
        aria-label={w.filter}
        aria-description={w.filterHelp}
        placeholder={w.filterHint}
        leftSection={<Icon name="filter" />}
        rightSection={<kbd className="mono quiet">/</kbd>}
        value={typed}
        onChange={setTyped}
        onKeyDown={pressed}
        data={offered}
        limit={MOST_OFFERED}
        filter={({ options, search, limit }) =>
          search ? options.filter((each) => "value" in each && each.value.includes(search) && each.value !== search).slice(0, limit) : []
        }
        error={refused ? refused.message : undefined}
        autoComplete="off"
        spellCheck={false}
        size="sm"
      />
      {refused?.hint && (
        <Text size="xs" c="dimmed" mt={4}>
          {refused.hint}
        </Text>
      )}
      {chips.length > 0 && (
        <div className={css.chips}>
          {chips.map((chip, n) => (
            <span key={`${n} ${chip}`} className={`${css.chip} mono`}>
              <button type="button" className="clip" onClick={() => edit(n)} aria-label={w.edit(chip)}>
                {chip}
              </button>
              <button type="button" aria-label={w.takeOut(chip)} onClick={() => change(joined(chips.filter((_, other) => other !== n)))}>
                <Icon name="close" size={12} />
              </button>
            </span>
          ))}
        </div>
      )}
    </div>
  );
}
