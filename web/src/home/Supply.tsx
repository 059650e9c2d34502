/** What is free now, and how much of the quota and the budget is used. */
import { Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { api, got } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { bytes, count, value } from "../i18n/format";
import { useWho } from "../shell/who";
import { money } from "../usage/money";
import css from "./home.module.css";
import { amount } from "./outlook";
import { words } from "./words";

/** What is meant, how much of how much, and below it the bar. */
function Bar({ label, said, used, all }: { label: string; said: ReactNode; used: number; all: number }): ReactNode {
  const part = all > 0 ? Math.min(used / all, 1) : 0;
  return (
    <div>
      <Group justify="space-between" align="baseline" gap="4px 12px">
        <Text size="sm" c="dimmed">
          {label}
        </Text>
        <Text size="sm" ta="right">
          {said}
        </Text>
      </Group>
      <div className={css.bar} data-full={used >= all} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(part * 100)}>
        <span style={{ width: `${part * 100}%` }} />
      </div>
    </div>
  );
}

export function Free(): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const who = useWho();
  const { data } = useQuery({ queryKey: ["nodes"], queryFn: () => got(api.GET("/api/v1/nodes")), enabled: who.may("node.read") });
  if (!data) return null;
  const ready = data.items.filter((each) => each.state === "ready");
  const sum = (pick: (of: { cpus_milli: number; memory_bytes: number; gpus: number }) => number): { free: number; all: number } => ({
    free: ready.reduce((total, each) => total + (each.free ? pick(each.free) : 0), 0),
    all: ready.reduce((total, each) => total + pick(each.capacity), 0),
  });
  const shown = [
    { key: "gpus" as const, ...sum((of) => of.gpus), say: (of: number) => count(of, language) },
    { key: "cpus" as const, ...sum((of) => of.cpus_milli / 1000), say: (of: number) => value(of, language) },
    { key: "memory" as const, ...sum((of) => of.memory_bytes), say: (of: number) => bytes(of, language) },
  ].filter((each) => each.all > 0);
  const away = data.items.length - ready.length;
  return (
    <section aria-label={w.free}>
      <div className={css.card}>
        <Stack gap="sm">
          {shown.map((each) => (
            <Bar
              key={each.key}
              label={w.free_[each.key]}
              said={
                <>
                  <span className={css.stat}>{each.say(each.free)}</span> {w.ofAll(each.say(each.all))}
                </>
              }
              used={each.all - each.free}
              all={each.all}
            />
          ))}
        </Stack>
      </div>
      {away > 0 && (
        <Text size="xs" c="dimmed" mt={4}>
          <Link to="/nodes">{w.notReady(count(away, language))}</Link>
        </Text>
      )}
    </section>
  );
}

/** Nothing where neither is set. */
export function Limits({ title }: { title: (children: ReactNode) => ReactNode }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const who = useWho();
  const quotas = useQuery({ queryKey: ["quotas"], queryFn: () => got(api.GET("/api/v1/quotas")), enabled: who.may("quota.read") });
  const budgets = useQuery({ queryKey: ["usage", "budgets"], queryFn: () => got(api.GET("/api/v1/usage/budgets")), enabled: who.may("usage.read") });
  const mine = quotas.data?.items.find((each) => !each.cohort && each.name === who.project);
  const owned = Object.entries(mine?.nominal ?? {}) as [string, number | string][];
  const used = (mine?.used ?? {}) as Record<string, number | string>;
  const spent = (budgets.data?.items ?? []).filter((each) => each.name === (each.kind === "user" ? who.user : who.project));
  if (!owned.length && !spent.length) return null;
  const say = (resource: string, of: number): string => (resource === "memory" ? bytes(of, language) : value(of, language));
  return title(
    <div className={css.card}>
      <Stack gap="sm">
        {owned.map(([resource, nominal]) => {
          const all = amount(nominal);
          const now = amount(used[resource] ?? 0);
          const label = (w.quota as Record<string, string>)[resource] ?? resource;
          return <Bar key={resource} label={label} used={now} all={all} said={w.percent(say(resource, now), say(resource, all))} />;
        })}
        {spent.map((each) => (
          <Bar
            key={each.kind + each.name}
            label={w.budget(each.name, (w.periods as Record<string, string>)[each.period] ?? each.period)}
            used={each.percent}
            all={100}
            said={`${w.percent(money(Number(each.cost), language), money(Number(each.amount), language))} ${budgets.data?.currency ?? ""}`}
          />
        ))}
      </Stack>
    </div>,
  );
}
