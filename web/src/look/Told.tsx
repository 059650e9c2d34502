/** What went wrong, in the server's own words, with the next step. */
import { Alert, Button, Group, Text } from "@mantine/core";
import type { ReactNode } from "react";

import { Refused } from "../api/client";
import { useWords } from "../i18n";
import { words } from "./words";

export function Told({ error, again }: { error: unknown; again?: () => void }): ReactNode {
  const w = useWords(words);
  const message = error instanceof Error ? error.message : String(error);
  const hint = error instanceof Refused ? error.hint : "";
  return (
    <Alert color="red" variant="light" role="alert" my="sm">
      <Text size="sm">{message}</Text>
      {hint && (
        <Text size="sm" mt={4}>
          {w.nextStep}: {hint}
        </Text>
      )}
      {again && (
        <Group mt="xs">
          <Button size="xs" variant="default" onClick={again}>
            {w.again}
          </Button>
        </Group>
      )}
    </Alert>
  );
}
