"""Follow a job in the terminal: its output, its moves, its end.

    worker-0 │ epoch 1 loss=0.82        output, to stdout or stderr as the rank wrote it
    worker-1 │ epoch 1 loss=0.81
    brisk-otter running: …              moves, dim, to stderr

With one rank there is no prefix and what it wrote is passed on byte for byte, so that progress
bars behave as at home; `terminal.py` keeps from a terminal what is dangerous. With several, lines
stay whole: a rank's unfinished line is shown, on a terminal, as a line that the next one
overwrites.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import click

from windlass.cli import exits, moments, output
from windlass.client import Client
from windlass.client.jobs import Job
from windlass.core.errors import WindlassError

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "red")


class Screen:
    """Where output of several ranks meets: whole lines, each with its rank."""

    def __init__(
        self,
        ranks: Sequence[str],
        *,
        out: TextIO | None = None,
        err: TextIO | None = None,
        prefix: bool | None = None,
        timestamps: bool = False,
        colour: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._prefixed = len(ranks) > 1 if prefix is None else prefix
        self._timestamps = timestamps
        self._live = self._out.isatty() and self._err.isatty()
        self._colour = output.colour_wanted() if colour is None else colour
        self._halves: dict[tuple[str, str], str] = {}
        self._numbers = {rank: number for number, rank in enumerate(ranks)}
        self._width = max((len(label(rank)) for rank in ranks), default=0)
        self._open_line = False
        self._shown = ""
        self._shown_at = 0.0
        self._clock = clock

    def log(self, data: dict[str, Any]) -> None:
        """One piece of output of one rank, as it came."""
        file = self._err if data.get("stream") == "err" else self._out
        text = str(data.get("text", ""))
        rank = str(data.get("rank", ""))
        if not self._prefixed and not self._timestamps:
            self._wipe()
            file.write(text)
            file.flush()
            self._open_line = self._live and not text.endswith("\n")
            return
        key = (rank, str(data.get("stream")))
        *lines, half = (self._halves.pop(key, "") + text).split("\n")
        for line in lines:
            self._line(file, self._head(rank, data.get("at")), line)
        if half:
            self._halves[key] = half[-65536:]
            if self._live and "\r" in half:
                self._bar(self._head(rank, None) + fold(half))
        if lines:
            file.flush()

    def note(self, text: str) -> None:
        """Our own words, between the lines of the job."""
        self._wipe()
        if self._open_line:
            self._err.write("\n")
            self._open_line = False
        text = output.safe(text)
        self._err.write(click.style(text, dim=True) + "\n" if self._colour else text + "\n")
        self._err.flush()

    def progress(self, data: dict[str, Any]) -> None:
        """How far the job says it is; drawn below the output while it moves."""
        done, total, step = data.get("done"), data.get("total"), data.get("step")
        if not self._live or self._open_line or not (total or step is not None):
            return
        text = f"step {step}" if step is not None else ""
        if total:
            share = min(1.0, (done or 0) / total)
            full = round(share * 24)
            text = f"{'█' * full}{'░' * (24 - full)} {share:4.0%}  {done}/{total}  {text}"
        self._bar(click.style(text, dim=True) if self._colour else text)

    def finish(self) -> None:
        """Write what has no end of line yet."""
        self._wipe()
        for (rank, stream), half in list(self._halves.items()):
            self._line(self._err if stream == "err" else self._out, self._head(rank, None), half)
        self._halves.clear()
        self._out.flush()
        self._err.flush()

    def _head(self, rank: str, at: Any) -> str:
        head = ""
        if self._timestamps and at:
            head = moments.clock(str(at)) + " "
        if self._prefixed:
            name = label(rank).ljust(self._width)
            number = self._numbers.setdefault(rank, len(self._numbers))
            name = (
                click.style(name + " │", fg=COLOURS[number % len(COLOURS)])
                if self._colour
                else name + " │"
            )
            head += name + " "
        return head

    def _line(self, file: TextIO, head: str, line: str) -> None:
        self._wipe()
        file.write(head + fold(line) + "\n")

    def _bar(self, text: str) -> None:
        """A progress bar that is still moving: shown at most ten times a second."""
        now = self._clock()
        if now - self._shown_at < 0.1:
            return
        self._wipe()
        self._out.write(text)
        self._out.flush()
        self._shown, self._shown_at = text, now

    def _wipe(self) -> None:
        if self._shown:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._shown = ""


def label(rank: str) -> str:
    """`worker-0-0` is `worker-0`; a member's further ranks keep their number."""
    head, _, last = rank.rpartition("-")
    return head if last == "0" and "-" in head else rank


def fold(line: str) -> str:
    """What a terminal would show at the end of a line that was written over with `\\r`."""
    parts = [part for part in line.split("\r") if part]
    return parts[-1] if parts else ""


def sentence(event: dict[str, Any]) -> str:
    """A move of a job, as one line; empty for what need not be said."""
    if event.get("kind") not in ("moved", "note", "hung", "dropped"):
        return ""
    name, reason = event.get("job_name") or "job", event.get("reason") or ""
    if event["kind"] == "moved":
        to = (event.get("data") or {}).get("to") or event.get("state")
        return f"{name} {to}: {reason}" if reason else f"{name} {to}"
    return f"{name}: {reason}" if reason else ""


def waits(data: Mapping[str, Any]) -> str:
    """Why a queued job waits and when it should start, as one line; also of a job's own view."""
    words = data.get("sentence") or data.get("waits") or ""
    starts = data.get("expected_start")
    when = f"should start about {moments.clock(str(starts))}" if starts else "start unknown"
    return f"waits: {words} ({when})"


def follow(
    client: Client,
    job: Job,
    screen: Screen,
    *,
    words: bool = True,
    since: str | None = None,
    tail: int | None = None,
) -> int:
    """Until the end of the job; the exit code is the job's. `since` and `tail` leave out what was
    before.

    Ctrl-C once detaches (101) and says how to come back; a second one within the same breath, or
    while that is being said, stops the job.
    """
    try:
        ended = _until_end(client, job, screen, words, since, tail)
    except KeyboardInterrupt:
        screen.finish()
        return _detach(client, job, screen)
    screen.finish()
    if words and ended.state != "succeeded":
        _last_words(client, ended, screen)
    elif words:
        screen.note(f"{ended.name} {ended.state}")
    return exits.of_job(ended)


def _until_end(
    client: Client, job: Job, screen: Screen, words: bool, since: str | None, tail: int | None
) -> Job:
    def broken(problem: WindlassError) -> None:
        screen.note("the server went away; the job goes on, waiting for the server …")

    for message in client.jobs.stream(job.id, since=since, tail=tail, broken=broken):
        if message.event == "log":
            screen.log(message.json())
        elif message.event == "progress":
            screen.progress(message.json())
        elif message.event == "waits" and words:
            screen.note(f"{job.name} {waits(message.json())}")
        elif message.event == "event" and words:
            event = message.json()
            text = sentence(event)
            to = (event.get("data") or {}).get("to") if event.get("kind") == "moved" else None
            if text and to not in ("succeeded", "failed", "cancelled"):
                screen.note(text)
        elif message.event == "end":
            return Job.read(message.json())
    return client.jobs.get(job.id)


def _detach(client: Client, job: Job, screen: Screen) -> int:
    try:
        screen.note(
            f"\ndetached: {job.name} goes on. Ctrl-C again within 2 s stops it.\n"
            f"  follow: windlass logs -f {job.name}\n"
            f"  wait:   windlass wait {job.name}\n"
            f"  stop:   windlass stop {job.name}"
        )
        time.sleep(2.0)
    except KeyboardInterrupt:
        client.close()
        client.jobs.stop(job.id, reason="Ctrl-C")
        screen.note(f"stopping {job.name}")
        try:
            return exits.of_job(client.jobs.wait(job.id, timeout_seconds=60))
        except (KeyboardInterrupt, TimeoutError):
            return exits.NOT_FINISHED
    return exits.NOT_FINISHED


def _last_words(client: Client, job: Job, screen: Screen) -> None:
    """Why it ended so, and what to do next."""
    try:
        why = client.jobs.why(job.id)
    except WindlassError:
        screen.note(f"{job.name} {job.state}: {job.reason}")
        return
    screen.note(f"{job.name} {job.state}: {why.get('sentence') or job.reason}")
    if why.get("next"):
        screen.note(f"  next: {why['next']}")
