/** Lines over steps or time: the chart of a metric. Made once and fed; what the reader zoomed,
 * hovers or scrolled stays as new points come. */
import "uplot/dist/uPlot.min.css";

import { ActionIcon, Tooltip } from "@mantine/core";
import { useLayoutEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from "react";

import { useLanguage, useWords } from "../i18n";
import { value } from "../i18n/format";
import { Icon } from "../look/Icon";
import { CurvePlot, type Reading } from "./curveplot";
import { curveSummary, curveTables, xSaid } from "./curvetables";
import { Figure } from "./Figure";
import { onHovered } from "./hover";
import { onRepaint } from "./ink";
import { Legend } from "./Legend";
import type { Axis, Line, Zoom } from "./line";
import { Tip, type TipHandle } from "./Tip";
import { words } from "./words";
import styles from "./charts.module.css";

export type { Axis, Line, Zoom } from "./line";

export interface CurvesProps {
  /** What is measured: the metric's key. */
  title: string;
  lines: readonly Line[];
  axis?: Axis;
  /** Logarithms of y; what is not above zero is marked at the bottom. */
  log?: boolean;
  /** From 0 (none) to 1: see smoothing.ts. The raw line stays, faint, behind. */
  smoothing?: number;
  /** Charts with the same key show one cursor. */
  sync?: string;
  /** The part of x that is shown, held by the caller (the URL) together with `onZoom`; null: all.
   * Without `onZoom` the chart holds it itself. */
  zoom?: Zoom | null;
  onZoom?: (zoom: Zoom | null) => void;
  height?: number;
  /** Names below the picture; by default where there are 2 to 12. */
  legend?: boolean;
  heading?: ReactNode;
  actions?: ReactNode;
  /** A line was clicked. */
  onPick?: (id: string) => void;
  /** How values of y are written; by default four digits that count. */
  format?: (value: number) => string;
  /** Ends of y that do not follow the data: `[0, 100]` for percent, `[0, null]` from zero. */
  yRange?: readonly [number | null, number | null];
  /** The few values far from the rest do not stretch y: they leave the picture. */
  cutOutliers?: boolean;
}

export function Curves(props: CurvesProps): ReactNode {
  const { title, lines, axis = "step", format } = props;
  const w = useWords(words);
  const { language } = useLanguage();
  const [own, setOwn] = useState<Zoom | null>(null);
  const zoom = props.onZoom ? (props.zoom ?? null) : own;
  const zoomTo = props.onZoom ?? setOwn;
  const named = useMemo(() => lines.filter((each) => !each.faint), [lines]);
  const summary = useMemo(
    () => curveSummary(title, named, axis, w, language, format),
    [title, named, axis, w, language, format],
  );
  const legend = props.legend ?? (named.length > 1 && named.length <= 12);
  return (
    <Figure
      title={title}
      heading={props.heading}
      summary={summary}
      tables={() => curveTables(named, axis, zoom, w, language, format)}
      actions={
        <>
          {zoom && (
            <Tooltip label={w.resetZoom}>
              <ActionIcon
                size="sm"
                variant="subtle"
                color="gray"
                aria-label={`${w.resetZoom}: ${title}`}
                onClick={() => zoomTo(null)}
              >
                <Icon name="again" />
              </ActionIcon>
            </Tooltip>
          )}
          {props.actions}
        </>
      }
    >
      <Picture {...props} zoom={zoom} zoomTo={zoomTo} />
      {legend && <Legend lines={named} label={w.legend} />}
    </Figure>
  );
}

type PictureProps = CurvesProps & { zoom: Zoom | null; zoomTo: (zoom: Zoom | null) => void };

function Picture(props: PictureProps): ReactNode {
  const { title, lines, axis = "step", log = false, smoothing = 0, sync, zoom, zoomTo, height = 220, yRange } = props;
  const w = useWords(words);
  const { language } = useLanguage();
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<CurvePlot | null>(null);
  const tip = useRef<TipHandle>(null);
  const [spoken, setSpoken] = useState("");
  const latest = useRef({ zoomTo, pick: props.onPick });
  latest.current = { zoomTo, pick: props.onPick };
  const cut = props.cutOutliers ?? false;
  const least = yRange?.[0] ?? null;
  const most = yRange?.[1] ?? null;
  const yLabel = props.format ?? ((each: number) => value(each, language));

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const made = new CurvePlot(element, element.clientWidth || 300, height, sync, {
      zoom: (to) => latest.current.zoomTo(to),
      pick: (id) => latest.current.pick?.(id),
      pointed: (at) => tip.current?.show(at),
    });
    plot.current = made;
    const watch = new ResizeObserver(() => {
      if (element.clientWidth) made.resize(element.clientWidth, height);
    });
    watch.observe(element);
    const deaf = onHovered(() => made.light());
    const blind = onRepaint(() => made.repaint());
    return () => {
      watch.disconnect();
      deaf();
      blind();
      made.destroy();
      plot.current = null;
    };
  }, [sync, height]);

  useLayoutEffect(() => {
    plot.current?.show({ lines, axis, log, smoothing, zoom, language, yRange: [least, most], cut });
  }, [lines, axis, log, smoothing, zoom, language, least, most, cut, sync, height]);

  const read = (reading: Reading | null): void => {
    if (reading) setSpoken(`${reading.line.label}, ${w[axis]} ${xSaid(reading.x, axis, language)}: ${yLabel(reading.y)}`);
  };
  const pressed = (event: KeyboardEvent): void => {
    const made = plot.current;
    if (!made || event.ctrlKey || event.metaKey || event.altKey) return;
    const many = event.shiftKey ? 10 : 1;
    if (event.key === "ArrowLeft") read(made.step(-many, 0));
    else if (event.key === "ArrowRight") read(made.step(many, 0));
    else if (event.key === "ArrowUp") read(made.step(0, -1));
    else if (event.key === "ArrowDown") read(made.step(0, 1));
    else if (event.key === "+" || event.key === "=") made.zoomBy(0.5);
    else if (event.key === "-") made.zoomBy(2);
    else if (event.key === "0" || event.key === "Escape") zoomTo(null);
    else return;
    event.preventDefault();
  };

  return (
    <>
      <div
        ref={box}
        className={styles.plot}
        style={{ height }}
        role="img"
        aria-label={`${title}. ${w.keys}`}
        tabIndex={0}
        onKeyDown={pressed}
        onBlur={() => plot.current?.leave()}
      >
        {!lines.some((each) => each.x.length) && <div className={styles.empty}>{w.noPoints}</div>}
        <Tip
          handle={tip}
          xLabel={(x) => `${w[axis]} ${xSaid(x, axis, language)}`}
          yLabel={yLabel}
          rawLabel={w.raw}
          more={w.more}
        />
      </div>
      <span className="seen-only-by-readers" aria-live="polite">
        {spoken}
      </span>
    </>
  );
}
