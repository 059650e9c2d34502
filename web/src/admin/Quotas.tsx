/** What projects own, lend and borrow: a tree of cohorts with what is in use. */
import { Badge, Button, Group, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { bytes, value } from "../i18n/format";
import { Cli } from "../look/Act";
import { Command } from "../look/Command";
import { Icon } from "../look/Icon";
import { Empty } from "../look/Page";
import { Meter, Part, Waiting } from "../look/Part";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { useWho } from "../shell/who";
import css from "./admin.module.css";
import { QuotaForm } from "./QuotaForm";
import { size, tree, writeAmounts, writeCaps } from "./quotas";
import { words } from "./words";

export function Quotas(): ReactNode {
  const w = useWords(words);
  const may = useWho().may("quota.write");
  const [url, change] = useUrl();
  const { data, error } = useQuery({ queryKey: ["quotas"], queryFn: () => got(api.GET("/api/v1/quotas")) });
  const editing = url["quota"];
  const close = (): void => change({ quota: undefined });
  return (
    <Part title={w.quotas.title} hint={w.quotas.hint}
      actions={may && <Button size="xs" leftSection={<Icon name="plus" />} onClick={() => change({ quota: "+" })}>{w.quotas.fresh}</Button>}>
      {error && <Told error={error} />}
      {!data && !error && <Waiting />}
      {data && may && editing === "+" && <QuotaForm page={data} close={close} />}
      {data && !data.items.length && (
        <Empty title={w.quotas.empty}>
          <Text c="dimmed" mb="sm">{w.quotas.emptyHint}</Text>
          <Command line="windlass quota set research --as-cohort && windlass quota set default --cohort research --gpus 8" />
        </Empty>
      )}
      {data && tree(data.items).map(({ quota, depth }) => (
        <div key={quota.name} className={css.quota} data-quota={quota.name} style={{ marginInlineStart: `min(${depth * 28}px, ${depth * 6}vw)` }}>
          {may && editing === quota.name ? <QuotaForm page={data} quota={quota} close={close} /> : (
            <One quota={quota} edit={may ? () => change({ quota: quota.name }) : undefined} />
          )}
        </div>
      ))}
      {data && data.items.length > 0 && <Cli line="windlass quota ls -o yaml > quotas.yaml" />}
    </Part>
  );
} // prettier-ignore

function One({ quota, edit }: { quota: Schema["QuotaView"]; edit: (() => void) | undefined }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const names = [...new Set([...Object.keys(quota.nominal ?? {}), ...Object.keys(quota.used ?? {})])];
  const facts: [string, string][] = [
    [w.quotas.borrow, writeAmounts(quota.borrow)],
    [w.quotas.lend, writeAmounts(quota.lend)],
    [w.quotas.weight, quota.weight === 1 ? "" : String(quota.weight)],
    [w.quotas.caps, writeCaps(quota.caps).replaceAll("\n", "; ")],
  ];
  return (
    <>
      <Group justify="space-between" gap="xs">
        <Group gap={8}>
          <Text fw={600} size="sm">{quota.name}</Text>
          <Badge size="sm" variant="default" tt="none">{quota.cohort ? w.quotas.cohort : w.quotas.project}</Badge>
          {quota.exists === false && !quota.cohort && <Text size="xs" c="dimmed">{w.quotas.missing}</Text>}
        </Group>
        {edit && <Button size="xs" variant="subtle" onClick={edit} aria-label={`${w.edit}: ${quota.name}`}>{w.edit}</Button>}
      </Group>
      <div className={css.meters}>
        {names.map((name) => {
          const [used, owns] = [size(quota.used?.[name]), size(quota.nominal?.[name])];
          const said = (amount: number): string => (name === "memory" ? bytes(amount, language) : value(amount, language));
          return (
            <Meter key={name} label={w.quotas.resources[name] ?? name} used={used} total={Math.max(owns, used)} tone={used > owns ? "warn" : "used"}
              mark={used > owns ? owns : undefined} said={`${w.quotas.of(said(used), said(owns))}${used > owns ? ` · ${w.quotas.borrowed}` : ""}`} />
          );
        })}
        {!names.length && <Text size="sm" c="dimmed">{w.quotas.unmetered}</Text>}
      </div>
      <Text size="xs" c="dimmed">{facts.filter(([, said]) => said).map(([name, said]) => `${name}: ${said}`).join(" · ")}</Text>
    </>
  );
} // prettier-ignore
