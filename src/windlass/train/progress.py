"""How far a training is, while it runs: a bar on a terminal, a line now and then elsewhere, and
in a job what `windlass.log` and `windlass.progress` record.

Worker 0 tells `{"step": 12, "steps": 100, "loss": 0.4, "samples_per_s": 900.0}` as often as it
likes. What is shown is limited here, so that telling costs a comparison of two clocks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

BAR_SECONDS = 0.5
LINE_SECONDS = 5.0
JOB_SECONDS = 1.0


class Progress:
    """Silent. The base of the others, which say in `show` what is to be seen. One thread."""

    every_seconds = float("inf")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0
        self._last: Mapping[str, Any] | None = None
        self._shown: Mapping[str, Any] | None = None

    def update(self, told: Mapping[str, Any]) -> None:
        self._last = told
        now = self._clock()
        if now >= self._next:
            self._next = now + self.every_seconds
            self._shown = told
            self.show(told)

    def close(self) -> None:
        """The last word is always shown."""
        if self._last is not None and self._shown is not self._last:
            self._shown = self._last
            self.show(self._last)

    def show(self, told: Mapping[str, Any]) -> None:
        pass

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def progress(title: str, wanted: bool = True, file: IO[str] | None = None) -> Progress:
    """The one that fits where this process runs."""
    if not wanted:
        return Progress()
    from windlass.job.context import context

    if context().on_platform:
        return InJob()
    to = file or sys.stderr
    return OnTerminal(title, to) if to.isatty() else InLines(title, to)


class OnTerminal(Progress):
    """A bar. No thread draws it: it moves when something is told."""

    every_seconds = BAR_SECONDS

    def __init__(self, title: str, file: IO[str]) -> None:
        super().__init__()
        self._title = title
        self._bar = _bar(file)
        self._task: Any = None

    def show(self, told: Mapping[str, Any]) -> None:
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=told.get("steps"), words="")
        self._bar.update(
            self._task, completed=told["step"], total=told.get("steps"), words=words(told)
        )
        self._bar.refresh()

    def close(self) -> None:
        super().close()
        self._bar.stop()


class InLines(Progress):
    """One line every few seconds, for a log file."""

    every_seconds = LINE_SECONDS

    def __init__(
        self, title: str, file: IO[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._title = title
        self._file = file

    def show(self, told: Mapping[str, Any]) -> None:
        total = f" of {told['steps']:,}" if told.get("steps") else ""
        print(
            f"{self._title}: step {told['step']:,}{total}, {words(told)}",
            file=self._file,
            flush=True,
        )


class InJob(Progress):
    """Where the platform shows it to everybody."""

    every_seconds = JOB_SECONDS

    def show(self, told: Mapping[str, Any]) -> None:
        from windlass.job.log import log
        from windlass.job.log import progress as record

        rest = {name: value for name, value in told.items() if name not in ("step", "steps")}
        if rest:
            log(step=told["step"], **rest)
        record(told["step"], told.get("steps"), "steps")


def words(told: Mapping[str, Any]) -> str:
    parts = []
    if told.get("loss") is not None:
        parts.append(f"loss {told['loss']:.4g}")
    if told.get("samples_per_s") is not None:
        parts.append(f"{told['samples_per_s']:,.0f} samples/s")
    return ", ".join(parts)


def _bar(file: IO[str]) -> Bar:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(file=file, markup=False, highlight=False),
        auto_refresh=False,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # what is printed into a file stays there
    )
