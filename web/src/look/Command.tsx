/** A line for the terminal, with a button that copies it. */
import { ActionIcon, CopyButton, Group, Tooltip } from "@mantine/core";
import type { ReactNode } from "react";

import { useWords } from "../i18n";
import { Icon } from "./Icon";
import { words } from "./words";

export function Copy({ text, label }: { text: string; label?: string }): ReactNode {
  const w = useWords(words);
  return (
    <CopyButton value={text}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? w.copied : (label ?? w.copy)}>
          <ActionIcon variant="subtle" color="gray" onClick={copy} aria-label={label ?? w.copy}>
            <Icon name={copied ? "check" : "copy"} />
          </ActionIcon>
        </Tooltip>
      )}
    </CopyButton>
  );
}

export function Command({ line }: { line: string }): ReactNode {
  return (
    <Group
      wrap="nowrap"
      gap="xs"
      px="sm"
      py={4}
      style={{ border: "1px solid var(--line)", borderRadius: 8, background: "var(--mantine-color-default)" }}
    >
      <code className="mono" style={{ flex: 1, whiteSpace: "pre-wrap" }}>
        {line}
      </code>
      <Copy text={line} />
    </Group>
  );
}
