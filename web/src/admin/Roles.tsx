/** Which role has which right: the one table that decides, see tests/web/test_rights_table.py. */
import { Table, Text } from "@mantine/core";
import type { ReactNode } from "react";

import type { Schema } from "../api/client";
import { useWords } from "../i18n";
import { Icon } from "../look/Icon";
import { Part, Wide } from "../look/Part";
import { useWho } from "../shell/who";
import rights from "./rights.json";
import { words } from "./words";

type Role = keyof typeof rights.roles;
const ROLES: readonly Role[] = ["viewer", "member", "maintainer", "auditor", "admin", "owner"];

export function Roles(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const said = w.right as Record<string, string>;
  const yes = (has: boolean): ReactNode =>
    has ? <><Icon name="check" /><span className="seen-only-by-readers">{w.rights.has}</span></>
    : <span className="seen-only-by-readers">{w.rights.hasNot}</span>; // prettier-ignore
  return (
    <Part title={w.rights.title} hint={w.rights.hint}>
      <Wide label={w.rights.title}>
        <Table miw={760} verticalSpacing={4} striped highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th rowSpan={2}>{w.rights.right}</Table.Th>
              <Table.Th colSpan={3} ta="center">{w.rights.inProject}</Table.Th>
              <Table.Th colSpan={3} ta="center">{w.rights.inOrg}</Table.Th>
              <Table.Th rowSpan={2} ta="center">{w.rights.yours}</Table.Th>
            </Table.Tr>
            <Table.Tr>
              {ROLES.map((role) => <Table.Th key={role} ta="center" title={w.roleSays[role]}>{w.roles[role]}</Table.Th>)}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rights.rights.map((right) => (
              <Table.Tr key={right}>
                <Table.Td><span className="mono">{right}</span><Text size="xs" c="dimmed">{said[right]}</Text></Table.Td>
                {ROLES.map((role) => <Table.Td key={role} ta="center">{yes(rights.roles[role].includes(right))}</Table.Td>)}
                <Table.Td ta="center">{yes(who.may(right as Schema["Right"]))}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
    </Part>
  );
} // prettier-ignore
