/** What the server says of the job as it stands: starts now, waits for what, or what is wrong. */
import { Button, Group, Loader, Tabs, Text } from "@mantine/core";
import type { ReactNode } from "react";

import type { Schema } from "../../api/client";
import { useWords } from "../../i18n";
import { Copy } from "../../look/Command";
import { Icon } from "../../look/Icon";
import css from "./new.module.css";
import { words } from "./words";

export type DryRun = Schema["DryRun"];

export function Verdict({ found, asking, ready, wanted, problems, never, busy, sending, submit, may, yaml, sends, shrink }: {
  found: DryRun | undefined;
  asking: boolean;
  /** There is something to ask about. */
  ready: boolean;
  /** What it is that there is not. */
  wanted: string;
  /** What is wrong and stands at no field. */
  problems: readonly string[];
  never: boolean;
  busy: boolean;
  sending: string | null;
  submit: () => void;
  may: boolean;
  yaml: string;
  sends: boolean;
  /** Ask for as much as would start now. */
  shrink: (smaller: DryRun["smaller"]) => void;
}): ReactNode {
  const w = useWords(words);
  const now = found?.starts === "now";
  const wrong = problems.length > 0 || !found;
  const [tone, title] = !ready
    ? ["gray", wanted]
    : never
      ? ["red", w.never]
      : wrong
        ? asking
          ? ["gray", w.asking]
          : ["orange", w.notYet]
        : now
          ? ["teal", w.now]
          : ["yellow", w.waits];
  const spelled = { cli: found?.spellings.cli, yaml: found?.spellings.yaml ?? yaml, python: found?.spellings.python };
  const tabs = (["cli", "yaml", "python"] as const).filter((each) => spelled[each]);
  return (
    <div className={css.side}>
      <section className={css.card} aria-label={w.verdict} aria-live="polite" data-verdict={ready && !wrong && found ? found.starts : "wrong"}>
        <Group gap={8} wrap="nowrap" align="center">
          <span className="dot" style={{ background: `var(--mantine-color-${tone}-6)` }} />
          <Text fw={600}>{title}</Text>
          {asking && <Loader size={12} aria-hidden />}
        </Group>
        {ready && !wrong && found && (
          <>
            {!now && found.sentence && (
              <Text size="sm" mt={6}>
                {found.sentence}
              </Text>
            )}
            {!now && found.smaller.length > 0 && (
              <Text size="sm" mt={6}>
                {w.smaller}: {found.smaller.map((each) => w.shape(each.role, String(each.count), String(each.gpus))).join("; ")}{" "}
                <Button size="compact-xs" variant="light" onClick={() => shrink(found.smaller)}>
                  {w.takeSmaller}
                </Button>
              </Text>
            )}
            <Text size="xs" c="dimmed" mt={6}>
              {w.framed(found.framework)}
            </Text>
          </>
        )}
        {problems.map((each) => (
          <Text key={each} size="sm" mt={6} role="alert">
            {each}
          </Text>
        ))}
        {may ? (
          <Button fullWidth mt="md" onClick={submit} loading={busy} disabled={!ready} leftSection={<Icon name="play" />} data-testid="submit">
            {w.submit}
          </Button>
        ) : (
          <Text size="sm" c="dimmed" mt="md">
            {w.noRight}
          </Text>
        )}
        {sending && (
          <Text size="xs" c="dimmed" mt={6} role="status">
            {sending}
          </Text>
        )}
      </section>
      {ready && tabs.length > 0 && (
        <section className={css.card} aria-label={w.spelled}>
          <Tabs defaultValue={tabs[0]} key={tabs.join()}>
            <Tabs.List mb="xs">
              {tabs.map((each) => (
                <Tabs.Tab key={each} value={each}>
                  {each === "cli" ? w.cli : each === "yaml" ? "YAML" : "Python"}
                </Tabs.Tab>
              ))}
            </Tabs.List>
            {tabs.map((each) => (
              <Tabs.Panel key={each} value={each}>
                <Group align="flex-start" wrap="nowrap" gap={4}>
                  <pre className={css.spelled} style={{ flex: 1 }} tabIndex={0}>
                    {spelled[each]}
                  </pre>
                  <Copy text={spelled[each] as string} label={each === "cli" ? w.copyCli : each === "yaml" ? w.copyYaml : w.copyPython} />
                </Group>
              </Tabs.Panel>
            ))}
          </Tabs>
          {sends && (
            <Text size="xs" c="dimmed" mt={6}>
              {w.inFolder}
            </Text>
          )}
        </section>
      )}
    </div>
  );
}
