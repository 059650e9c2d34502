import { Kbd, Modal, Table } from "@mantine/core";
import type { ReactNode } from "react";

import { useWords } from "../i18n";
import { words } from "./words";

const ROWS: readonly [string, keyof (typeof words)["en"]["keyList"]][] = [
  ["⌘K", "palette"], ["/", "slash"], ["j", "down"], ["k", "up"], ["x", "select"], ["c", "compare"],
  ["↵", "open"], ["n", "newJob"], ["g h", "home"], ["g j", "jobs"], ["?", "help"], ["Esc", "escape"],
]; // prettier-ignore

export default function KeyHelp({ close }: { close: () => void }): ReactNode {
  const w = useWords(words);
  return (
    <Modal opened onClose={close} title={w.keysTitle} closeButtonProps={{ "aria-label": w.keyList.escape }}>
      <Table>
        <Table.Tbody>
          {ROWS.map(([key, word]) => (
            <Table.Tr key={key}>
              <Table.Td w={90}>
                <Kbd>{key}</Kbd>
              </Table.Td>
              <Table.Td>{w.keyList[word]}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Modal>
  );
}
