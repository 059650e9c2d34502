/** The curve of one metric of one job, small, and alive while points arrive. */
import { Text, useComputedColorScheme } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, type ReactNode } from "react";

import { readSeries } from "../charts/reading";
import { Spark } from "../charts/Spark";
import { useLanguage } from "../i18n";
import { value } from "../i18n/format";
import { colourOf } from "../look/colours";
import { useFeed } from "../shell/feed";

const POINTS = 60;
const APART_MS = 1000;

export function JobCurve({ job, metric, width = 96, height = 22, told = false }: {
  job: string;
  metric: string;
  width?: number;
  height?: number;
  /** With the last value beside it. */
  told?: boolean;
}): ReactNode {
  const { language } = useLanguage();
  const theme = useComputedColorScheme("light");
  const queries = useQueryClient();
  const waiting = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(waiting.current), []);
  useFeed({
    metrics: (notice) => {
      if (notice.job !== job || !(metric in notice.values)) return;
      waiting.current ??= setTimeout(() => {
        waiting.current = undefined;
        void queries.invalidateQueries({ queryKey: ["curve", job, metric] });
      }, APART_MS);
    },
  });
  const { data } = useQuery({
    queryKey: ["curve", job, metric],
    queryFn: async () => (await readSeries(job, metric, { points: POINTS })).sort((one, other) => one.rank - other.rank)[0]?.value ?? new Float64Array(),
    structuralSharing: false,
  });
  if (!data?.length) return null;
  return (
    <span style={{ display: "inline-flex", alignItems: "center", gap: 8, minWidth: 0 }}>
      <Spark y={data} label={metric} colour={colourOf(job, theme)} width={width} height={height} />
      {told && (
        <Text span size="xs" className="clip" aria-hidden>
          {metric} {value(data[data.length - 1], language)}
        </Text>
      )}
    </span>
  );
}
