/** Parameters against final values: parallel coordinates, scatter, bars. */
import { Button, Group, MultiSelect, Select, Text } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, type ReactNode } from "react";

import { Bars } from "../charts/Bars";
import { chosen } from "../charts/coordinates";
import { useTheme } from "../charts/ink";
import { Parallel } from "../charts/Parallel";
import { Scatter, type ScatterPoint } from "../charts/Scatter";
import { useLanguage, useWords } from "../i18n";
import { count } from "../i18n/format";
import { colourOf } from "../look/colours";
import { useUrl } from "../look/url";
import { axisOf, cellOf, columnsOf, labelOf, metricsInOrder, numericColumns, rowOf } from "./columns";
import css from "./compare.module.css";
import { shown } from "./diff";
import { directionOf } from "./goals";
import { limitsOf, limitsToUrl } from "./limits";
import type { Side } from "./sides";
import { words } from "./words";

const AXES = 8;

export function ParallelTab({ sides, keep }: { sides: readonly Side[]; keep: (ids: readonly string[]) => void }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [url, change] = useUrl();
  const navigate = useNavigate();
  const all = useMemo(() => columnsOf(sides), [sides]);
  const asked = (url.axes ?? "").split(",").filter((each) => all.includes(each));
  const first = useMemo(() => {
    const metrics = metricsInOrder(sides).slice(0, 2).map((key) => `metrics.${key}`);
    return [...all.filter((each) => each.startsWith("params.")).slice(0, AXES - metrics.length), ...metrics];
  }, [all, sides]);
  const columns = asked.length ? asked : first;
  const metrics = columns.filter((each) => each.startsWith("metrics."));
  const objective = metrics.includes(url.by ?? "") ? url.by : metrics[metrics.length > 1 ? metrics.indexOf(`metrics.${metricsInOrder(sides)[0] ?? ""}`) : 0];
  const axes = useMemo(() => columns.map((each) => axisOf(sides, each)), [sides, columns.join()]);
  const rows = useMemo(() => sides.map((side) => rowOf(side, columns)), [sides, columns.join()]);
  const limits = useMemo(() => limitsOf(url), [url]);
  const within = useMemo(() => chosen(rows, limits), [rows, limits]);
  const goal = sides.find((side) => side.goal)?.goal ?? null;
  if (!all.length) return <Text c="dimmed">{w.needsNumbers}</Text>;
  return (
    <>
      <div className={css.tools}>
        <MultiSelect
          size="xs"
          label={w.parallelAxes}
          data={all.map((each) => ({ value: each, label: each }))}
          value={columns}
          onChange={(next) => change({ axes: next.join(",") })}
          searchable
          clearable
          style={{ flex: "1 1 260px" }}
        />
        {metrics.length > 1 && (
          <Select
            size="xs"
            label={w.colourBy}
            data={metrics.map((each) => ({ value: each, label: labelOf(each) }))}
            value={objective ?? null}
            allowDeselect={false}
            onChange={(next) => change({ by: next ?? undefined })}
          />
        )}
      </div>
      <div className={css.frame}>
        <Parallel
          title={w.parallelTitle}
          axes={axes}
          rows={rows}
          {...(objective ? { objective, direction: directionOf(labelOf(objective), goal) ?? "min" } : {})}
          limits={limits}
          onLimits={(next) => change(limitsToUrl(next, url), true)}
          onPick={(id) => void navigate({ to: `/jobs/${id}` as never })}
          height={340}
        />
        <Group justify="space-between" mt={6}>
          <Text size="xs" c="dimmed">
            {w.brushHint}
          </Text>
          {within.size > 0 && within.size < sides.length && (
            <Button size="compact-xs" variant="default" onClick={() => keep(sides.filter((side) => within.has(side.id)).map((side) => side.id))}>
              {w.keep(count(within.size, language))}
            </Button>
          )}
        </Group>
      </div>
    </>
  );
}

export function ScatterTab({ sides }: { sides: readonly Side[] }): ReactNode {
  const w = useWords(words);
  const theme = useTheme();
  const [url, change] = useUrl();
  const navigate = useNavigate();
  const columns = useMemo(() => numericColumns(sides), [sides]);
  const known = (column: string | undefined): string | undefined => columns.find((each) => each === column);
  const x = known(url.x) ?? columns[0];
  const y = known(url.y) ?? known(`metrics.${metricsInOrder(sides)[0] ?? ""}`) ?? columns[columns.length - 1];
  const by = known(url.by) ?? "";
  const points = useMemo(
    () =>
      sides.flatMap((side): ScatterPoint[] => {
        const [a, b] = [cellOf(side, x ?? ""), cellOf(side, y ?? "")];
        if (typeof a !== "number" || typeof b !== "number") return [];
        const found = by ? cellOf(side, by) : null;
        const tone = by ? { value: typeof found === "number" ? found : null } : { colour: colourOf(side.id, theme) };
        return [{ id: side.id, label: side.name, x: a, y: b, ...tone }];
      }),
    [sides, x, y, by, theme],
  );
  if (!x || !y) return <Text c="dimmed">{w.needsNumbers}</Text>;
  const options = columns.map((each) => ({ value: each, label: each }));
  return (
    <>
      <div className={css.tools}>
        <Select size="xs" label={w.x} data={options} value={x} allowDeselect={false} searchable onChange={(next) => change({ x: next ?? undefined })} />
        <Select size="xs" label={w.y} data={options} value={y} allowDeselect={false} searchable onChange={(next) => change({ y: next ?? undefined })} />
        <Select
          size="xs"
          label={w.colour}
          data={[{ value: "", label: w.jobColours }, ...options]}
          value={by}
          allowDeselect={false}
          onChange={(next) => change({ by: next ?? undefined })}
        />
      </div>
      <div className={css.frame}>
        <Scatter
          title={w.scatterTitle(labelOf(x), labelOf(y))}
          points={points}
          xLabel={labelOf(x)}
          yLabel={labelOf(y)}
          {...(by ? { valueLabel: labelOf(by) } : {})}
          xLog={axisOf(sides, x).kind === "log"}
          yLog={axisOf(sides, y).kind === "log"}
          onPick={(id) => void navigate({ to: `/jobs/${id}` as never })}
          height={360}
        />
      </div>
    </>
  );
}

export function BarsTab({ sides }: { sides: readonly Side[] }): ReactNode {
  const w = useWords(words);
  const theme = useTheme();
  const [url, change] = useUrl();
  const navigate = useNavigate();
  const keys = useMemo(() => metricsInOrder(sides), [sides]);
  const key = keys.find((each) => each === url.metric) ?? keys[0];
  const take = url.take === "min" || url.take === "max" ? url.take : "last";
  const goal = sides.find((side) => side.goal)?.goal ?? null;
  const way = key ? directionOf(key, goal) : null;
  const bars = useMemo(
    () =>
      sides
        .flatMap((side) => {
          const found = key ? side.metrics[key]?.[take] : null;
          if (found === null || found === undefined || !Number.isFinite(found)) return [];
          return [{ id: side.id, label: side.name, colour: colourOf(side.id, theme), parts: [{ kind: "value", value: found }] }];
        })
        .sort((a, b) => ((a.parts[0]?.value ?? 0) - (b.parts[0]?.value ?? 0)) * (way === "max" ? -1 : 1)),
    [sides, key, take, way, theme],
  );
  if (!key) return <Text c="dimmed">{w.noMetrics}</Text>;
  return (
    <>
      <div className={css.tools}>
        <Select size="xs" label={w.metricOf} data={keys} value={key} allowDeselect={false} searchable onChange={(next) => change({ metric: next ?? undefined })} />
        <Select
          size="xs"
          label={w.take}
          data={(["last", "min", "max"] as const).map((each) => ({ value: each, label: w.takes[each] }))}
          value={take}
          allowDeselect={false}
          onChange={(next) => change({ take: next === "last" || !next ? undefined : next })}
        />
        {way && (
          <Text size="xs" c="dimmed" mb={6}>
            {w.moved}
          </Text>
        )}
      </div>
      <div className={css.frame}>
        <Bars
          title={w.barsTitle(key, w.takes[take])}
          bars={bars}
          kinds={[{ kind: "value", label: key, colour: colourOf("", theme) }]}
          direction="horizontal"
          format={shown}
          onPick={(bar) => bar.id && void navigate({ to: `/jobs/${bar.id}` as never })}
        />
      </div>
    </>
  );
}
