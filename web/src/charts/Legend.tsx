/** Names of the lines, each with its stroke; the pointer on one lights it up everywhere. */
import type { ReactNode } from "react";

import { lit, useHovered } from "./hover";
import type { Line } from "./line";
import { Stroke } from "./Tip";
import styles from "./charts.module.css";

export function Legend({ lines, label }: { lines: readonly Line[]; label: string }): ReactNode {
  const hovered = useHovered();
  return (
    <ul className={styles.legend} aria-label={label} tabIndex={lines.length > 12 ? 0 : undefined}>
      {lines.map((line, at) => (
        <li
          key={at}
          className={styles.legendItem}
          data-lit={hovered === line.id}
          data-dim={hovered !== null && hovered !== line.id}
          {...lit(line.id)}
        >
          <Stroke colour={line.colour} dash={line.dash} />
          <span className="clip" title={line.label}>
            {line.label}
          </span>
        </li>
      ))}
    </ul>
  );
}
