/** The Config tab: what was asked for, and how it differs from another job. */
import { Code, Table, Text, TextInput } from "@mantine/core";
import { useMemo, useState, type ReactNode } from "react";

import { useLanguage, useWords } from "../../i18n";
import { bytes, count } from "../../i18n/format";
import { Command } from "../../look/Command";
import { Icon } from "../../look/Icon";
import { JobPicker } from "../../look/JobPicker";
import { Part, Wide } from "../../look/Part";
import { Told } from "../../look/Told";
import { useUrl } from "../../look/url";
import { CodeDiff, CodeFiles } from "./Code";
import { differences, flat } from "./diff";
import { sizeOf } from "./failing";
import { useFacts, useJob, type Detail, type RunFacts } from "./asking";
import css from "./job.module.css";
import { words } from "./words";

export default function Config({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const facts = useFacts(job.id);
  const { spec } = job;
  const params = paramsOf(job, facts.data);
  const env = spec.environment;
  return (
    <>
      <div className={css.two}>
        <Part title={w.params}>
          {params.length ? (
            <Wide label={w.params}>
              <table className={css.rows}>
                <thead>
                  <tr>
                    <th scope="col">{w.param}</th>
                    <th scope="col">{w.value}</th>
                    <th scope="col">{w.source}</th>
                  </tr>
                </thead>
                <tbody>
                  {params.map(([name, value, source]) => (
                    <tr key={name}>
                      <th scope="row" className="mono" title={name}>{name}</th>
                      <td className="mono">{value}</td>
                      <td className="quiet">{source}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </Wide>
          ) : (
            <Text size="sm" c="dimmed">
              {w.noParamsFound}
            </Text>
          )}
        </Part>
        <Part title={w.command}>
          <Command line={job.command} />
          <Rows
            label={w.environment}
            rows={[
              [w.framework, job.framework],
              [w.python, env.python],
              [w.image, env.image],
              [w.variables, Object.entries(env.vars).map(([name, value]) => `${name}=${value}`).join("\n")],
              [w.secrets, env.secrets.length ? `${env.secrets.join(", ")} (${w.secretsHint})` : ""],
            ]}
          />
        </Part>
      </div>
      <Part title={w.resources}>
        <Wide label={w.resources}>
          <Table fz="sm" verticalSpacing={5}>
            <Table.Thead>
              <Table.Tr>
                {[w.role, w.count, w.ranksEach, w.gpus, w.cpus, w.memory].map((each) => (
                  <Table.Th key={each} scope="col">{each}</Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {Object.entries(spec.roles).map(([name, role]) => (
                <Table.Tr key={name}>
                  <Table.Th scope="row">{name}</Table.Th>
                  <Table.Td>{count(role.count, language)}</Table.Td>
                  <Table.Td>{count(role.nproc || role.gpus || 1, language)}</Table.Td>
                  <Table.Td>{role.gpu_share ? role.gpu_share : `${role.gpus}${role.gpu_model.length ? ` ${role.gpu_model.join(" / ")}` : ""}`}</Table.Td>
                  <Table.Td>{role.cpus || w.any}</Table.Td>
                  <Table.Td>{sizeOf(role.memory) ? bytes(sizeOf(role.memory), language) : w.any}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      </Part>
      <Part title={w.diff} hint={w.diffHint}>
        <Differences job={job} facts={facts.data} />
      </Part>
      <CodeFiles job={job} />
      <Settings job={job} />
    </>
  );
}

function Rows({ label, rows }: { label: string; rows: readonly (readonly [string, string | null | undefined])[] }): ReactNode {
  const shown = rows.filter(([, value]) => value);
  if (!shown.length) return null;
  return (
    <table className={css.rows} aria-label={label}>
      <tbody>
        {shown.map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td className="mono" style={{ whiteSpace: "pre-wrap" }}>{value}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Settings({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const [find, setFind] = useState("");
  const rows = useMemo(() => [...flat(job.spec)], [job.spec]);
  const shown = rows.filter(([name, value]) => `${name} ${value}`.toLowerCase().includes(find.toLowerCase()));
  return (
    <Part
      title={w.whole}
      actions={<TextInput size="xs" type="search" aria-label={w.filterRows} placeholder={w.filterRows} leftSection={<Icon name="search" size={14} />} value={find} onChange={(event) => setFind(event.currentTarget.value)} />}
    >
      <Wide label={w.whole}>
        <table className={css.rows}>
          <tbody>
            {shown.map(([name, value]) => (
              <tr key={name}>
                <th scope="row" className="mono" title={name}>{name}</th>
                <td className="mono">{value}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
    </Part>
  );
}

function Differences({ job, facts }: { job: Detail; facts: RunFacts | undefined }): ReactNode {
  const w = useWords(words);
  const [url, change] = useUrl();
  const other = url.with ?? job.rerun_of ?? "";
  return (
    <>
      <JobPicker
        size="xs"
        maw={360}
        label={w.diffWith}
        chosen={other && url.withName ? { id: other, name: url.withName } : null}
        without={[job.id]}
        clearable
        onChoose={(chosen) => change({ with: chosen?.id, withName: chosen?.name })}
      />
      {other && <Against job={job} facts={facts} other={other} />}
    </>
  );
}

function Against({ job, facts, other }: { job: Detail; facts: RunFacts | undefined; other: string }): ReactNode {
  const w = useWords(words);
  const found = useJob(other);
  const theirs = useFacts(found.data?.id ?? other);
  if (found.error) return <Told error={found.error} />;
  if (!found.data || !facts || !theirs.data) return null;
  const rows = differences(everything(job, facts), everything(found.data, theirs.data));
  return (
    <>
      {rows.length ? (
        <Wide label={w.diff}>
          <table className={css.rows} data-testid="differences">
            <thead>
              <tr>
                <th scope="col">{w.setting}</th>
                <th scope="col" title={job.name}>{w.here}</th>
                <th scope="col" title={found.data.name}>{found.data.name}</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.name}>
                  <th scope="row" className="mono" title={row.name}>{row.name}</th>
                  <td className="mono">{row.here ?? <Absent />}</td>
                  <td className="mono">{row.there ?? <Absent />}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Wide>
      ) : (
        <Text size="sm" mt="xs">
          {w.noDiff}
        </Text>
      )}
      {job.spec.code.bundle && found.data.spec.code.bundle && <CodeDiff job={job} other={found.data} />}
    </>
  );
}

function Absent(): ReactNode {
  const w = useWords(words);
  return <Code>{w.absent}</Code>;
}

function paramsOf(job: Detail, facts: RunFacts | undefined): [string, string, string][] {
  const found = new Map(Object.entries(job.spec.params).map(([name, value]) => [name, [String(value), "spec"] as [string, string]]));
  for (const [name, each] of Object.entries(facts?.params ?? {})) if (!found.has(name)) found.set(name, [each.value, each.source]);
  return [...found].map(([name, [value, source]]) => [name, value, source]);
}

/** Settings without what tells nothing, and parameters. */
function everything(job: Detail, facts: RunFacts): Map<string, string> {
  const { name: _name, code, ...rest } = job.spec;
  const found = flat(rest);
  if (code.bundle) found.set("code.bundle", code.bundle.slice(0, 12));
  for (const [name, value] of paramsOf(job, facts)) found.set(`params.${name}`, value);
  return found;
}
