/** One's own password. */
import { Alert, Button, Group, PasswordInput, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";

import { api, got } from "../api/client";
import { useWords } from "../i18n";
import { Cli, useAct } from "../look/Act";
import { fieldErrors } from "../look/fields";
import { Part } from "../look/Part";
import { Told } from "../look/Told";
import { useWho } from "../shell/who";
import { words } from "./words";

export function Password(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  const { data } = useQuery({ queryKey: ["session"], queryFn: () => got(api.GET("/api/v1/session")) });
  const [old, setOld] = useState("");
  const [fresh, setFresh] = useState("");
  const [again, setAgain] = useState("");
  const [differ, setDiffer] = useState(false);
  const act = useAct(
    () => got(api.PUT("/api/v1/password", { body: { old: data?.has_password ? old : null, new: fresh } })),
    ["session", "sessions", "tokens"],
    () => {
      setOld("");
      setFresh("");
      setAgain("");
    },
  );
  const told = fieldErrors(act.error, ["old", "new"]);
  if (!data || data.kind !== "person") return <Part title={w.password}>{null}</Part>;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    setDiffer(fresh !== again);
    if (fresh === again) act.run();
  };
  return (
    <Part title={w.password} hint={data.has_password ? w.passwordHint : w.none}>
      <form onSubmit={submit} aria-label={w.password}>
        <input type="text" name="username" autoComplete="username" value={who.user} readOnly hidden />
        <Stack gap="sm">
          {data.has_password && (
            <PasswordInput label={w.old} value={old} required autoComplete="current-password" error={told.at.old} onChange={(event) => setOld(event.currentTarget.value)} />
          )}
          <PasswordInput label={w.fresh} value={fresh} required autoComplete="new-password" error={told.at.new} onChange={(event) => setFresh(event.currentTarget.value)} />
          <PasswordInput label={w.again} value={again} required autoComplete="new-password" error={differ ? w.differ : undefined} onChange={(event) => setAgain(event.currentTarget.value)} />
          {Boolean(told.rest) && <Told error={told.rest} />}
          {!act.error && act.made !== undefined && !act.busy && !fresh && <Alert color="sea" variant="light" role="status"><Text size="sm">{w.changed}</Text></Alert>}
          <Group><Button type="submit" loading={act.busy}>{data.has_password ? w.change : w.set}</Button></Group>
          <Cli line="windlass password" />
        </Stack>
      </form>
    </Part>
  );
} // prettier-ignore
