/** The end of a chain, and a walk along all of it that trusts nobody. */
import { Alert, Button, Group, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { useAct } from "../look/Act";
import { Command, Copy } from "../look/Command";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Part, Waiting } from "../look/Part";
import { fetched } from "../look/save";
import { Told } from "../look/Told";
import css from "./audit.module.css";
import { digester, parseLine, Walk } from "./chain";
import { words } from "./words";

export function Head({ chain }: { chain: "project" | "server" }): ReactNode {
  const w = useWords(words);
  const { data, error } = useQuery({
    queryKey: ["audit", "head", chain],
    queryFn: () => got(api.GET("/api/v1/audit/head", { params: { query: { chain } } })),
  });
  const [done, setDone] = useState(0);
  const digest = digester();
  const check = useAct(() => walk(chain, setDone), []);
  const found = check.made;
  const verify = line("audit", "verify", chain === "server" && "--server", data && data.number > 0 && ["--head", `${data.number}:${data.hash}`]);
  return (
    <Part
      title={w.head}
      hint={w.headHint}
      actions={digest && (
        <Button size="xs" variant="default" leftSection={<Icon name="check" />} loading={check.busy} onClick={() => check.run()}>{w.check}</Button>
      )}
    >
      {error && <Told error={error} />}
      {!data && !error && <Waiting rows={2} />}
      {data && data.number === 0 && <Text size="sm">{w.empty}</Text>}
      {data && data.number > 0 && (
        <dl className={css.facts}>
          <dt>{w.end}</dt>
          <dd>
            <Group gap={4} wrap="nowrap">
              <span className="mono">{data.number}:{data.hash}</span>
              <Copy text={`${data.number}:${data.hash}`} label={w.end} />
            </Group>
          </dd>
          <dt>{w.noted}</dt>
          <dd>{data.noted_hash === data.hash ? w.same : data.noted_number ? w.behind(data.noted_number) : "–"}</dd>
        </dl>
      )}
      {data && data.lost.length > 0 && <Alert color="red" variant="light" my="sm" role="alert">{w.lost(data.lost.length)}</Alert>}
      <div role="status" data-testid="chain-check">
        {check.busy && <Text size="sm" mt="xs">{w.checking(done)}</Text>}
        {found && !found.broken && <Alert color="sea" variant="light" mt="sm">{w.sound(found.rows)}</Alert>}
        {found?.broken && <Alert color="red" variant="light" mt="sm">{w.broken(found.broken.row)} {w.whys[found.broken.why]}</Alert>}
      </div>
      {Boolean(check.error) && <Told error={check.error} />}
      <Text size="xs" c="dimmed" mt="sm" mb={2}>{digest ? w.cli : w.noCrypto}</Text>
      <Command line={verify} />
    </Part>
  );
} // prettier-ignore

/** Every row from the first, as the server sends them, against the end that it noted elsewhere. */
async function walk(chain: "project" | "server", told: (rows: number) => void): Promise<Walk> {
  const digest = digester();
  if (!digest) throw new Error("no digest");
  const head: Schema["AuditHead"] = await got(api.GET("/api/v1/audit/head", { params: { query: { chain } } }));
  const answer = await fetched("audit/export", { chain, format: "jsonl" });
  const found = new Walk(digest);
  let noted: string | undefined;
  const take = async (text: string): Promise<boolean> => {
    if (!text) return true;
    const row = parseLine(text);
    if (row.number === head.noted_number) noted = row.hash;
    const fits = await found.take(row);
    if (found.rows % 500 === 0) told(found.rows);
    return fits;
  };
  let rest = "";
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  for (let sound = true; sound; ) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : (lines.pop() ?? "");
    for (const each of lines) {
      sound = await take(each);
      if (!sound) break;
    }
    if (done) break;
  }
  if (found.broken) void reader.cancel();
  found.end({ number: head.noted_number, hash: head.noted_hash }, () => noted);
  return found;
}
