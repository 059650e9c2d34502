/** A page that broke tells so, and the rest of the frame stays. */
import { Button, Code } from "@mantine/core";
import type { ReactNode } from "react";

import { Refused } from "../api/client";
import { useWords } from "../i18n";
import { Empty } from "../look/Page";
import { Told } from "../look/Told";
import { words } from "./words";

export function Broken({ error }: { error: unknown }): ReactNode {
  const w = useWords(words);
  if (error instanceof Refused) return <Told error={error} again={() => location.reload()} />;
  return (
    <Empty title={w.broken}>
      <p>{w.brokenHint}</p>
      <Code block ta="left" mb="md">
        {error instanceof Error ? `${error.name}: ${error.message}` : String(error)}
      </Code>
      <Button onClick={() => location.reload()}>{w.reload}</Button>
    </Empty>
  );
}

export function Missing(): ReactNode {
  const w = useWords(words);
  return (
    <Empty title={w.missing}>
      <p className="quiet">{w.missingHint}</p>
    </Empty>
  );
}
