/** What every chart stands in: title, a switch to the same as a table, and a summary that readers
 * of the screen hear. */
import { ActionIcon, Group, Table, Text, Tooltip } from "@mantine/core";
import { useId, useState, type ReactNode } from "react";

import { useWords } from "../i18n";
import { Icon } from "../look/Icon";
import styles from "./charts.module.css";
import { words } from "./words";

export interface AsTable {
  head: readonly string[];
  rows: readonly (readonly ReactNode[])[];
}

export interface FigureProps {
  /** What it shows; also its name for readers of the screen. */
  title: string;
  /** Shown instead of the title, which stays its name. */
  heading?: ReactNode;
  /** The chart in a few sentences. */
  summary: string;
  /** The chart as tables, made when asked for. */
  tables: () => readonly AsTable[];
  /** More buttons, left of the switch. */
  actions?: ReactNode;
  children: ReactNode;
}

export function Figure({ title, heading, summary, tables, actions, children }: FigureProps): ReactNode {
  const w = useWords(words);
  const [asTable, setAsTable] = useState(false);
  const said = useId();
  const label = asTable ? w.asChart : w.asTable;
  return (
    <figure className={styles.figure} aria-label={title} aria-describedby={said}>
      <Group component="figcaption" justify="space-between" wrap="nowrap" gap="xs" mb={4} mih={28}>
        <Text component="span" size="sm" fw={600} className="clip" title={title}>
          {heading ?? title}
        </Text>
        <Group gap={2} wrap="nowrap" className={styles.actions}>
          {actions}
          <Tooltip label={label}>
            <ActionIcon
              size="sm"
              variant="subtle"
              color="gray"
              aria-label={`${label}: ${title}`}
              aria-pressed={asTable}
              onClick={() => setAsTable(!asTable)}
            >
              <Icon name={asTable ? "compare" : "columns"} />
            </ActionIcon>
          </Tooltip>
        </Group>
      </Group>
      <p id={said} className="seen-only-by-readers">
        {summary}
      </p>
      {asTable ? tables().map((each, at) => <Values key={at} title={title} {...each} />) : children}
    </figure>
  );
}

function Values({ title, head, rows }: AsTable & { title: string }): ReactNode {
  return (
    <div className={`scroll-x ${styles.values}`} tabIndex={0} role="region" aria-label={title}>
      <Table fz="xs" stickyHeader verticalSpacing={4} withRowBorders>
        <Table.Thead>
          <Table.Tr>
            {head.map((each, at) => (
              <Table.Th key={at} scope="col">
                {each}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row, at) => (
            <Table.Tr key={at}>
              {row.map((cell, column) =>
                column ? (
                  <Table.Td key={column}>{cell}</Table.Td>
                ) : (
                  <Table.Th key={column} scope="row" fw={500}>
                    {cell}
                  </Table.Th>
                ),
              )}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}
