"""`windlass logs`: what a job wrote, kept after it is gone; or as it writes it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from windlass.cli import follow, moments
from windlass.cli.session import Session, job_argument, verb
from windlass.cli.specs import ranks_of
from windlass.cli.terminal import bare
from windlass.client.jobs import Job
from windlass.core.errors import InvalidInput
from windlass.core.patterns import names_of
from windlass.patterns.automaton import Automaton


@verb("logs", outputs=("table", "json", "jsonl"), quiet=False)
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the job ends.")
@click.option("--rank", metavar="RANK", help="Only this rank: 2, or worker-0-0.")
@click.option("--stderr", "stream", flag_value="err", default=None, help="Only stderr.")
@click.option("--stdout", "stream", flag_value="out", help="Only stdout.")
@click.option("--since", metavar="TIME", help="From then on: 10m, 1h, or an ISO time.")
@click.option("--grep", metavar="RE", help="Only lines in which this is found.")
@click.option("-n", "--tail", type=click.IntRange(0), help="Only so many last lines.")
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt, not the last.")
@click.option("--raw", is_flag=True, help="On a terminal too exactly what was written.")
@click.option("-t", "--timestamps", is_flag=True, help="When each line was written.")
@job_argument(default="-")
def command(
    session: Session,
    job: str,
    following: bool,
    rank: str | None,
    stream: str | None,
    since: str | None,
    grep: str | None,
    tail: int | None,
    attempt: int | None,
    timestamps: bool,
    raw: bool,
) -> None:
    """Print or follow what a job wrote.

    With -f the exit code is the job's. On a terminal colours stay and other escape sequences are
    left out; --raw and a pipe pass on every byte.

    \b
    Examples:
      windlass logs -f -
      windlass logs --rank 1 --grep 'loss=' --since 10m brisk-otter
    """
    jobs = session.client.jobs
    detail = jobs.detail(session.ref(job))
    if following and attempt is not None:
        raise InvalidInput("-f follows the newest attempt and those after it; not with --attempt")
    start = moments.since("--since", since) if since else None
    ranks = ranks_of(detail["spec"])
    rank = one_rank(rank, ranks) if rank else None
    out, err = (bare(sys.stdout), bare(sys.stderr)) if raw else (None, None)
    screen = follow.Screen([rank] if rank else ranks, timestamps=timestamps, out=out, err=err)
    if following:
        if rank or stream or grep or session.form != "table":
            screen = Only(screen, rank, stream, pattern(grep), session.form != "table")
        sys.exit(
            follow.follow(
                session.client, Job.read(detail), screen, words=sys.stderr.isatty(),
                since=start, tail=tail,
            )
        )  # fmt: skip
    for line in jobs.logs(
        detail["id"], rank=rank, stream=stream, since=start, grep=grep, tail=tail, attempt=attempt
    ):
        if session.form != "table":
            click.echo(json.dumps(line, ensure_ascii=False))
            continue
        text = line["text"]
        screen.log({**line, "text": text if text.endswith("\n") else text + "\n"})
    screen.finish()


def one_rank(word: str, ranks: Sequence[str]) -> str:
    """The rank meant by its number (2), its name (worker-0-1) or its member's (worker-0)."""
    if word.isdigit() and int(word) < len(ranks):
        return ranks[int(word)]
    for rank in ranks:
        if word in (rank, follow.label(rank)):
            return rank
    named = ", ".join(follow.label(rank) for rank in ranks[:8]) + (" …" if len(ranks) > 8 else "")
    raise InvalidInput(f"--rank: no rank {word!r}; there are 0 to {len(ranks) - 1}: {named}")


def pattern(grep: str | None) -> Automaton | None:
    """What the server looks for in the same words, as it comes."""
    if not grep:
        return None
    try:
        names_of(grep)
    except ValueError as err:
        raise InvalidInput(f"--grep: {err}") from None
    return Automaton(grep)


class Only(follow.Screen):
    """A screen that shows one rank, one stream, lines that match, or every piece as JSON."""

    def __init__(
        self,
        inner: follow.Screen,
        rank: str | None,
        stream: str | None,
        wanted: Automaton | None,
        as_json: bool,
    ) -> None:
        super().__init__(())
        self._inner = inner
        self._rank, self._stream, self._wanted, self._json = rank, stream, wanted, as_json
        self._parts: dict[tuple[object, object], str] = {}

    def log(self, data: dict[str, object]) -> None:
        if self._rank not in (None, data.get("rank")) or self._stream not in (
            None,
            data.get("stream"),
        ):
            return
        if self._wanted is not None:
            text = self._matching(data)
            if not text:
                return
            data = {**data, "text": text}
        if self._json:
            click.echo(json.dumps(data, ensure_ascii=False))
        else:
            self._inner.log(data)

    def _matching(self, data: dict[str, object]) -> str:
        """The whole lines that match; half a line waits for its other half."""
        assert self._wanted is not None
        key = (data.get("rank"), data.get("stream"))
        *lines, self._parts[key] = (self._parts.get(key, "") + str(data["text"])).split("\n")
        return "".join(line + "\n" for line in lines if self._wanted.search(line))

    def progress(self, data: dict[str, object]) -> None:
        self._inner.progress(data)

    def note(self, text: str) -> None:
        self._inner.note(text)

    def finish(self) -> None:
        self._inner.finish()
