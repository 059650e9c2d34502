/** Browsers one is logged in with. */
import { Badge, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { api, got } from "../api/client";
import { useWords } from "../i18n";
import { Sure, useAct } from "../look/Act";
import { Ago } from "../look/Ago";
import { line } from "../look/line";
import { Part, Waiting, Wide } from "../look/Part";
import { Told } from "../look/Told";
import { browserName } from "./choices";
import { words } from "./words";

export function Sessions(): ReactNode {
  const w = useWords(words);
  const { data, error } = useQuery({ queryKey: ["sessions"], queryFn: () => got(api.GET("/api/v1/sessions")) });
  const all = useAct(() => got(api.DELETE("/api/v1/sessions")), ["sessions"]);
  const many = (data?.items.filter((each) => !each.current).length ?? 0) > 1;
  return (
    <Part title={w.sessions} hint={w.sessionsHint}
      actions={many && <Sure label={w.endAll} ask={w.endAllAsk} act={() => all.run()} busy={all.busy} error={all.error} line={line("browser", "end", "--all")} />}>
      {error && <Told error={error} />}
      {!data && !error && <Waiting rows={2} />}
      {data && (
        <Wide label={w.sessions}>
          <Table miw={600} verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{w.browser}</Table.Th><Table.Th>{w.address}</Table.Th><Table.Th>{w.how}</Table.Th><Table.Th>{w.seen}</Table.Th><Table.Th>{w.expires}</Table.Th><Table.Th>{w.actions}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {data.items.map((each) => (
                <Table.Tr key={each.id}>
                  <Table.Td title={each.browser}>{browserName(each.browser)} {each.current && <Badge size="sm" variant="default" tt="none">{w.current}</Badge>}</Table.Td>
                  <Table.Td>{each.address}</Table.Td>
                  <Table.Td>{w.hows[each.how] ?? each.how}</Table.Td>
                  <Table.Td><Ago at={each.seen} /></Table.Td>
                  <Table.Td><Ago at={each.expires} /></Table.Td>
                  <Table.Td>{!each.current && <End id={each.id} />}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
    </Part>
  );
} // prettier-ignore

function End({ id }: { id: string }): ReactNode {
  const w = useWords(words);
  const act = useAct(() => got(api.DELETE("/api/v1/sessions/{session_id}", { params: { path: { session_id: id } } })), ["sessions"]);
  return <Sure label={w.end} ask={w.endAsk} act={() => act.run()} busy={act.busy} error={act.error} line={line("browser", "end", id)} />;
}
