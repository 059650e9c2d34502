/** Title, what can be done, and below it the page. */
import { Box, Group, Title } from "@mantine/core";
import { useEffect, type ReactNode } from "react";

export function Page({ title, name, actions, children }: {
  title: ReactNode;
  /** For the browser's tab, where the title is more than a word. */
  name?: string;
  actions?: ReactNode;
  children: ReactNode;
}): ReactNode {
  const tab = name ?? (typeof title === "string" ? title : "");
  useEffect(() => {
    document.title = tab ? `${tab} · Windlass` : "Windlass";
  }, [tab]);
  return (
    <Box component="article">
      <Group justify="space-between" mb="md" gap="sm" align="center">
        <Title order={1}>{title}</Title>
        {actions && <Group gap="xs">{actions}</Group>}
      </Group>
      {children}
    </Box>
  );
}

/** An empty page holds one thing that can be done. */
export function Empty({ title, children }: { title: string; children?: ReactNode }): ReactNode {
  return (
    <Box ta="center" py={64} px="md" maw={620} mx="auto">
      <Title order={2} mb="xs">
        {title}
      </Title>
      {children}
    </Box>
  );
}
