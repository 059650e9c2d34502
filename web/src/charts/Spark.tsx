/** A line as small as a word, for tables. */
import { useMemo, type ReactNode } from "react";

import { useLanguage, useWords } from "../i18n";
import { value } from "../i18n/format";
import { sparkPath } from "./sparkpath";
import { words } from "./words";
import styles from "./charts.module.css";

export interface SparkProps {
  y: ArrayLike<number>;
  /** In order; evenly spaced where it is not given. */
  x?: ArrayLike<number>;
  /** By default the colour of the text. */
  colour?: string;
  width?: number;
  height?: number;
  /** What it shows, for readers of the screen. */
  label: string;
}

export function Spark({ y, x, colour = "currentColor", width = 96, height = 22, label }: SparkProps): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const { path, end, first, last } = useMemo(() => sparkPath(x, y, width, height), [x, y, width, height]);
  const said = Number.isNaN(last) ? w.noPoints : w.trend(value(first, language), value(last, language));
  return (
    <svg className={styles.spark} width={width} height={height} role="img" aria-label={`${label}: ${said}`}>
      <title>{`${label}: ${said}`}</title>
      <path d={path} fill="none" stroke={colour} strokeWidth="1.5" strokeLinejoin="round" strokeLinecap="round" />
      {end && <circle cx={end[0]} cy={end[1]} r="2" fill={colour} />}
    </svg>
  );
}
