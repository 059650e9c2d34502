/** A row for each node, a cell for each GPU: filled as high as it is used, with the number in it,
 * a bar at its edge for memory, hatched where nothing is known. Never by colour alone. */
import { Tooltip } from "@mantine/core";
import type { ReactNode } from "react";

import { useWords } from "../i18n";
import { Figure } from "./Figure";
import { setHovered, useHovered } from "./hover";
import { words } from "./words";
import styles from "./charts.module.css";

export interface HeatGpu {
  index: number;
  /** Percent, 0 to 100; null: not measured. */
  utilisation: number | null;
  /** Part of its memory in use, 0 to 1. */
  memory?: number | null;
  /** Who holds it; the first one's id lights it up. */
  jobs?: readonly { id: string; name: string }[];
  /** More for the tooltip: model, temperature. */
  note?: string;
  healthy?: boolean;
}
export interface HeatNode {
  name: string;
  /** Shown instead of the name: a link, a state. */
  heading?: ReactNode;
  gpus: readonly HeatGpu[];
}
export interface HeatProps {
  title: string;
  nodes: readonly HeatNode[];
  onPick?: (node: HeatNode, gpu: HeatGpu) => void;
  heading?: ReactNode;
  actions?: ReactNode;
}

export function Heat({ title, nodes, onPick, heading, actions }: HeatProps): ReactNode {
  const w = useWords(words);
  const said = (gpu: HeatGpu): string =>
    [
      w.gpu(gpu.index),
      gpu.utilisation === null ? w.unknown : w.used(Math.round(gpu.utilisation)),
      typeof gpu.memory === "number" ? w.memory(Math.round(gpu.memory * 100)) : "",
      gpu.jobs?.length ? gpu.jobs.map((each) => each.name).join(", ") : w.free,
      gpu.healthy === false ? w.unhealthy : "",
      gpu.note ?? "",
    ]
      .filter(Boolean)
      .join(" · ");
  const gpus = nodes.reduce((sum, each) => sum + each.gpus.length, 0);
  return (
    <Figure
      title={title}
      heading={heading}
      actions={actions}
      summary={w.heat(nodes.length, gpus)}
      tables={() => [
        {
          head: [w.node, "GPU", w.utilisation, w.memoryUsed, w.jobs],
          rows: nodes.flatMap((node) =>
            node.gpus.map((gpu) => [
              node.name,
              String(gpu.index),
              gpu.utilisation === null ? w.unknown : `${Math.round(gpu.utilisation)}%`,
              typeof gpu.memory === "number" ? `${Math.round(gpu.memory * 100)}%` : w.unknown,
              gpu.jobs?.map((each) => each.name).join(", ") || w.free,
            ]),
          ),
        },
      ]}
    >
      <div className="scroll-x" tabIndex={0} role="region" aria-label={title}>
        <table className={styles.heat}>
          <tbody>
            {nodes.map((node) => (
              <tr key={node.name}>
                <th scope="row">{node.heading ?? node.name}</th>
                <td>
                  <div className={styles.heatRow}>
                    {node.gpus.map((gpu) => (
                      <GpuCell key={gpu.index} gpu={gpu} said={said(gpu)} pick={onPick && (() => onPick(node, gpu))} />
                    ))}
                    {!node.gpus.length && <span className="quiet">{w.noGpus}</span>}
                  </div>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <ul className={styles.legend} aria-label={w.legend}>
        {(
          [
            [0, w.idle],
            [50, "50%"],
            [100, "100%"],
            [null, w.unknown],
          ] as const
        ).map(([utilisation, name]) => (
          <li key={name} className={styles.legendItem}>
            <span className={`${styles.cell} ${styles.small}`} data-known={utilisation !== null} aria-hidden="true">
              <Fill utilisation={utilisation} />
            </span>
            {name}
          </li>
        ))}
        <li className={styles.legendItem}>
          <span className={`${styles.cell} ${styles.small}`} aria-hidden="true">
            <Memory part={0.6} />
          </span>
          {w.memoryUsed}
        </li>
      </ul>
    </Figure>
  );
}

function Fill({ utilisation }: { utilisation: number | null }): ReactNode {
  if (utilisation === null) return null;
  const part = Math.min(100, Math.max(0, utilisation));
  return <span className={styles.fill} style={{ height: `${part}%`, opacity: 0.55 + part * 0.0045 }} />;
}

function Memory({ part }: { part: number }): ReactNode {
  return (
    <span className={styles.memory}>
      <span style={{ height: `${Math.min(1, Math.max(0, part)) * 100}%` }} />
    </span>
  );
}

function GpuCell({ gpu, said, pick }: { gpu: HeatGpu; said: string; pick?: () => void }): ReactNode {
  const hovered = useHovered();
  const job = gpu.jobs?.[0]?.id ?? null;
  const shared = {
    className: styles.cell,
    "data-known": gpu.utilisation !== null,
    "data-sick": gpu.healthy === false,
    "data-lit": hovered !== null && (gpu.jobs ?? []).some((each) => each.id === hovered),
    "data-held": job !== null,
    onPointerEnter: () => setHovered(job),
    onPointerLeave: () => setHovered(null),
  };
  const inside = (
    <>
      <Fill utilisation={gpu.utilisation} />
      {typeof gpu.memory === "number" && <Memory part={gpu.memory} />}
      <span className={styles.cellText}>{gpu.utilisation === null ? "–" : Math.round(gpu.utilisation)}</span>
    </>
  );
  return (
    <Tooltip label={said} multiline maw={320}>
      {pick ? (
        <button type="button" {...shared} aria-label={said} onClick={pick}>
          {inside}
        </button>
      ) : (
        <span {...shared} role="img" aria-label={said}>
          {inside}
        </span>
      )}
    </Tooltip>
  );
}
