/** The Logs tab: like a good terminal. */
import { ActionIcon, Button, Group, Loader, Menu, Select, Text, TextInput, Tooltip } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, useMemo, useRef, useState, useSyncExternalStore, type ReactNode } from "react";

import { useTheme } from "../../../charts/ink";
import { useLanguage, useWords } from "../../../i18n";
import { bytes, count } from "../../../i18n/format";
import { PALETTE } from "../../../look/colours";
import { Icon, type IconName } from "../../../look/Icon";
import { save } from "../../../look/save";
import { Told } from "../../../look/Told";
import { useUrl } from "../../../look/url";
import { useKeys } from "../../../shell/keys";
import { isOver, type Detail } from "../asking";
import { ranksOf } from "../ranks";
import { plain } from "./ansi";
import css from "./logs.module.css";
import { pattern } from "./mark";
import { ERROR, firstLines, logQuery } from "./read";
import { Row, type RowLook } from "./Row";
import { useLog } from "./useLog";
import { useSearch } from "./useSearch";
import { keyOf, lineName, parseLine, type LogLine } from "./window";
import { words } from "./words";

const MOST_LANES = 6;

export default function Logs({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const theme = useTheme();
  const [url, change] = useUrl();
  const narrow = useMediaQuery("(max-width: 40em)", window.innerWidth < 640, { getInitialValueInEffect: false });

  const [newest] = useState(job.attempt);
  const attempt = Number(url.attempt) || newest;
  const filter = { rank: url.rank ?? "", stream: url.stream ?? "", attempt };
  const target = useMemo(() => parseLine(url.line ?? ""), [url.line]);
  const newestIsShown = !url.attempt || Number(url.attempt) >= job.attempt;
  const log = useLog(job.id, newestIsShown && !isOver(job.state), filter, target);
  useSyncExternalStore(log.window.subscribe, log.window.now);

  const text = url.q ?? "";
  const caseful = url.case === "1";
  const wanted = { attempt, rank: filter.rank || undefined, stream: filter.stream || undefined };
  const [found, foundMore] = useSearch(job.id, wanted, text, caseful);
  const search = useMemo(() => pattern(text, caseful), [text, caseful]);
  const only = url.only === "1" && text !== "";

  const lines = only ? found.lines : log.window.lines;
  const wraps = url.wrap !== "0";
  const times = (url.times ?? (narrow ? "0" : "1")) === "1";
  const expected = useMemo(() => ranksOf(job.spec).map((each) => each.name), [job.spec]);
  const lanes = url.lanes === "1" && expected.length > 1 && expected.length <= MOST_LANES && !filter.rank ? expected : null;

  const [following, setFollowing] = useState(!target);
  const [told, setTold] = useState("");
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => 20,
    getItemKey: (at) => keyOf(lines[at] as LogLine),
    overscan: 20,
  });

  // New lines at the end: seen when one follows, left alone when one reads.
  const seen = useRef(0);
  useLayoutEffect(() => {
    if (following && !only) log.window.trim();
    if (following && lines.length) rows.scrollToIndex(lines.length - 1, { align: "end" });
  });
  useEffect(() => {
    if (!search || !log.window.toEnd) return;
    const fresh = log.window.lines.slice(-200).filter((line) => line.at >= seen.current && hits(search, line));
    seen.current = log.window.lines.at(-1)?.at ?? 0;
    if (fresh.length) foundMore(fresh);
  }); // prettier-ignore

  // The line in the address: gone to when it changes, and when what is around it was read.
  const gone = useRef("");
  useEffect(() => {
    if (!target || gone.current === url.line) return;
    const place = only
      ? lines.findIndex((line) => line.offset === target.offset && line.rank === target.rank && line.stream === target.stream)
      : log.window.find(target);
    if (place >= 0) {
      gone.current = url.line ?? "";
      rows.scrollToIndex(place, { align: "center" });
    } else if (!log.reading && !only && log.window.lines.length) {
      gone.current = url.line ?? "";
      void log.goTo(target).then(() => {
        const now = log.window.find(target);
        setTold(now < 0 ? w.lineGone : "");
        if (now >= 0) requestAnimationFrame(() => rows.scrollToIndex(now, { align: "center" }));
      });
    }
  });

  const goTo = (line: LogLine): void => {
    setFollowing(false);
    setTold("");
    change({ line: lineName(line) }, true);
  };
  const chosen = target ? found.lines.findIndex((line) => line.offset === target.offset && line.rank === target.rank && line.stream === target.stream) : -1;
  const step = (by: 1 | -1): void => {
    if (!found.lines.length) return;
    const from = chosen >= 0 ? chosen : by > 0 ? -1 : 0;
    goTo(found.lines[(from + by + found.lines.length) % found.lines.length] as LogLine);
  };
  const firstError = (): void => {
    setTold("");
    const abort = new AbortController();
    firstLines(job.id, { ...wanted, grep: ERROR }, 1, abort.signal).then(
      ({ lines: [line] }) => (line ? goTo(line) : setTold(w.noError)),
      (error: unknown) => setTold(error instanceof Error ? error.message : String(error)),
    );
  };
  const more = async (): Promise<void> => {
    setFollowing(false);
    const top = rows.getVirtualItems()[0]?.index ?? 0;
    const came = await log.older();
    if (came) requestAnimationFrame(() => rows.scrollToIndex(top + came, { align: "start" }));
  };
  const toEnd = (): void => {
    change({ line: undefined }, true);
    if (!log.window.toEnd) void log.toEnd();
    setFollowing(true);
  };
  const toStart = (): void => {
    setFollowing(false);
    change({ line: undefined }, true);
    const go = (): void => rows.scrollToIndex(0);
    if (log.window.fromStart) go();
    else void log.toStart().then(() => requestAnimationFrame(go));
  };
  const input = useRef<HTMLInputElement>(null);
  useKeys({ "/": () => input.current?.focus(), n: () => step(1), N: () => step(-1), e: firstError, f: toEnd });

  const look = useMemo<RowLook>(() => {
    const palette = PALETTE[theme];
    const several = expected.length > 1 && !filter.rank;
    return {
      theme, times, lanes, search,
      labels: several ? new Map(expected.map((name) => [name, shortened(name, expected)])) : null,
      colours: new Map(expected.map((name, at) => [name, palette[at % palette.length] as string])),
      words: w, count: (value) => count(value, language), bytes: (value) => bytes(value, language),
    }; // prettier-ignore
  }, [theme, times, lanes, search, expected, filter.rank, w, language]);
  const columns = lanes
    ? `auto repeat(${lanes.length}, minmax(${narrow ? "60vw" : "320px"}, 1fr))`
    : look.labels ? "auto auto minmax(0, 1fr)" : "auto minmax(0, 1fr)"; // prettier-ignore
  const linkTo = (line: LogLine): string => {
    const query = new URLSearchParams({ ...url, line: lineName(line) });
    return `${location.pathname}?${query.toString()}`;
  };

  return (
    <section aria-label={w.log}>
      <Group gap="xs" mb="xs" align="center">
        <form
          className={css.search}
          role="search"
          onSubmit={(event) => {
            event.preventDefault();
            const typed = input.current?.value ?? "";
            if (typed === text) step(1);
            else change({ q: typed || undefined, line: undefined });
          }}
        >
          <TextInput
            ref={input}
            key={text}
            defaultValue={text}
            size="xs"
            aria-label={w.search}
            placeholder={w.search}
            title={w.searchHint}
            type="search"
            maxLength={500}
            leftSection={found.busy ? <Loader size={12} /> : <Icon name="search" size={14} />}
            rightSectionWidth={text ? 54 : 30}
            rightSection={
              <Group gap={0} wrap="nowrap">
                <Tooltip label={w.caseful}>
                  <ActionIcon size="sm" variant={caseful ? "filled" : "subtle"} color={caseful ? undefined : "gray"} aria-label={w.caseful} aria-pressed={caseful} onClick={() => change({ case: caseful ? undefined : "1" })}>
                    <span aria-hidden="true" className={css.letters}>Aa</span>
                  </ActionIcon>
                </Tooltip>
                {text && <IconButton name="close" label={w.clear} onClick={() => change({ q: undefined, only: undefined })} />}
              </Group>
            }
          />
        </form>
        {text && (
          <Group gap={2} wrap="nowrap">
            <Text size="xs" c="dimmed" role="status" data-testid="matches">
              {found.busy ? w.searching : found.lines.length ? w.matches(chosen + 1, count(found.lines.length, language) + (found.more ? "+" : "")) : found.error ? "" : w.none}
            </Text>
            <IconButton name="up" label={w.previous} onClick={() => step(-1)} />
            <IconButton name="down" label={w.next} onClick={() => step(1)} />
            <IconButton name="filter" label={w.only} pressed={only} onClick={() => change({ only: only ? undefined : "1" })} />
          </Group>
        )}
        <Button size="xs" variant="default" leftSection={<Icon name="bug" size={14} />} onClick={firstError}>
          {w.firstError}
        </Button>
        {expected.length > 1 && (
          <Select
            size="xs"
            w={150}
            aria-label={w.rank}
            searchable={expected.length > 10}
            allowDeselect={false}
            data={[{ value: "", label: w.allRanks }, ...expected.map((name) => ({ value: name, label: name }))]}
            value={filter.rank}
            onChange={(rank) => change({ rank: rank || undefined, line: undefined })}
          />
        )}
        {job.attempts.length > 1 && (
          <Select
            size="xs"
            w={170}
            aria-label={w.attempt}
            allowDeselect={false}
            data={job.attempts.map((each) => ({
              value: String(each.number),
              label: each.number === job.attempt ? w.newest(each.number) : w.nth(each.number),
            }))}
            value={String(attempt)}
            onChange={(value) => change({ attempt: value === String(job.attempt) ? undefined : (value ?? undefined), line: undefined })}
          />
        )}
        <Menu position="bottom-end" closeOnItemClick={false}>
          <Menu.Target>
            <Button size="xs" variant="default" rightSection={<Icon name="down" size={12} />}>
              {w.view}
            </Button>
          </Menu.Target>
          <Menu.Dropdown>
            <Choice label={w.wrap} on={wraps} set={(on) => change({ wrap: on ? undefined : "0" })} />
            <Choice label={w.times} on={times} set={(on) => change({ times: on ? "1" : "0" })} />
            {expected.length > 1 && expected.length <= MOST_LANES && (
              <Choice label={w.lanes} on={lanes !== null} set={(on) => change({ lanes: on ? "1" : undefined })} />
            )}
            <Menu.Divider />
            {(["", "out", "err"] as const).map((value) => (
              <Choice key={value} label={value === "" ? w.both : w[value]} on={filter.stream === value} set={() => change({ stream: value || undefined, line: undefined })} />
            ))}
          </Menu.Dropdown>
        </Menu>
        <Group gap={2} wrap="nowrap" ml="auto">
          <IconButton name="up" label={w.start} onClick={toStart} />
          <IconButton name="down" label={w.end} onClick={toEnd} />
          <IconButton
            name="download"
            label={w.download}
            onClick={() => void save(`jobs/${job.id}/logs`, Object.fromEntries(new URLSearchParams(logQuery(wanted, "text"))), `${job.name}.log`).catch((error: unknown) => setTold(String(error)))}
          />
        </Group>
      </Group>
      {Boolean(log.error) && <Told error={log.error} again={() => void log.toEnd()} />}
      {Boolean(found.error) && <Told error={found.error} />}
      <div className={css.frame}>
        <div
          ref={box}
          className={`${css.scroll} ${wraps || lanes ? "" : css.nowrap}`}
          tabIndex={0}
          role="region"
          aria-label={w.log}
          data-testid="log"
          onWheel={(event) => event.deltaY < 0 && setFollowing(false)}
          onTouchMove={() => setFollowing(false)}
          onKeyDown={(event) => {
            if (["ArrowUp", "PageUp", "Home"].includes(event.key)) setFollowing(false);
            if (event.key === "End") toEnd();
          }}
          onScroll={(event) => {
            const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
            if (scrollHeight - scrollTop - clientHeight > 200) setFollowing(false);
          }}
        >
          {!only && !log.window.fromStart && lines.length > 0 && (
            <div className={css.edge}>
              <Button size="compact-xs" variant="default" loading={log.reading} onClick={() => void more()}>
                {w.older}
              </Button>
            </div>
          )}
          {!lines.length && !log.reading && !found.busy && (
            <div className={css.nothing}>
              <Text fw={600}>{only ? w.none : filter.rank || filter.stream ? w.emptyFiltered : w.empty}</Text>
              {!only && <Text size="sm">{w.emptyHint}</Text>}
            </div>
          )}
          <div className={css.body} style={{ height: rows.getTotalSize(), minWidth: lanes ? lanes.length * 320 : undefined }}>
            {rows.getVirtualItems().map((item) => {
              const line = lines[item.index] as LogLine;
              const before = lines[item.index - 1];
              return (
                <div
                  key={item.key}
                  ref={rows.measureElement}
                  data-index={item.index}
                  data-stream={line.stream}
                  data-found={found.keys.has(keyOf(line))}
                  data-chosen={target !== null && target.offset === line.offset && target.rank === line.rank && target.stream === line.stream}
                  className={css.line}
                  style={{ transform: `translateY(${item.start}px)`, gridTemplateColumns: columns }}
                >
                  <Row
                    line={line}
                    look={look}
                    link={linkTo(line)}
                    onLink={goTo}
                    newAttempt={before !== undefined && before.attempt !== line.attempt}
                  />
                </div>
              );
            })}
          </div>
          {!only && !log.window.toEnd && lines.length > 0 && (
            <div className={css.edge}>
              <Button size="compact-xs" variant="default" loading={log.reading} onClick={() => void log.newer()}>
                {w.newer}
              </Button>
            </div>
          )}
        </div>
        <div className={css.foot}>
          <span role="status">
            {told || (log.reading ? w.reading : `${w.held(count(lines.length, language))}${!only && !(log.window.fromStart && log.window.toEnd) ? ` · ${w.partOf}` : ""}`)}
          </span>
          {!isOver(job.state) && newestIsShown && (
            <Button size="compact-xs" variant={following ? "light" : "default"} aria-pressed={following} onClick={() => (following ? setFollowing(false) : toEnd())}>
              {following ? w.following : w.follow}
            </Button>
          )}
        </div>
      </div>
    </section>
  );
}

function hits(search: RegExp, line: LogLine): boolean {
  search.lastIndex = 0;
  return line.text.length < 10_000 && search.test(plain(line.text));
}

/** `worker-3-0` as `worker-3` where every member has one rank. */
function shortened(name: string, all: readonly string[]): string {
  return all.every((each) => each.endsWith("-0")) ? name.replace(/-0$/, "") : name;
}

function IconButton({ name, label, onClick, pressed }: { name: IconName; label: string; onClick: () => void; pressed?: boolean }): ReactNode {
  return (
    <Tooltip label={label}>
      <ActionIcon variant={pressed ? "filled" : "subtle"} color={pressed ? undefined : "gray"} aria-label={label} aria-pressed={pressed} onClick={onClick}>
        <Icon name={name} size={15} />
      </ActionIcon>
    </Tooltip>
  );
}

function Choice({ label, on, set }: { label: string; on: boolean; set: (on: boolean) => void }): ReactNode {
  return (
    <Menu.Item role="menuitemcheckbox" aria-checked={on} leftSection={on ? <Icon name="check" size={14} /> : <span style={{ display: "inline-block", width: 14 }} />} onClick={() => set(!on)}>
      {label}
    </Menu.Item>
  );
}
