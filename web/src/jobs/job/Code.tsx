/** The code a job ran with: its files, and what is different from another's. */
import { Button, Group, NavLink, ScrollArea, Skeleton, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { useLanguage, useWords } from "../../i18n";
import { bytes, count } from "../../i18n/format";
import { Copy } from "../../look/Command";
import { Icon } from "../../look/Icon";
import { Part } from "../../look/Part";
import { fetched, save } from "../../look/save";
import { Told } from "../../look/Told";
import { useUrl } from "../../look/url";
import { diffLines } from "./diff";
import type { Detail } from "./asking";
import css from "./job.module.css";
import { words } from "./words";

interface CodeFile {
  path: string;
  size: number;
}
interface FileChange {
  path: string;
  change: "added" | "removed" | "changed";
  diff: string | null;
}
const MOST_BYTES = 512_000;
const MOST_FILES = 500;

export function pathOf(path: string): string {
  return path.split("/").map(encodeURIComponent).join("/");
}

export function CodeFiles({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const [url, change] = useUrl();
  const { bundle, git, ref, commit } = job.spec.code;
  const { data, error } = useQuery({
    queryKey: ["code", job.id],
    enabled: Boolean(bundle),
    staleTime: Infinity,
    queryFn: async () => ((await (await fetched(`jobs/${job.id}/code`)).json()) as { files: CodeFile[] }).files,
  });
  if (!bundle && !git) {
    return (
      <Part title={w.code}>
        <Text size="sm" c="dimmed">
          {w.noCode}
        </Text>
      </Part>
    );
  }
  const file = data?.find((each) => each.path === url.code);
  return (
    <Part title={w.code} hint={<>{bundle && <span className="mono" title={bundle}>{`${w.bundle} ${bundle.slice(0, 12)}`}</span>}{data && ` · ${w.codeFiles(count(data.length, language))}`}</>}>
      {git && (
        <table className={css.rows} aria-label={w.git} data-testid="repository">
          <tbody>
            <tr>
              <th scope="row">{w.repository}</th>
              <td className="mono">{git}</td>
            </tr>
            <tr>
              <th scope="row">{w.ref}</th>
              <td className="mono">{ref ?? w.defaultBranch}</td>
            </tr>
            <tr>
              <th scope="row">{w.commit}</th>
              <td>
                {commit ? (
                  <Group gap={4} wrap="nowrap">
                    <span className="mono clip" title={commit}>{commit}</span>
                    <Copy text={commit} />
                  </Group>
                ) : (
                  <span className="quiet">{w.noCommit}</span>
                )}
              </td>
            </tr>
          </tbody>
        </table>
      )}
      {Boolean(error) && <Told error={error} />}
      {data && (
        <Group align="start" wrap="nowrap" gap="md" className={css.code}>
          <ScrollArea.Autosize mah={420} w={260} miw={120} type="auto" viewportProps={{ tabIndex: 0, "aria-label": w.code, role: "region" }}>
            {data.slice(0, MOST_FILES).map((each) => (
              <NavLink
                key={each.path}
                component="button"
                active={each.path === url.code}
                label={<span className="mono">{each.path}</span>}
                description={bytes(each.size, language)}
                onClick={() => change({ code: each.path === url.code ? undefined : each.path }, true)}
                py={4}
              />
            ))}
            {data.length > MOST_FILES && <Text size="xs" c="dimmed" p="xs">{w.moreRanks(count(data.length - MOST_FILES, language))}</Text>}
          </ScrollArea.Autosize>
          {file && <CodeText key={file.path} job={job} file={file} />}
        </Group>
      )}
    </Part>
  );
}

function CodeText({ job, file }: { job: Detail; file: CodeFile }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const small = file.size <= MOST_BYTES;
  const { data, error } = useQuery({
    queryKey: ["code", job.id, file.path],
    enabled: small,
    staleTime: Infinity,
    queryFn: async () => (await fetched(`jobs/${job.id}/code/${pathOf(file.path)}`)).text(),
  });
  return (
    <div style={{ flex: 1, minWidth: 0 }}>
      <Group justify="space-between" wrap="nowrap">
        <Text className="mono clip" title={file.path}>{file.path}</Text>
        {data !== undefined && <Copy text={data} />}
      </Group>
      {!small && (
        <Group>
          <Text size="sm">{w.tooBig(bytes(file.size, language), bytes(MOST_BYTES, language))}</Text>
          <Button size="xs" variant="default" leftSection={<Icon name="download" size={14} />} onClick={() => void save(`jobs/${job.id}/code/${pathOf(file.path)}`, {}, file.path.split("/").at(-1) ?? "file")}>
            {w.download}
          </Button>
        </Group>
      )}
      {Boolean(error) && <Told error={error} />}
      {small && !error && (data === undefined ? <Skeleton h={120} /> : <pre className={css.pre} tabIndex={0} aria-label={file.path} style={{ maxHeight: 420 }}>{data}</pre>)}
    </div>
  );
}

export function CodeDiff({ job, other }: { job: Detail; other: Detail }): ReactNode {
  const w = useWords(words);
  const { data, error } = useQuery({
    queryKey: ["code-diff", job.id, other.id],
    staleTime: Infinity,
    queryFn: async () => {
      const found = (await (await fetched(`jobs/${job.id}/code-diff`, { against: other.id })).json()) as { items?: FileChange[] } | FileChange[];
      return Array.isArray(found) ? found : (found.items ?? []);
    },
  });
  const [open, setOpen] = useState<string | null>(null);
  if (error) return <Told error={error} />;
  if (!data) return null;
  if (!data.length) return <Text size="sm" mt="xs" c="dimmed">{w.noCodeDiff}</Text>;
  return (
    <>
      <Text fw={600} size="sm" mt="md">{w.codeDiff}</Text>
      {data.slice(0, MOST_FILES).map((each) => (
        <div key={each.path}>
          <NavLink
            component="button"
            label={<span className="mono">{each.path}</span>}
            description={w[each.change] + (each.diff === null && each.change === "changed" ? ` · ${w.binary}` : "")}
            disabled={each.diff === null}
            opened={open === each.path}
            onClick={() => setOpen(open === each.path ? null : each.path)}
            aria-expanded={open === each.path}
          />
          {open === each.path && each.diff !== null && (
            <div className={css.diff} tabIndex={0} role="region" aria-label={each.path}>
              {diffLines(each.diff.slice(0, MOST_BYTES)).map((line, at) => (
                <div key={at} data-kind={line.kind}>{line.text}</div>
              ))}
            </div>
          )}
        </div>
      ))}
    </>
  );
}
