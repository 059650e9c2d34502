/** The jobs that are compared: one colour each; pin one, take one out, add others. */
import { ActionIcon, Button, TextInput, Tooltip } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useState, type FormEvent, type ReactNode } from "react";

import { lit, useHovered } from "../charts/hover";
import { useTheme } from "../charts/ink";
import { useLanguage, useWords } from "../i18n";
import { count } from "../i18n/format";
import { strokes } from "../look/colours";
import { Icon } from "../look/Icon";
import { JobPicker } from "../look/JobPicker";
import { useUrl } from "../look/url";
import css from "./compare.module.css";
import type { Side } from "./sides";
import { words } from "./words";

/** So many are listed at once; more are folded. */
const LISTED = 24;

export function Chosen({ sides, setJobs }: { sides: readonly Side[]; setJobs: (ids: readonly string[]) => void }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const theme = useTheme();
  const hovered = useHovered();
  const [url, change] = useUrl();
  const [open, setOpen] = useState(false);
  const styles = strokes(sides.map((side) => side.id), theme);
  const seen = open || sides.length <= LISTED ? sides : sides.slice(0, LISTED);
  return (
    <>
      <ul className={css.chips} aria-label={w.jobs(count(sides.length, language))} tabIndex={sides.length > LISTED ? 0 : undefined}>
        {seen.map((side, at) => {
          const base = at === 0 && Boolean(url.base);
          const style = styles.get(side.id);
          return (
            <li key={side.id} className={css.chip} data-lit={hovered === side.id || undefined} data-base={base || undefined} {...lit(side.id)}>
              <span className={css.swatch} style={{ borderColor: style?.colour, borderTopStyle: !style?.dash.length ? "solid" : (style.dash[0] ?? 0) < 4 ? "dotted" : "dashed" }} />
              <Link to={`/jobs/${side.id}` as never} className="clip">
                {side.name}
              </Link>
              <Tooltip label={base ? w.unpin(side.name) : w.pin(side.name)}>
                <ActionIcon
                  size={24}
                  variant={base ? "light" : "subtle"}
                  color={base ? "sea" : "gray"}
                  aria-label={w.pin(side.name)}
                  aria-pressed={base}
                  onClick={() => change({ base: base ? undefined : side.id })}
                >
                  <Icon name="pin" size={13} />
                </ActionIcon>
              </Tooltip>
              <ActionIcon
                size={24}
                variant="subtle"
                color="gray"
                aria-label={w.remove(side.name)}
                onClick={() => setJobs(sides.filter((each) => each !== side).map((each) => each.id))}
              >
                <Icon name="close" size={13} />
              </ActionIcon>
            </li>
          );
        })}
      </ul>
      {sides.length > LISTED && (
        <Button size="compact-xs" variant="subtle" mb="xs" onClick={() => setOpen(!open)}>
          {open ? w.hide : w.showMore(count(sides.length, language))}
        </Button>
      )}
    </>
  );
}

export function Add({ chosen, setJobs }: { chosen: readonly Side[]; setJobs: (ids: readonly string[]) => void }): ReactNode {
  const w = useWords(words);
  const [url, change] = useUrl();
  const [times, setTimes] = useState(0);
  const [text, setText] = useState(url.where ?? "");
  const ids = chosen.map((side) => side.id);
  const find = (event: FormEvent): void => {
    event.preventDefault();
    change({ where: text, jobs: undefined, from: undefined, base: undefined });
  };
  return (
    <div className={css.add}>
      <JobPicker
        key={times}
        size="xs"
        label={w.addJob}
        placeholder={w.addJob}
        chosen={null}
        without={ids}
        onChoose={(job) => {
          if (!job) return;
          setJobs([...ids, job.id]);
          setTimes(times + 1); // empties the box
        }}
        w={230}
      />
      <form onSubmit={find} style={{ display: "flex", gap: 6, alignItems: "end", flex: "1 1 260px", maxWidth: 520 }}>
        <TextInput
          size="xs"
          label={w.where}
          placeholder={w.wherePlaceholder}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
          style={{ flex: 1 }}
          styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)" } }}
        />
        <Button size="xs" variant="default" type="submit" disabled={!text.trim()}>
          {w.whereButton}
        </Button>
      </form>
    </div>
  );
}
