/** The Charts tab: a panel for each metric, and what the machine did meanwhile, on one axis. */
import { ActionIcon, Button, Group, SegmentedControl, Slider, Switch, Text, TextInput, Title, Tooltip } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useMemo, useRef, useState, type ReactNode } from "react";

import { Curves } from "../../../charts/Curves";
import { useTheme } from "../../../charts/ink";
import type { Axis, Line, Zoom } from "../../../charts/line";
import { linesOf, useSeries } from "../../../charts/series";
import { useLanguage, useWords } from "../../../i18n";
import { bytes, count, value } from "../../../i18n/format";
import { colourOf, PALETTE, type Theme } from "../../../look/colours";
import { Command } from "../../../look/Command";
import { Icon } from "../../../look/Icon";
import { Empty } from "../../../look/Page";
import { Told } from "../../../look/Told";
import { useUrl } from "../../../look/url";
import { useFeed } from "../../../shell/feed";
import { line as commandLine } from "../../../look/line";
import { useFacts, type Detail } from "../asking";
import css from "../job.module.css";
import { words } from "../words";
import { grouped, readKeys, readZoom, writeKeys, writeZoom } from "./panels";
import { keysInOrder, type SystemSeries } from "./system";
import { useSeen } from "./useSeen";
import { useSystem } from "./useSystem";

const FIRST_PANELS = 60;
const MOST_RANKS = 16;
const FROM_ZERO = [0, null] as const;

interface View {
  axis: Axis;
  smoothing: number;
  log: boolean;
  zoom: Zoom | null;
  zoomTo: (zoom: Zoom | null) => void;
  theme: Theme;
  start: number;
}

export default function Charts({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const theme = useTheme();
  const [url, change] = useUrl();
  const facts = useFacts(job.id);
  const system = useSystem(job.id);
  const [fresh, setFresh] = useState<ReadonlySet<string>>(new Set());
  const known = useMemo(() => new Set([...Object.keys(facts.data?.metrics ?? {}), ...fresh]), [facts.data, fresh]);
  const seen = useRef(known);
  seen.current = known;
  useFeed({
    metrics: (notice) => {
      if (notice.job !== job.id) return;
      const more = Object.keys(notice.values).filter((key) => !seen.current.has(key));
      if (more.length) setFresh((now) => new Set([...now, ...more]));
      if (notice.more) void facts.refetch();
    },
  });

  const axis: Axis = url.axis === "relative" || url.axis === "time" ? url.axis : "step";
  const pinned = useMemo(() => readKeys(url.pin), [url.pin]);
  const find = (url.find ?? "").toLowerCase();
  const keys = [...known].filter((key) => key.toLowerCase().includes(find));
  const groups = grouped(keys.filter((key) => !pinned.includes(key)));
  const all = url.all === "1" ? Infinity : FIRST_PANELS;
  const start = Date.parse(job.attempts[0]?.started ?? job.started ?? job.submitted);
  const view: View = {
    axis, smoothing: Math.min(0.99, Math.max(0, Number(url.smooth) || 0)), log: url.log === "1",
    zoom: readZoom(url.zoom), zoomTo: (zoom) => change({ zoom: writeZoom(zoom) }), theme, start,
  }; // prettier-ignore
  const pin = (key: string): void =>
    change({ pin: writeKeys(pinned.includes(key) ? pinned.filter((each) => each !== key) : [...pinned, key]) });
  const setFind = useDebouncedCallback((text: string) => change({ find: text || undefined }, true), 200);
  const systemKeys = keysInOrder(system).filter((key) => key.includes(find));

  if (facts.error && !facts.data) return <Told error={facts.error} again={() => void facts.refetch()} />;
  if (facts.data && !known.size && !system.length) {
    return (
      <Empty title={w.noMetrics}>
        <Text mb="md">{w.noMetricsHint}</Text>
        <Command line={commandLine("metrics", job.name)} />
      </Empty>
    );
  }
  let left = all;
  const shown = groups.map((group) => {
    const these = group.keys.slice(0, Math.max(0, left));
    left -= these.length;
    return { ...group, keys: these };
  });
  const panel = (key: string): ReactNode => (
    <Panel key={key} job={job} name={key} view={view} pinned={pinned.includes(key)} pin={() => pin(key)} />
  );
  return (
    <section aria-label={w.charts}>
      <div className={css.tools}>
        <SegmentedControl
          size="xs"
          aria-label={w.axis}
          value={axis}
          onChange={(next) => change({ axis: next === "step" ? undefined : next, zoom: undefined })}
          data={[{ value: "step", label: w.axisStep }, { value: "relative", label: w.axisRelative }, { value: "time", label: w.axisTime }]}
        />
        <Group gap="xs" wrap="nowrap">
          <Text size="xs" c="dimmed" id="smoothing">
            {w.smoothing}
          </Text>
          <Slider
            w={120}
            size="sm"
            min={0}
            max={0.99}
            step={0.01}
            label={(now) => now.toFixed(2)}
            thumbLabel={w.smoothing}
            thumbProps={{ "aria-label": w.smoothing }}
            value={view.smoothing}
            onChange={(next) => change({ smooth: next ? String(next) : undefined }, true)}
          />
        </Group>
        <Switch size="xs" label={w.logScale} checked={view.log} onChange={(event) => change({ log: event.currentTarget.checked ? "1" : undefined })} />
        <TextInput size="xs" type="search" aria-label={w.find} placeholder={w.find} defaultValue={url.find ?? ""} leftSection={<Icon name="search" size={14} />} onChange={(event) => setFind(event.currentTarget.value)} w={200} />
        <Text size="xs" c="dimmed" ml="auto">
          {w.summary(count(known.size, language))}
        </Text>
      </div>
      {pinned.length > 0 && (
        <>
          <GroupHead name={w.pinned} />
          <div className={css.panels}>{pinned.filter((key) => known.has(key)).map(panel)}</div>
        </>
      )}
      {shown.filter((group) => group.keys.length).map((group) => (
        <div key={group.name}>
          {(groups.length > 1 || pinned.length > 0) && <GroupHead name={group.name || w.others} />}
          <div className={css.panels}>{group.keys.map(panel)}</div>
        </div>
      ))}
      {find && !keys.length && !systemKeys.length && <Text c="dimmed">{w.noneFound}</Text>}
      {left < 0 || keys.length - pinned.length > all ? (
        <Group mt="md">
          <Text size="sm" c="dimmed">
            {w.shownOf(count(FIRST_PANELS, language), count(keys.length, language))}
          </Text>
          <Button size="xs" variant="default" onClick={() => change({ all: "1" })}>
            {w.showAll}
          </Button>
        </Group>
      ) : null}
      {systemKeys.length > 0 && (
        <>
          <GroupHead name={w.system} hint={axis === "step" ? w.systemByTime : undefined} />
          <div className={css.panels}>
            {systemKeys.map((key) => (
              <SystemPanel key={key} job={job} name={key} series={system.filter((each) => each.key === key)} view={view} />
            ))}
          </div>
        </>
      )}
    </section>
  );
}

function GroupHead({ name, hint }: { name: string; hint?: string }): ReactNode {
  return (
    <div className={css.group}>
      <Title order={2} className="clip" title={name}>
        {name}
      </Title>
      {hint && (
        <Text size="xs" c="dimmed">
          {hint}
        </Text>
      )}
    </div>
  );
}

function Panel({ job, name, view, pinned, pin }: { job: Detail; name: string; view: View; pinned: boolean; pin: () => void }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [box, seen] = useSeen<HTMLDivElement>();
  const jobs = useMemo(() => [job.id], [job.id]);
  const keys = useMemo(() => [name], [name]);
  const starts = useMemo(() => ({ [job.id]: view.start }), [job.id, view.start]);
  const { series, loading, error } = useSeries({ jobs, keys, axis: view.axis, zoom: view.zoom, starts, enabled: seen });
  const lines = useMemo(() => {
    const found = linesOf(series, { axis: view.axis, theme: view.theme, names: { [job.id]: job.name }, starts });
    if (found.length < 2) return found;
    return found.slice(0, MOST_RANKS).map((each, at) => ranked(each, series[at]?.rank ?? at, view.theme, w.rankN));
  }, [series, view.axis, view.theme, job.id, job.name, starts, w]);
  const last = lines.length === 1 ? lines[0]?.y.at(-1) : undefined;
  return (
    <div ref={box} className={css.panel} data-panel={name}>
      {error && <Told error={error} />}
      {seen && !(loading && !series.length) && (
        <Curves
          title={name}
          heading={
            <>
              {name}
              {last !== undefined && <span className="quiet" data-testid="last" style={{ fontWeight: 400 }}>{`  ${value(last, language)}`}</span>}
            </>
          }
          lines={lines}
          axis={view.axis}
          log={view.log}
          smoothing={view.smoothing}
          sync={`job-${view.axis}`}
          zoom={view.zoom}
          onZoom={view.zoomTo}
          legend={lines.length > 1 && lines.length <= 8}
          actions={
            <Tooltip label={pinned ? w.unpin : w.pin}>
              <ActionIcon size="sm" variant={pinned ? "light" : "subtle"} color={pinned ? undefined : "gray"} aria-label={`${pinned ? w.unpin : w.pin}: ${name}`} aria-pressed={pinned} onClick={pin}>
                <Icon name="pin" size={14} />
              </ActionIcon>
            </Tooltip>
          }
        />
      )}
    </div>
  );
}

function SystemPanel({ job, name, series, view }: { job: Detail; name: string; series: readonly SystemSeries[]; view: View }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [box, seen] = useSeen<HTMLDivElement>();
  const axis: Axis = view.axis === "step" ? "relative" : view.axis;
  const [own, setOwn] = useState<Zoom | null>(null);
  const several = series.length > 1;
  const lines = useMemo<Line[]>(() => {
    const zero = axis === "relative" ? view.start : 0;
    return series.slice(0, MOST_RANKS).map((each) => {
      const line: Line = {
        id: job.id, label: job.name, colour: colourOf(job.id, view.theme),
        x: Float64Array.from(each.points, ([at]) => Math.max(0, at - zero) / 1000), y: Float64Array.from(each.points, ([, found]) => found),
      }; // prettier-ignore
      return several ? ranked(line, each.rank, view.theme, w.rankN) : line;
    });
  }, [series, axis, view.start, view.theme, job.id, job.name, several, w]);
  const title = systemName(name, w.sys);
  const format = useMemo(() => (name.endsWith("bytes") ? (size: number) => bytes(size, language) : undefined), [name, language]);
  const shares = view.axis !== "step";
  return (
    <div ref={box} className={css.panel} data-panel={name}>
      {seen && (
        <Curves
          title={title}
          lines={lines}
          axis={axis}
          sync={`job-${axis}`}
          zoom={shares ? view.zoom : own}
          onZoom={shares ? view.zoomTo : setOwn}
          format={format}
          yRange={FROM_ZERO}
          legend={several && series.length <= 8}
        />
      )}
    </div>
  );
}

/** `gpu0_memory_bytes` as it is; names that we know in words. */
function systemName(key: string, known: Readonly<Record<string, string>>): string {
  const [, place, what] = /^gpu(\d+)_(.*)$/.exec(key) ?? [];
  if (place) return `GPU ${place} ${what === "percent" ? "%" : (what ?? "").replaceAll("_", " ")}`;
  return known[key] ?? key;
}

function ranked(line: Line, rank: number, theme: Theme, name: (rank: string) => string): Line {
  const palette = PALETTE[theme];
  return { ...line, id: `${line.id}#${rank}`, label: name(String(rank)), colour: palette[rank % palette.length] as string, dash: rank >= palette.length ? [6, 3] : [] };
}
