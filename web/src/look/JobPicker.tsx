/** Choose a job by a few letters of its name. */
import { Loader, Select, type SelectProps } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { api, got } from "../api/client";
import { Icon } from "./Icon";

interface Found {
  id: string;
  name: string;
}

/** Runs whose name has the text in it; without text the newest. */
async function find(text: string): Promise<Found[]> {
  const safe = text.replace(/['"\\%_]/g, "");
  const page = await got(
    api.GET("/api/v1/runs", {
      params: { query: { filter: safe ? `name ilike '%${safe}%'` : "", columns: "params.none", limit: 20 } },
    }),
  );
  return page.items.map((each) => ({ id: String(each.id), name: String(each.name) }));
}

export function JobPicker({ chosen, onChoose, without = [], ...rest }: {
  chosen: Found | null;
  onChoose: (job: Found | null) => void;
  /** Ids that are not offered. */
  without?: readonly string[];
} & Omit<SelectProps, "data" | "value" | "onChange" | "searchValue">): ReactNode {
  const [text, setText] = useState(chosen?.name ?? "");
  const [asked] = useDebouncedValue(text === chosen?.name ? "" : text.trim(), 150);
  const { data, isFetching } = useQuery({
    queryKey: ["runs", "pick", asked],
    queryFn: () => find(asked),
    placeholderData: (before) => before,
  });
  const all = new Map([...(data ?? []), ...(chosen ? [chosen] : [])].map((each) => [each.id, each]));
  for (const id of without) all.delete(id);
  const times = new Map<string, number>();
  for (const each of all.values()) times.set(each.name, (times.get(each.name) ?? 0) + 1);
  return (
    <Select
      searchable
      data={[...all.values()].map((each) => ({
        value: each.id,
        label: (times.get(each.name) ?? 0) > 1 ? `${each.name} (${each.id.slice(0, 8)})` : each.name,
      }))}
      value={chosen?.id ?? null}
      searchValue={text}
      onSearchChange={setText}
      onChange={(id) => onChoose((id && all.get(id)) || null)}
      filter={({ options }) => options}
      leftSection={<Icon name="search" size={14} />}
      rightSection={isFetching ? <Loader size={14} /> : undefined}
      {...rest}
    />
  );
}
