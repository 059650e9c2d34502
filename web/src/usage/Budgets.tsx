/** What projects and users may cost, and how far each is. */
import { Button, Group, SegmentedControl, Select, Stack, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { Cli, Sure, useAct } from "../look/Act";
import { fieldErrors } from "../look/fields";
import { Icon } from "../look/Icon";
import { line } from "../look/line";
import { Meter, Part, Waiting } from "../look/Part";
import { Told } from "../look/Told";
import { useUrl } from "../look/url";
import { useWho } from "../shell/who";
import { money } from "./money";
import { words } from "./words";

type Budget = Schema["BudgetView"];

export function Budgets(): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const who = useWho();
  const [url, change] = useUrl();
  const { data, error } = useQuery({ queryKey: ["usage", "budgets"], queryFn: () => got(api.GET("/api/v1/usage/budgets")) });
  const may = who.may("price.write");
  const editing = url["budget"];
  const edited = data?.items.find((each) => `${each.kind}/${each.name}` === editing);
  return (
    <>
      <Part title={w.budgets} hint={w.budgetsHint}
        actions={may && (
          <Button size="xs" variant="default" leftSection={<Icon name="plus" />} onClick={() => change({ budget: "new" })}>{w.setBudget}</Button>
        )}>
        {error && <Told error={error} />}
        {!data && !error && <Waiting />}
        {data && !data.items.length && <Text size="sm" c="dimmed">{w.noBudgets}</Text>}
        <Stack gap="md">
          {data?.items.map((each) => (
            <div key={`${each.kind}/${each.name}`} data-budget={each.name}>
              <Group justify="space-between" gap="xs" mb={4}>
                <Text size="sm"><b>{each.name}</b> <span className="quiet">{w.budgetOf[each.kind]} · {w.periods[each.period as "month"]} · {w.changed(each.by)}</span></Text>
                {may && (
                  <Group gap={4}>
                    <Button size="xs" variant="subtle" onClick={() => change({ budget: `${each.kind}/${each.name}` })} aria-label={`${w.edit}: ${each.name}`}>{w.edit}</Button>
                    <RemoveBudget budget={each} />
                  </Group>
                )}
              </Group>
              <Meter quiet label={`${w.budgets}: ${each.name}`} used={each.percent} total={100} tone={each.percent >= 100 ? "full" : each.percent >= 80 ? "warn" : "used"}
                said={`${money(Number(each.cost), language)} / ${money(Number(each.amount), language)} ${data.currency} · ${w.percent(each.percent)}`} />
              {each.spent && <Text size="sm" mt={4} fw={550}>{w.spent} ({w.onSpents[each.on_spent as "hold"]})</Text>}
            </div>
          ))}
        </Stack>
      </Part>
      {may && editing && <BudgetForm key={editing} budget={edited} close={() => change({ budget: undefined })} />}
    </>
  );
} // prettier-ignore

function RemoveBudget({ budget }: { budget: Budget }): ReactNode {
  const w = useWords(words);
  const { kind, name } = budget;
  const act = useAct(
    () => got(api.DELETE("/api/v1/usage/budgets/{kind}/{name}", { params: { path: { kind, name } } })),
    ["usage", "queues"],
  );
  return (
    <Sure label={w.remove} ask={w.askRemove} act={() => act.run()} busy={act.busy} error={act.error}
      aria-label={`${w.remove}: ${name}`} line={line("usage", "budget", "rm", name, kind === "user" && "--user")} />
  );
} // prettier-ignore

function BudgetForm({ budget, close }: { budget: Budget | undefined; close: () => void }): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const [kind, setKind] = useState<Budget["kind"]>(budget?.kind ?? "project");
  const [name, setName] = useState(budget?.name ?? who.project ?? "");
  const [amount, setAmount] = useState(budget?.amount ?? "");
  const [period, setPeriod] = useState<"month" | "total">((budget?.period as "month" | undefined) ?? "month");
  const [spent, setSpent] = useState<"hold" | "stop">((budget?.on_spent as "hold" | undefined) ?? "hold");
  const act = useAct(
    () =>
      got(
        api.PUT("/api/v1/usage/budgets/{kind}/{name}", {
          params: { path: { kind, name } },
          body: { amount, period, on_spent: spent },
        }),
      ),
    ["usage", "queues"],
    close,
  );
  const told = fieldErrors(act.error, ["name", "amount", "period", "on_spent"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    act.run();
  };
  return (
    <Part title={budget ? `${w.edit}: ${budget.name}` : w.setBudget}>
      <form onSubmit={submit}>
        <Stack gap="sm" maw={560}>
          {!budget && (
            <>
              <SegmentedControl aria-label={w.kind} data={(["project", "user"] as const).map((each) => ({ value: each, label: w.budgetOf[each] }))}
                value={kind} onChange={(next) => { setKind(next as Budget["kind"]); setName(next === "user" ? "" : (who.project ?? "")); }} />
              <TextInput label={w.name} value={name} required error={told.at.name} onChange={(event) => setName(event.currentTarget.value)} />
            </>
          )}
          <TextInput label={w.amount} value={amount} required inputMode="decimal" autoFocus error={told.at.amount} onChange={(event) => setAmount(event.currentTarget.value)} />
          <Select label={w.period} allowDeselect={false} data={(["month", "total"] as const).map((each) => ({ value: each, label: w.periods[each] }))}
            value={period} error={told.at.period} onChange={(next) => next && setPeriod(next as "month")} />
          <Select label={w.onSpent} allowDeselect={false} data={(["hold", "stop"] as const).map((each) => ({ value: each, label: w.onSpents[each] }))}
            value={spent} error={told.at.on_spent} onChange={(next) => next && setSpent(next as "hold")} />
          {Boolean(told.rest) && <Told error={told.rest} />}
          <Group gap="xs">
            <Button type="submit" loading={act.busy}>{w.save}</Button>
            <Button variant="default" onClick={close}>{w.cancel}</Button>
          </Group>
          <Cli line={line("usage", "budget", "set", name || "NAME", amount || "AMOUNT", kind === "user" && "--user",
            period !== "month" && ["--period", period], spent !== "hold" && ["--on-spent", spent])} />
        </Stack>
      </form>
    </Part>
  );
} // prettier-ignore
