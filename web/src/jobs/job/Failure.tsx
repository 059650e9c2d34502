/** What went wrong, who first, where; and buttons that do something about it. */
import { Button, Group, Spoiler, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { api, got } from "../../api/client";
import { useTheme } from "../../charts/ink";
import { useLanguage, useWords } from "../../i18n";
import { count, moment } from "../../i18n/format";
import { useAct } from "../../look/Act";
import { Icon } from "../../look/Icon";
import { Told } from "../../look/Told";
import { useUrl } from "../../look/url";
import { useWho } from "../../shell/who";
import { failureOf, stacksOf } from "./failing";
import { useCheckpoints, useEvents, useWhy, type Detail } from "./asking";
import css from "./job.module.css";
import { inked, spans } from "./logs/ansi";
import { folded } from "./logs/fold";
import { firstLines } from "./logs/read";
import { ranksOf } from "./ranks";
import { words } from "./words";

const LAST_LINES = 12;

export function Failure({ job }: { job: Detail }): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  const { may } = useWho();
  const [, change] = useUrl();
  const navigate = useNavigate();
  const why = useWhy(job.id).data;
  const events = useEvents(job.id).data ?? [];
  const checkpoint = (useCheckpoints(job.id).data ?? []).find((each) => !each.bad);
  const again = useAct(
    (start: number | null) =>
      got(
        api.POST("/api/v1/jobs/{ref}/rerun", {
          params: { path: { ref: job.id } },
          body: { params: {}, changes: start === null ? {} : { start_from: { job: job.id, step: start, model: null, resume: true } } },
        }),
      ),
    ["jobs"],
    (made) => void navigate({ to: "/jobs/$job", params: { job: made.id } }),
  );
  if (!why || why.state !== "failed") return null;
  const found = failureOf(job, why);
  const rank = found.rank === null ? undefined : ranksOf(job.spec)[found.rank]?.name;
  const stacks = stacksOf(events);
  const outcome = (w.outcomes as Record<string, string>)[found.outcome] ?? w.failed;

  return (
    <section className={css.card} aria-label={w.failed} data-testid="failure">
      <Title order={2}>{outcome}</Title>
      <table className={css.rows}>
        <tbody>
          {found.rank !== null && (
            <tr>
              <th scope="row">{w.firstRank}</th>
              <td>{`${w.rankN(String(found.rank))} (${found.member}) · ${w.onNode} ${found.node} · ${howOf(found.how ?? "", w)}${found.at ? ` · ${moment(found.at, language)}` : ""}`}</td>
            </tr>
          )}
          {found.frame && (
            <tr>
              <th scope="row">{w.lastFrame}</th>
              <td className="mono">{found.frame}</td>
            </tr>
          )}
          {found.others.map((each, at) => (
            <tr key={at}>
              <th scope="row">{at ? "" : w.earlier}</th>
              <td>{each}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.traceback ? <pre className={css.pre} tabIndex={0} aria-label={w.traceback}>{found.traceback}</pre> : job.attempt > 0 && <LastLines job={job} rank={rank} />}
      {stacks.length > 0 && (
        <Spoiler maxHeight={80} showLabel={w.hungStacks} hideLabel={w.close}>
          {stacks.slice(0, 8).map((each, at) => (
            <pre key={at} className={css.pre} tabIndex={0} aria-label={w.stackOf(each.rank)}>{`${w.rankN(each.rank)}\n${each.text.slice(0, 20_000)}`}</pre>
          ))}
        </Spoiler>
      )}
      <Group gap="xs" mt="xs" role="group" aria-label={w.nextSteps}>
        {may("job.write") && checkpoint && (
          <Button size="xs" loading={again.busy} leftSection={<Icon name="again" size={14} />} onClick={() => again.run(checkpoint.step)}>
            {w.fromCheckpoint(count(checkpoint.step, language))}
          </Button>
        )}
        {may("job.write") && found.outcome === "oom" && (
          <Button
            size="xs"
            variant={checkpoint ? "default" : "filled"}
            onClick={() => change({ rerun: String(Date.now()), memory: found.memory ? `${found.memory / 1024 ** 3}GiB` : undefined, from: checkpoint ? "latest" : undefined })}
          >
            {found.memory ? w.withMemory(`${count(found.memory / 1024 ** 3, language)} GiB`) : w.moreMemory}
          </Button>
        )}
        {may("job.write") && !checkpoint && found.outcome !== "oom" && (
          <Button size="xs" variant="default" loading={again.busy} leftSection={<Icon name="again" size={14} />} onClick={() => again.run(null)}>
            {w.again}
          </Button>
        )}
        {job.attempt > 0 && (
          <Button size="xs" variant="default" leftSection={<Icon name="jobs" size={14} />} onClick={() => change({ tab: "logs", rank: ranksOf(job.spec).length > 1 ? rank : undefined, line: undefined, q: undefined })}>
            {w.openLog}
          </Button>
        )}
      </Group>
      {Boolean(again.error) && <Told error={again.error} />}
    </section>
  );
}

/** `exit code 17`, `signal 9`, in the page's words. */
function howOf(how: string, w: (typeof words)["en"]): string {
  const [, kind, number] = /^(exit code|signal) (\d+)$/.exec(how) ?? [];
  if (!kind || !number) return how;
  return kind === "signal" ? w.signal(number) : w.exitedWith(number);
}

function LastLines({ job, rank }: { job: Detail; rank: string | undefined }): ReactNode {
  const w = useWords(words);
  const theme = useTheme();
  const { data } = useQuery({
    queryKey: ["job", job.id, "last-lines", rank ?? "", job.attempt],
    queryFn: ({ signal }) => firstLines(job.id, { attempt: job.attempt, rank, tail: LAST_LINES }, LAST_LINES, signal),
  });
  if (!data?.lines.length) return null;
  return (
    <pre className={css.pre} tabIndex={0} aria-label={w.lastLines}>
      {data.lines.map((line, at) => (
        <div key={at}>
          {spans(folded(line.text).text.slice(0, 2000)).map((piece, place) => {
            const ink = inked(piece, theme);
            return (
              <span key={place} style={{ color: ink.colour, backgroundColor: ink.background, fontWeight: piece.bold ? 700 : undefined }}>
                {piece.text}
              </span>
            );
          })}
        </div>
      ))}
    </pre>
  );
}
