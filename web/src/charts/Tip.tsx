/** What the cursor is on, beside it; drawn without drawing the chart anew. */
import { useImperativeHandle, useState, type ReactNode, type Ref } from "react";

import type { Pointed } from "./curveplot";
import styles from "./charts.module.css";

export interface TipHandle {
  show: (pointed: Pointed | null) => void;
}

const ROWS = 10;

export function Tip({ handle, xLabel, yLabel, rawLabel, more }: {
  handle: Ref<TipHandle>;
  xLabel: (x: number) => string;
  yLabel: (y: number) => string;
  rawLabel: string;
  more: (many: number) => string;
}): ReactNode {
  const [at, setAt] = useState<Pointed | null>(null);
  useImperativeHandle(handle, () => ({ show: setAt }), []);
  if (!at || !at.readings.length) return null;
  const shown = at.readings.slice(0, ROWS).sort((a, b) => a.top - b.top);
  const lit = at.readings.find((each) => each.lit);
  const toLeft = at.left > at.width / 2;
  const smoothed = shown.some((each) => each.raw !== null);
  return (
    <>
      {lit && Number.isFinite(lit.top) && (
        <span className={styles.knot} style={{ left: lit.left, top: lit.top, background: lit.line.colour }} />
      )}
      <div
        className={styles.tip}
        data-testid="tip"
        aria-hidden="true"
        style={{
          top: Math.max(0, Math.min(at.top - 20, at.height - 34 - shown.length * 18)),
          ...(toLeft ? { right: at.width - at.left + 14 } : { left: at.left + 14 }),
        }}
      >
        <div className={styles.tipHead}>{xLabel((lit ?? shown[0])?.x ?? at.x)}</div>
        <table>
          <tbody>
            {shown.map((each, n) => (
              <tr key={n} className={each.lit ? styles.tipLit : undefined}>
                <td>
                  <Stroke colour={each.line.colour} dash={each.line.dash} />{" "}
                  <span className={`clip ${styles.tipName}`}>{each.line.label}</span>
                </td>
                <td>{yLabel(each.y)}</td>
                {smoothed && (
                  <td className={styles.tipHead}>{each.raw === null ? "" : `${rawLabel} ${yLabel(each.raw)}`}</td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
        {at.readings.length > ROWS && <div className={styles.tipHead}>{more(at.readings.length - ROWS)}</div>}
      </div>
    </>
  );
}

/** A piece of the line, as it is drawn. */
export function Stroke({ colour, dash }: { colour: string; dash?: readonly number[] }): ReactNode {
  return (
    <svg className={styles.stroke} width="18" height="8" aria-hidden="true" focusable="false">
      <line x1="0" x2="18" y1="4" y2="4" stroke={colour} strokeWidth="2.4" strokeDasharray={dash?.join(" ")} />
    </svg>
  );
}
