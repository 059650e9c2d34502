/** The job as a command line, a job file and a script. */
import { CloseButton, Group, Paper, SegmentedControl, Skeleton } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { useWords } from "../../i18n";
import { Command } from "../../look/Command";
import { fetched } from "../../look/save";
import { Told } from "../../look/Told";
import type { Detail } from "./asking";
import { words } from "./words";

type Language = "cli" | "yaml" | "python";

export function Spellings({ job, close }: { job: Detail; close: () => void }): ReactNode {
  const w = useWords(words);
  const [language, setLanguage] = useState<Language>("cli");
  const { data, error } = useQuery({
    queryKey: ["spellings", job.id],
    queryFn: async () => (await (await fetched(`jobs/${job.id}/spellings`)).json()) as Record<Language, string>,
    staleTime: Infinity,
  });
  return (
    <Paper withBorder p="sm" w="min(560px, 100%)" component="section" aria-label={w.copyAs}>
      <Group justify="space-between" mb="xs" wrap="nowrap">
        <SegmentedControl
          size="xs"
          aria-label={w.copyAs}
          value={language}
          onChange={(value) => setLanguage(value as Language)}
          data={[{ value: "cli", label: "CLI" }, { value: "yaml", label: "YAML" }, { value: "python", label: "Python" }]}
        />
        <CloseButton aria-label={w.close} onClick={close} />
      </Group>
      {Boolean(error) && <Told error={error} />}
      {data ? <Command line={data[language]} /> : !error && <Skeleton h={36} />}
    </Paper>
  );
}
