"""The same task under many strategies, one after the other: which is fast, which learns.

A stale method can look good at equal time and bad at equal steps, so both are given: the loss
after as many steps as all have made, and after as many seconds as the quickest needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pydantic import Field

from windlass.core.errors import InvalidInput, WindlassError
from windlass.core.strict import Strict
from windlass.train import calls, registry
from windlass.train.fitting import Make, fit
from windlass.train.report import LossPoint, Report

WINDOW = 0.1
"""The loss at a point is the mean over the last tenth of the way there."""


class Row(Strict):
    """One strategy. `why` says what kept it from running; the numbers are None then."""

    strategy: str
    samples_per_s: float | None = None
    bytes_per_step: float | None = None
    peak_memory_bytes: int | None = None
    seconds: float | None = None
    loss_at_steps: float | None = Field(default=None, allow_inf_nan=True)
    loss_at_seconds: float | None = Field(default=None, allow_inf_nan=True)
    why: str = ""


class Comparison(Strict):
    steps: int
    """At which losses are compared."""
    seconds: float
    workers: int
    rows: tuple[Row, ...]


def compare(
    make: Make,
    names: Sequence[str] | None = None,
    *,
    workers: int = 2,
    servers: int | None = None,
    steps: int = 100,
    device: str | None = None,
    begun: Callable[[str], None] = lambda name: None,
) -> Comparison:
    """Every strategy, or those of `names`, each in processes of its own. `begun` hears whose turn
    it is. A strategy that cannot run with this task has the reason in its row."""
    reports: dict[str, Report | str] = {}
    for name in names or registry.known():
        has_servers = registry.load(name).has_servers
        begun(name)
        try:
            reports[name] = fit(
                make, name, workers=workers, steps=steps, device=device, progress=False,
                resume=False, servers=servers if has_servers else None,
            ).result  # fmt: skip
        except WindlassError as err:
            reports[name] = str(err).partition("\n")[0]
    return compared(reports, workers, steps)


def compared(reports: dict[str, Report | str], workers: int, steps: int) -> Comparison:
    """Of reports, or of the words why there is none."""
    whole = [each for each in reports.values() if isinstance(each, Report)]
    seconds = min((each.seconds for each in whole), default=0.0)
    return Comparison(
        steps=steps,
        seconds=seconds,
        workers=workers,
        rows=tuple(
            Row(strategy=name, why=each)
            if isinstance(each, str)
            else Row(
                strategy=name,
                samples_per_s=each.samples_per_s,
                bytes_per_step=each.bytes_per_step,
                peak_memory_bytes=each.peak_memory_bytes,
                seconds=each.seconds,
                loss_at_steps=loss_near(each.losses, lambda point: point.step, steps),
                loss_at_seconds=loss_near(each.losses, lambda point: point.seconds, seconds),
            )
            for name, each in reports.items()
        ),
    )


def loss_near(
    losses: Iterable[LossPoint], axis: Callable[[LossPoint], float], end: float
) -> float | None:
    """The mean loss over the last tenth of the way to `end`; None when nothing was known."""
    before = [point for point in losses if axis(point) <= end]
    near = [point.loss for point in before if axis(point) > end * (1 - WINDOW)]
    near = near or [point.loss for point in before[-1:]]
    return sum(near) / len(near) if near else None


def make_of(script: Path) -> Make:
    """The `make()` of a script. Raises InvalidInput."""
    if not script.is_file():
        raise InvalidInput(f"{script}: there is no such file")
    try:
        module = calls.load_script(script.resolve())
    except Exception as err:
        raise InvalidInput(f"{script}: it cannot be loaded: {type(err).__name__}: {err}") from err
    found = getattr(module, "make", None)
    if not callable(found):
        raise InvalidInput(
            f"{script}: it defines no make()",
            hint="a function at its top level that gives a windlass.train.Task",
        )
    made: Make = found
    return made
