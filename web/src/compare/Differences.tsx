/** The table of what differs. Few jobs stand beside each other; of many, each has a line. */
import { Anchor, Button, Switch, Table, Text } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { Fragment, useMemo, useState, type ReactNode } from "react";

import { lit, useHovered } from "../charts/hover";
import { useTheme } from "../charts/ink";
import { useLanguage, useWords } from "../i18n";
import { count } from "../i18n/format";
import { colourOf } from "../look/colours";
import { Wide } from "../look/Part";
import { State } from "../look/State";
import { useUrl } from "../look/url";
import css from "./compare.module.css";
import { compare, type Cell, type Kind, type Row } from "./diff";
import type { Side } from "./sides";
import { words } from "./words";

const BESIDE = 8;
const LINES = 100;
const KINDS: readonly Kind[] = ["fact", "param", "environment", "code", "metric"];

export function Differences({ sides, everything }: { sides: readonly Side[]; everything: boolean }): ReactNode {
  const w = useWords(words);
  const [, change] = useUrl();
  const rows = useMemo(() => compare(sides, 0, everything), [sides, everything]);
  return (
    <>
      <div className={css.tools}>
        <Switch label={w.onlyDiffering} checked={everything} onChange={(event) => change({ all: event.currentTarget.checked ? "1" : undefined })} />
        <Text size="sm" c="dimmed">
          {sides[0] && sides.length > 1 && w.against(sides[0].name)}
        </Text>
      </div>
      {rows.length < 2 && <Text c="dimmed">{w.nothingDiffers}</Text>}
      {sides.length <= BESIDE ? <Beside sides={sides} rows={rows} /> : <Lines sides={sides} rows={rows} />}
    </>
  );
}

function Name({ side, base }: { side: Side; base: boolean }): ReactNode {
  const w = useWords(words);
  const colour = colourOf(side.id, useTheme());
  return (
    <span {...lit(side.id)}>
      <span className={css.head}>
        <span className={css.swatch} style={{ borderColor: colour }} />
        <Anchor component={Link} to={`/jobs/${side.id}`} size="sm">
          {side.name}
        </Anchor>
      </span>
      {base && (
        <Text size="xs" c="dimmed" fw={400}>
          {w.baseline}
        </Text>
      )}
    </span>
  );
}

function Beside({ sides, rows }: { sides: readonly Side[]; rows: readonly Row[] }): ReactNode {
  const w = useWords(words);
  const hovered = useHovered();
  return (
    <Wide label={w.tabs.table}>
      <Table verticalSpacing={5} fz="sm" data-testid="differences">
        <Table.Thead>
          <Table.Tr>
            <Table.Td className={css.first} />
            {sides.map((side, at) => (
              <Table.Th key={side.id} scope="col" miw={120}>
                <Name side={side} base={at === 0 && sides.length > 1} />
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {KINDS.map((kind) => {
            const mine = rows.filter((row) => row.kind === kind);
            if (!mine.length) return null;
            return (
              <Fragment key={kind}>
                <Table.Tr className={css.kind}>
                  <Table.Th scope="colgroup" colSpan={sides.length + 1}>
                    {w.kinds[kind]}
                  </Table.Th>
                </Table.Tr>
                {mine.map((row) => (
                  <Table.Tr key={row.name}>
                    <Table.Th scope="row" fw={500} className={css.first}>
                      {row.name}
                    </Table.Th>
                    {row.cells.map((cell, at) => (
                      <Table.Td
                        key={sides[at]?.id}
                        className={css.cell}
                        bg={hovered === sides[at]?.id ? "var(--mantine-color-default-hover)" : undefined}
                        {...lit(sides[at]?.id ?? "")}
                      >
                        <Value row={row} cell={cell} />
                      </Table.Td>
                    ))}
                  </Table.Tr>
                ))}
              </Fragment>
            );
          })}
        </Table.Tbody>
      </Table>
    </Wide>
  );
}

function Value({ row, cell }: { row: Row; cell: Cell }): ReactNode {
  const w = useWords(words);
  if (row.name === "state" && row.kind === "fact") return <State state={cell.text} />;
  const mono = row.kind === "fact" || row.kind === "environment" || row.kind === "code";
  return (
    <div className={mono ? "mono" : cell.best ? css.best : ""}>
      {cell.text || <span className="quiet">–</span>}
      {cell.best && (
        <>
          {" "}
          <span aria-hidden="true">★</span>
          <span className="seen-only-by-readers">{w.best}</span>
        </>
      )}
      {cell.change && (
        <>
          {" "}
          <span className={css.change} data-better={String(cell.better)} title={cell.better === null ? "" : cell.better ? w.better : w.worse}>
            {cell.change}
          </span>
        </>
      )}
    </div>
  );
}

function Lines({ sides, rows }: { sides: readonly Side[]; rows: readonly Row[] }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const hovered = useHovered();
  const [all, setAll] = useState(false);
  const seen = all ? sides : sides.slice(0, LINES);
  return (
    <>
      <Wide label={w.tabs.table}>
        <Table verticalSpacing={4} fz="sm" data-testid="differences">
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col" className={css.first}>
                {w.job}
              </Table.Th>
              {rows.map((row) => (
                <Table.Th key={row.kind + row.name} scope="col">
                  {row.name}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {seen.map((side, at) => (
              <Table.Tr key={side.id} bg={hovered === side.id ? "var(--mantine-color-default-hover)" : undefined}>
                <Table.Th scope="row" className={css.first}>
                  <Name side={side} base={at === 0} />
                </Table.Th>
                {rows.map((row) => (
                  <Table.Td key={row.kind + row.name} className={css.cell}>
                    {row.cells[at] && <Value row={row} cell={row.cells[at]} />}
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      {seen.length < sides.length && (
        <Button size="xs" variant="subtle" mt="xs" onClick={() => setAll(true)}>
          {w.showMore(count(sides.length, language))}
        </Button>
      )}
    </>
  );
}
