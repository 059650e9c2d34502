/** One quota, as the command line would set it. */
import { Button, Group, NumberInput, Select, Stack, Switch, Textarea, TextInput } from "@mantine/core";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got, type Schema } from "../api/client";
import { useWords } from "../i18n";
import { Cli, Sure, useAct } from "../look/Act";
import { fieldErrors } from "../look/fields";
import { line } from "../look/line";
import { Told } from "../look/Told";
import { parseAmounts, parseCaps, writeAmounts, writeCaps } from "./quotas";
import { words } from "./words";

export function QuotaForm({ page, quota, close }: { page: Schema["QuotaPage"]; quota?: Schema["QuotaView"]; close: () => void }): ReactNode {
  const w = useWords(words);
  const [name, setName] = useState(quota?.name ?? "");
  const [cohort, setCohort] = useState(quota?.cohort ?? false);
  const [parent, setParent] = useState<string | null>(quota?.parent ?? null);
  const [nominal, setNominal] = useState(writeAmounts(quota?.nominal));
  const [borrow, setBorrow] = useState(writeAmounts(quota?.borrow));
  const [lend, setLend] = useState(writeAmounts(quota?.lend));
  const [weight, setWeight] = useState<number | string>(quota?.weight ?? 1);
  const [reclaim, setReclaim] = useState(quota?.reclaim_any ?? false);
  const [caps, setCaps] = useState(writeCaps(quota?.caps));
  const read = { nominal: parseAmounts(nominal), borrow: parseAmounts(borrow), lend: parseAmounts(lend), caps: parseCaps(caps) };
  const wrong = Object.values(read).some((each) => each.wrong);
  const path = { params: { path: { name: name.trim() } } };
  const act = useAct(
    () =>
      got(
        api.PUT("/api/v1/quotas/{name}", {
          ...path,
          body: {
            cohort, parent, nominal: read.nominal.amounts, borrow: read.borrow.amounts, lend: read.lend.amounts,
            weight: Number(weight), reclaim_any: reclaim, caps: cohort ? [] : read.caps.caps, revision: page.revision,
          },
        }),
      ), // prettier-ignore
    ["quotas", "queues"],
    close,
  );
  const gone = useAct(() => got(api.DELETE("/api/v1/quotas/{name}", path)), ["quotas", "queues"], close);
  const told = fieldErrors(act.error, ["name", "cohort", "parent", "nominal", "borrow", "lend", "weight", "caps"]);
  const bad = (field: "nominal" | "borrow" | "lend"): string | undefined =>
    read[field].wrong ? w.quotas.notAmounts(read[field].wrong as string) : told.at[field];
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!wrong) act.run();
  };
  const cohorts = page.items.filter((each) => each.cohort && each.name !== name).map((each) => each.name);
  const amounts = (flag: string, found: Record<string, number | string>): string[][] =>
    Object.entries(found).map(([resource, amount]) => [flag, `${resource}=${amount}`]);
  return (
    <form onSubmit={submit} aria-label={quota ? `${w.edit}: ${quota.name}` : w.quotas.fresh}>
      <Stack gap="sm" maw={600} mb="md">
        {!quota && (
          <>
            <TextInput label={w.name} value={name} required autoFocus autoComplete="off" error={told.at.name} onChange={(event) => setName(event.currentTarget.value)} />
            <Switch label={w.quotas.asCohort} checked={cohort} onChange={(event) => setCohort(event.currentTarget.checked)} />
          </>
        )}
        <Select label={w.quotas.parent} placeholder={w.quotas.noParent} clearable data={cohorts} value={parent} error={told.at.parent} onChange={setParent} />
        <TextInput label={w.quotas.owns} description={w.quotas.amountsHint} value={nominal} error={bad("nominal")} onChange={(event) => setNominal(event.currentTarget.value)} />
        <TextInput label={w.quotas.borrow} description={w.quotas.borrowHint} value={borrow} error={bad("borrow")} onChange={(event) => setBorrow(event.currentTarget.value)} />
        <TextInput label={w.quotas.lend} description={w.quotas.lendHint} value={lend} error={bad("lend")} onChange={(event) => setLend(event.currentTarget.value)} />
        <NumberInput label={w.quotas.weight} value={weight} onChange={setWeight} error={told.at.weight} maw={160} />
        {!cohort && (
          <Textarea label={w.quotas.caps} description={w.quotas.capsHint} value={caps} autosize minRows={1}
            error={read.caps.wrong ? w.quotas.notCap(read.caps.wrong) : told.at.caps} onChange={(event) => setCaps(event.currentTarget.value)} />
        )}
        <Switch label={w.quotas.reclaim} checked={reclaim} onChange={(event) => setReclaim(event.currentTarget.checked)} />
        {Boolean(told.rest) && <Told error={told.rest} />}
        <Group gap="xs"><Button type="submit" loading={act.busy} disabled={wrong}>{w.save}</Button><Button variant="default" onClick={close}>{w.cancel}</Button></Group>
        <Cli line={line("quota", "set", name.trim() || "NAME", cohort && "--as-cohort", parent && ["--cohort", parent],
          ...amounts("--nominal", read.nominal.amounts), ...amounts("--borrow", read.borrow.amounts), ...amounts("--lend", read.lend.amounts),
          Number(weight) !== 1 && ["--weight", String(weight)], reclaim && "--reclaim-any",
          ...(cohort ? [] : caps.split("\n").map((each) => each.trim()).filter(Boolean).map((each) => ["--cap", each])))} />
        {quota && (
          <div>
            <Sure label={w.remove} ask={w.quotas.removeAsk} name={quota.name} act={() => gone.run()} busy={gone.busy} error={gone.error} line={line("quota", "rm", quota.name)} />
          </div>
        )}
      </Stack>
    </form>
  );
} // prettier-ignore
