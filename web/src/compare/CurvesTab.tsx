/** A chart for each metric, a line for each job; or a mean and a band for each group of jobs. */
import { MultiSelect, SegmentedControl, Select, Slider, Switch, Text } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState, type ReactNode } from "react";

import { Curves } from "../charts/Curves";
import { useTheme } from "../charts/ink";
import type { Axis, Line, Zoom } from "../charts/line";
import { linesOf, useSeries, type Series } from "../charts/series";
import { useLanguage, useWords } from "../i18n";
import { count } from "../i18n/format";
import { strokes } from "../look/colours";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { metricsInOrder } from "./columns";
import css from "./compare.module.css";
import { groupBy, meanBand } from "./grouping";
import { differingParams, type Side } from "./sides";
import { words } from "./words";

/** Charts that are drawn without being asked for. */
const FIRST = 6;
const AXES: readonly Axis[] = ["step", "relative", "time"];

export function CurvesTab({ sides, starts, loading }: {
  sides: readonly Side[];
  starts: Readonly<Record<string, number>>;
  /** More of them are on their way. */
  loading: boolean;
}): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [url, change] = useUrl();
  const all = useMemo(() => metricsInOrder(sides), [sides]);
  const asked = (url.keys ?? "").split(",").filter((key) => all.includes(key));
  const keys = asked.length ? asked : all.slice(0, FIRST);
  const axis = AXES.find((each) => each === url.axis) ?? "step";
  const [drag, setDrag] = useState<number | null>(null);
  const smoothing = drag ?? Math.min(0.99, Math.max(0, Number(url.smooth) || 0));
  const groups = differingParams(sides);
  const group = groups.includes(url.group ?? "") ? (url.group as string) : "";
  const zoom = zoomOf(url.zoom);
  if (!all.length) {
    return loading ? null : (
      <Text c="dimmed">
        {w.noMetrics}. {w.noMetricsHint}
      </Text>
    );
  }
  return (
    <>
      <div className={css.tools}>
        <SegmentedControl
          size="xs"
          aria-label={w.axis}
          value={axis}
          onChange={(next) => change({ axis: next === "step" ? undefined : next, zoom: undefined })}
          data={AXES.map((each) => ({ value: each, label: w.axes[each] }))}
        />
        <div className={css.slider}>
          <Text size="xs" id="smoothing-label">
            {w.smoothing} {smoothing ? smoothing.toFixed(2) : ""}
          </Text>
          <Slider
            size="sm"
            thumbProps={{ "aria-labelledby": "smoothing-label" }}
            min={0}
            max={0.99}
            step={0.01}
            label={null}
            value={smoothing}
            onChange={setDrag}
            onChangeEnd={(value) => {
              setDrag(null);
              change({ smooth: value ? String(value) : undefined }, true);
            }}
          />
        </div>
        <Switch size="xs" mb={6} label={w.log} checked={url.log === "1"} onChange={(event) => change({ log: event.currentTarget.checked ? "1" : undefined })} />
        {groups.length > 0 && (
          <Select
            size="xs"
            label={w.group}
            data={[{ value: "", label: w.groupNone }, ...groups.map((each) => ({ value: each, label: each }))]}
            value={group}
            allowDeselect={false}
            onChange={(next) => change({ group: next ?? undefined })}
            w={190}
          />
        )}
        {all.length > 1 && (
          <MultiSelect
            size="xs"
            label={w.keys}
            data={all}
            value={asked}
            placeholder={asked.length ? "" : keys.join(", ")}
            onChange={(next) => change({ keys: next.join(",") })}
            searchable
            clearable
            limit={200}
            style={{ flex: "1 1 220px", maxWidth: 460 }}
          />
        )}
      </div>
      {group && (
        <Text size="xs" c="dimmed" mb="xs">
          {w.groupHint}
        </Text>
      )}
      <div className={css.grid}>
        {keys.map((key) => (
          <Metric
            key={key}
            metric={key}
            sides={sides}
            starts={starts}
            axis={axis}
            smoothing={smoothing}
            group={group}
            log={url.log === "1"}
            zoom={zoom}
            onZoom={(next) => change({ zoom: next ? `${next[0]}..${next[1]}` : undefined })}
          />
        ))}
      </div>
      {!asked.length && all.length > keys.length && (
        <Text size="sm" c="dimmed" mt="sm">
          {w.moreKeys(count(all.length - keys.length, language))}
        </Text>
      )}
    </>
  );
}

/** A job is one line here: of several ranks that logged the same the first. */
function firstRanks(series: readonly Series[]): readonly Series[] {
  const first = new Map<string, Series>();
  for (const each of series) {
    const known = first.get(each.job);
    if (!known || each.rank < known.rank) first.set(each.job, each);
  }
  return first.size === series.length ? series : [...first.values()];
}

function zoomOf(text: string | undefined): Zoom | null {
  const [low, high] = (text ?? "").split("..").map(Number);
  return low !== undefined && high !== undefined && low < high ? [low, high] : null;
}

function Metric({ metric, sides, starts, axis, smoothing, group, log, zoom, onZoom }: {
  metric: string;
  sides: readonly Side[];
  starts: Readonly<Record<string, number>>;
  axis: Axis;
  smoothing: number;
  group: string;
  log: boolean;
  zoom: Zoom | null;
  onZoom: (zoom: Zoom | null) => void;
}): ReactNode {
  const w = useWords(words);
  const theme = useTheme();
  const navigate = useNavigate();
  const having = useMemo(() => sides.filter((side) => side.metrics[metric]), [sides, metric]);
  const jobs = having.map((side) => side.id).join();
  const ids = useMemo(() => jobs.split(",").filter(Boolean), [jobs]);
  const keys = useMemo(() => [metric], [metric]);
  const { series: all, error } = useSeries({ jobs: ids, keys, axis, zoom, starts });
  const series = useMemo(() => firstRanks(all), [all]);
  const lines = useMemo((): Line[] => {
    const names = Object.fromEntries(having.map((side) => [side.id, side.name]));
    const alone = linesOf(series, { axis, theme, names, starts });
    if (!group) return alone;
    const found = groupBy(having, group);
    const styles = strokes([...found.keys()].map((value) => `${group}=${value}`), theme);
    return [...found].map(([value, members]) => {
      const of = new Set(members.map((side) => side.id));
      const id = `${group}=${value}`;
      const style = styles.get(id);
      return {
        id,
        label: w.groupLabel(group, value || w.groupMissing, members.length),
        colour: style?.colour ?? "#888888",
        dash: style?.dash ?? [],
        ...meanBand(alone.filter((line) => of.has(line.id))),
      };
    });
  }, [series, having, axis, theme, starts, group, w]);
  return (
    <div className={css.frame}>
      {Boolean(error) && !series.length && <Told error={error} />}
      <Curves
        title={metric}
        lines={lines}
        axis={axis}
        log={log}
        smoothing={smoothing}
        sync="compare"
        zoom={zoom}
        onZoom={onZoom}
        height={230}
        {...(series.length < all.length ? { heading: `${metric} · ${w.rankHint}` } : {})}
        {...(group ? {} : { onPick: (id: string) => void navigate({ to: `/jobs/${id}` as never }) })}
      />
    </div>
  );
}
