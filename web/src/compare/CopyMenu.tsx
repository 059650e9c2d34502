/** The comparison as text, into the clipboard. */
import { Button, Menu, Textarea } from "@mantine/core";
import { useState, type ReactNode } from "react";

import { useWords } from "../i18n";
import { Icon } from "../look/Icon";
import { compare } from "./diff";
import { commandFor, csv, grid, latex, markdown } from "./exporting";
import type { Side } from "./sides";
import { words } from "./words";

export function CopyMenu({ sides, everything, where }: { sides: readonly Side[]; everything: boolean; where: string }): ReactNode {
  const w = useWords(words);
  const [said, setSaid] = useState<"" | "copied" | "refused">("");
  const [text, setText] = useState("");
  const copy = async (made: string): Promise<void> => {
    try {
      await navigator.clipboard.writeText(made);
      setSaid("copied");
      setTimeout(() => setSaid(""), 2000);
    } catch {
      setText(made); // no right to the clipboard, or no https
      setSaid("refused");
    }
  };
  const rows = (): ReturnType<typeof compare> => compare(sides, 0, everything);
  const forms: readonly [string, () => string][] = [
    [w.csv, () => csv(sides, rows())],
    [w.markdown, () => markdown(grid(sides, rows()))],
    [w.latex, () => latex(grid(sides, rows()))],
    [w.cli, () => commandFor(sides, 0, everything, where)],
    [w.link, () => location.href],
  ];
  return (
    <>
      <Menu position="bottom-end">
        <Menu.Target>
          <Button size="xs" variant="default" leftSection={<Icon name={said === "copied" ? "check" : "copy"} size={14} />} disabled={!sides.length}>
            {said === "copied" ? w.copied : w.copy}
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          {forms.map(([label, make]) => (
            <Menu.Item key={label} onClick={() => void copy(make())}>
              {label}
            </Menu.Item>
          ))}
        </Menu.Dropdown>
      </Menu>
      {said === "refused" && <Textarea label={w.cannotCopy} value={text} readOnly autosize maxRows={8} w="100%" onFocus={(event) => event.currentTarget.select()} />}
    </>
  );
}
