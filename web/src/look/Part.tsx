/** Parts of a page: a framed piece with a title, a table that scrolls by itself, a bar. */
import { Group, Paper, Skeleton, Text, Title } from "@mantine/core";
import { useId, type ReactNode } from "react";

import { useWords } from "../i18n";
import { words } from "./actWords";
import css from "./part.module.css";

export function Part({ title, hint, actions, children, ...rest }: {
  title: string;
  hint?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  id?: string;
}): ReactNode {
  const id = useId();
  return (
    <Paper component="section" withBorder p="md" radius="md" mb="md" aria-labelledby={id} {...rest}>
      <Group justify="space-between" align="start" mb="sm" gap="xs">
        <div className={css.head}>
          <Title order={2} id={id}>
            {title}
          </Title>
          {hint && (
            <Text size="sm" c="dimmed" component="div">
              {hint}
            </Text>
          )}
        </div>
        {actions && <Group gap="xs">{actions}</Group>}
      </Group>
      {children}
    </Paper>
  );
}

/** A table wider than the page scrolls in its own box, by keyboard too. */
export function Wide({ label, children }: { label: string; children: ReactNode }): ReactNode {
  return (
    <div className="scroll-x" tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}

/** What is opened below a row of a wide table. */
export function Opened({ children }: { children: ReactNode }): ReactNode {
  return <div className={css.detail}>{children}</div>;
}

export type MeterTone = "used" | "warn" | "full";

/** How much of how much, as a bar and in words. `mark` is a second boundary on the bar. */
export function Meter({ label, used, total, said, tone = "used", mark, quiet }: {
  label: string;
  used: number;
  total: number;
  /** Written beside it; else "3 of 4". */
  said: string;
  tone?: MeterTone;
  mark?: number | undefined;
  quiet?: boolean;
}): ReactNode {
  const part = total > 0 ? Math.min(1, Math.max(0, used / total)) : 0;
  return (
    <div className={css.meter}>
      {!quiet && <span className={css.name}>{label}</span>}
      <div
        className={css.track}
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={total || 1}
        aria-valuenow={Math.min(used, total || 1)}
        aria-valuetext={said}
      >
        <div className={css.fill} data-tone={tone} style={{ width: `${part * 100}%` }} />
        {mark !== undefined && total > 0 && (
          <div className={css.mark} style={{ left: `${Math.min(1, mark / total) * 100}%` }} />
        )}
      </div>
      <span className={css.said}>{said}</span>
    </div>
  );
}

export function useOf(): (used: string, total: string) => string {
  return useWords(words).of;
}

export function Waiting({ rows = 4 }: { rows?: number }): ReactNode {
  return (
    <div aria-hidden="true">
      {Array.from({ length: rows }, (_, at) => (
        <Skeleton key={at} h={20} mb={10} radius="sm" />
      ))}
    </div>
  );
}
