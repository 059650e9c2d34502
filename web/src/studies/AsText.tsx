/** A study as a command, a file, or Python. */
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { stringify } from "yaml";

import type { Schema } from "../api/client";
import { useWords } from "../i18n";
import { Command } from "../look/Command";
import { Part } from "../look/Part";
import { useWho } from "../shell/who";
import { createLine, createPython, fileOf } from "./spec";
import { usualJob } from "./usual";
import { words } from "./words";

export default function AsText({ spec, form, close }: {
  spec: Schema["StudySpec"];
  form: "cli" | "yaml" | "python";
  close: () => void;
}): ReactNode {
  const w = useWords(words);
  const { data } = useQuery({ queryKey: ["usual-job"], queryFn: usualJob, staleTime: Infinity, enabled: useWho().may("job.write") });
  const file = fileOf(spec, data ?? {});
  const text = { cli: () => createLine(file), yaml: () => stringify(file, { lineWidth: 100 }), python: () => createPython(file) }[form]();
  return (
    <Part
      title={form === "cli" ? "CLI" : form === "yaml" ? "YAML" : "Python"}
      actions={
        <Button size="xs" variant="subtle" color="gray" onClick={close}>
          {w.close}
        </Button>
      }
    >
      <Command line={text} />
    </Part>
  );
}
