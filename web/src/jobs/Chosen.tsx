/** What can be done with the chosen jobs, and what the server answered for each. */
import { Button, Group, Text } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";

import { api, got } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { count } from "../i18n/format";
import { Icon } from "../look/Icon";
import { words as lookWords } from "../look/words";
import { useWho } from "../shell/who";
import type { Row } from "./columns";
import css from "./jobs.module.css";
import { words } from "./words";

type Verb = "stop" | "rerun" | "remove";
interface Answer {
  ref: string;
  name: string;
  said: string;
  fine: boolean;
  /** The job that came of it. */
  made?: { id: string; name: string };
}

const AT_ONCE = 4;

export function Chosen({ chosen, most, rows, compare, clear }: {
  chosen: readonly string[];
  most: number;
  rows: readonly Row[];
  compare: () => void;
  clear: () => void;
}): ReactNode {
  const w = useWords(words);
  const look = useWords(lookWords);
  const { language } = useLanguage();
  const who = useWho();
  const queries = useQueryClient();
  const [asking, setAsking] = useState<Verb | null>(null);
  const [busy, setBusy] = useState<Verb | null>(null);
  const [answers, setAnswers] = useState<{ verb: Verb; list: Answer[] } | null>(null);
  const known = new Map(rows.map((row) => [row.id.slice(0, 12), row]));
  const others = !who.may("job.write-any") && chosen.some((ref) => (known.get(ref)?.user ?? who.user) !== who.user);
  const many = count(chosen.length, language);

  const act = async (verb: Verb): Promise<void> => {
    setAsking(null);
    setBusy(verb);
    const list: Answer[] = [];
    const left = [...chosen];
    const one = async (): Promise<void> => {
      for (let ref = left.shift(); ref; ref = left.shift()) {
        list.push(await asked(verb, ref, known.get(ref)?.name ?? ref, w.done[verb], look.states));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, one));
    list.sort((one, other) => chosen.indexOf(one.ref) - chosen.indexOf(other.ref));
    setAnswers({ verb, list });
    setBusy(null);
    void queries.invalidateQueries({ queryKey: ["jobs"] });
  };
  const button = (verb: Verb, icon: "stop" | "again" | "trash"): ReactNode => (
    <Button
      size="xs"
      variant="default"
      leftSection={<Icon name={icon} size={14} />}
      loading={busy === verb}
      disabled={busy !== null}
      onClick={() => (verb === "rerun" ? void act(verb) : setAsking(verb))}
    >
      {w[verb]}
    </Button>
  );

  return (
    <section className={css.chosen} aria-label={w.chosenOf}>
      <Group gap="xs" justify="space-between">
        <Group gap="xs">
          <Text size="sm" fw={600} role="status">
            {w.chosen(many)}
          </Text>
          {chosen.length >= most && (
            <Text size="xs" c="dimmed">
              {w.mostChosen(many)}
            </Text>
          )}
          <Button size="xs" leftSection={<Icon name="compare" size={14} />} onClick={compare}>
            {w.compare}
          </Button>
          {who.may("job.write") && (
            <>
              {button("stop", "stop")}
              {button("rerun", "again")}
              {button("remove", "trash")}
            </>
          )}
        </Group>
        <Button size="xs" variant="subtle" color="gray" onClick={clear}>
          {w.letGo}
        </Button>
      </Group>
      {others && who.may("job.write") && (
        <Text size="xs" c="dimmed" mt={4}>
          {w.others}
        </Text>
      )}
      {asking && asking !== "rerun" && (
        <Group gap="xs" mt={8}>
          <Text size="sm">{asking === "stop" ? w.stopSure(many) : w.removeSure(many)}</Text>
          <Button size="xs" color="red" onClick={() => void act(asking)} autoFocus>
            {asking === "stop" ? w.yesStop : w.yesRemove}
          </Button>
          <Button size="xs" variant="default" onClick={() => setAsking(null)}>
            {w.no}
          </Button>
        </Group>
      )}
      {answers && (
        <div role="status">
          <Group justify="space-between" mt={6}>
            <Text size="xs" c="dimmed">
              {w.answers}
            </Text>
            <Button size="compact-xs" variant="subtle" color="gray" onClick={() => setAnswers(null)}>
              {w.close}
            </Button>
          </Group>
          <ul className={css.answers}>
            {answers.list.map((each) => (
              <li key={each.ref}>
                <Icon name={each.fine ? "check" : "close"} size={12} /> <b>{each.name}</b>: {each.said}{" "}
                {each.made && (
                  <Link to="/jobs/$job" params={{ job: each.made.id }}>
                    {each.made.name}
                  </Link>
                )}
              </li>
            ))}
          </ul>
        </div>
      )}
    </section>
  );
}

async function asked(verb: Verb, ref: string, name: string, done: string, states: Readonly<Record<string, string>>): Promise<Answer> {
  const params = { path: { ref } };
  try {
    if (verb === "remove") await got(api.DELETE("/api/v1/jobs/{ref}", { params }));
    else if (verb === "stop") {
      const job = await got(api.POST("/api/v1/jobs/{ref}/stop", { params, body: { reason: "", now: false } }));
      return { ref, name: job.name, fine: true, said: job.wish ? done : `${states[job.state] ?? job.state}: ${job.reason}` };
    } else {
      const job = await got(api.POST("/api/v1/jobs/{ref}/rerun", { params, body: { params: {}, changes: {} } }));
      return { ref, name, fine: true, said: done, made: { id: job.id, name: job.name } };
    }
    return { ref, name, fine: true, said: done };
  } catch (error) {
    return { ref, name, fine: false, said: error instanceof Error ? error.message : String(error) };
  }
}
