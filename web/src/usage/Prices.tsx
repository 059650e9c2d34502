/** What an hour of each resource costs. */
import { Button, Checkbox, Group, Stack, Table, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { moment } from "../i18n/format";
import { Cli, useAct } from "../look/Act";
import { fieldErrors } from "../look/fields";
import { line } from "../look/line";
import { Part, Waiting, Wide } from "../look/Part";
import { Told } from "../look/Told";
import { useWho } from "../shell/who";
import { words } from "./words";

export function Prices(): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const who = useWho();
  const [past, setPast] = useState(false);
  const { data, error } = useQuery({ queryKey: ["usage", "prices"], queryFn: () => got(api.GET("/api/v1/usage/prices")) });
  const units = w.unit as Record<string, string>;
  const shown = data?.items.filter((each) => past || each.state !== "past") ?? [];
  return (
    <>
      <Part title={w.prices} hint={`${w.pricesHint} ${data ? w.currency(data.currency) : ""}`}
        actions={data?.items.some((each) => each.state === "past") && (
          <Checkbox size="xs" label={w.past} checked={past} onChange={(event) => setPast(event.currentTarget.checked)} />
        )}>
        {error && <Told error={error} />}
        {!data && !error && <Waiting />}
        {data && !shown.length && <Text size="sm" c="dimmed">{w.noPrices}</Text>}
        {shown.length > 0 && (
          <Wide label={w.prices}>
            <Table miw={560} verticalSpacing={6}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{w.resource}</Table.Th><Table.Th ta="right">{w.price}</Table.Th><Table.Th>{w.state}</Table.Th>
                  <Table.Th>{w.effective}</Table.Th><Table.Th>{w.by_}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {shown.map((each) => (
                  <Table.Tr key={`${each.resource}-${each.effective}-${each.set}`}>
                    <Table.Td>{each.resource} <Text span size="xs" c="dimmed">{units[each.resource] ?? units["gpu"]}</Text></Table.Td>
                    <Table.Td ta="right">{each.price ?? "–"}</Table.Td>
                    <Table.Td>{w.states[each.state]}</Table.Td>
                    <Table.Td>{moment(each.effective, language)}</Table.Td>
                    <Table.Td>{each.by}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Wide>
        )}
      </Part>
      {who.may("price.write") && <SetPrice />}
    </>
  );
} // prettier-ignore

function SetPrice(): ReactNode {
  const w = useWords(words);
  const [resource, setResource] = useState("gpu");
  const [price, setPrice] = useState("");
  const [from, setFrom] = useState("");
  const act = useAct(
    () =>
      got(
        api.POST("/api/v1/usage/prices", {
          body: { resource, price: price.trim() || null, effective: from ? new Date(from).toISOString() : null },
        }),
      ),
    ["usage"],
    () => setPrice(""),
  );
  const told = fieldErrors(act.error, ["resource", "price", "effective"]);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    act.run();
  };
  return (
    <Part title={w.setPrice}>
      <form onSubmit={submit}>
        <Stack gap="sm" maw={640}>
          <Group grow align="start">
            <TextInput label={w.resource} description={w.resourceHint} value={resource} required error={told.at.resource} onChange={(event) => setResource(event.currentTarget.value)} />
            <TextInput label={w.price} description={w.priceHint} value={price} inputMode="decimal" error={told.at.price} onChange={(event) => setPrice(event.currentTarget.value)} />
            <TextInput label={w.effective} description={w.fromNow} type="datetime-local" value={from} error={told.at.effective} onChange={(event) => setFrom(event.currentTarget.value)} />
          </Group>
          {Boolean(told.rest) && <Told error={told.rest} />}
          <Group><Button type="submit" loading={act.busy}>{w.save}</Button></Group>
          <Cli line={line("usage", "price", "set", resource, price || "none", from && ["--from", new Date(from).toISOString()])} />
        </Stack>
      </form>
    </Part>
  );
} // prettier-ignore
