"""A report for people: tables and two small plots of the loss, against steps and seconds."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from windlass.core import plot
from windlass.core.errors import WindlassError
from windlass.train import registry
from windlass.train.planning.kept import compared

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from windlass.train.report import LossPoint, Report

WIDTH = 100
BAR = 30


def text(report: Report) -> str:
    """Plain, whatever standard output is."""
    from rich.console import Console

    file = io.StringIO()
    console = Console(file=file, width=WIDTH, color_system=None, markup=False, emoji=False)
    _print(console, report)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def show(report: Report, file: IO[str] | None = None) -> None:
    from rich.console import Console

    to = file or sys.stdout
    width = None if to.isatty() else WIDTH
    _print(Console(file=to, width=width, markup=False, highlight=False, emoji=False), report)


def _print(console: Console, report: Report) -> None:
    unicode = "utf" in (console.encoding or "").lower()
    console.print(_title(report), style="bold", highlight=False)
    console.print(_summary(report, " · " if unicode else ", "), highlight=False)
    if report.predicted is not None:
        console.print(compared(report.predicted, report.samples_per_s), highlight=False)
    for note in report.notes:
        console.print(f"note: {note}", style="yellow", highlight=False)
    for name in report.lost:
        console.print(f"{name} was lost", style="red", highlight=False)
    for block in (
        *_plots(report, min(console.width, WIDTH), unicode),
        _bytes(report),
        _staleness(report, unicode),
        _members(report),
        _rest(report),
    ):
        if block is not None:
            console.print()
            console.print(block, highlight=False)


def _title(report: Report) -> str:
    options = ", ".join(f"{name}={value}" for name, value in _unusual(report))
    found = f"{report.strategy} ({options})" if options else report.strategy
    servers = f", {_many(report.servers, 'server')}" if report.servers else ""
    return f"{found} on {_many(report.workers, 'worker')}{servers}"


def _unusual(report: Report) -> list[tuple[str, Any]]:
    """The options that are not as they would be anyhow, where the strategy is known here."""
    try:
        fields = registry.load(report.strategy).model_fields
    except (WindlassError, ImportError):
        fields = {}
    return [
        (name, value)
        for name, value in report.options.items()
        if name not in fields or value != fields[name].default
    ]


def _summary(report: Report, dot: str) -> str:
    parts = [
        _many(report.steps, "step"),
        _many(report.samples, "sample"),
        f"{report.seconds:,.1f} s",
        f"{report.samples_per_s:,.0f} samples/s",
        f"peak memory {size(report.peak_memory_bytes)}",
    ]
    if report.losses:
        few = smooth(report.losses)
        first, last = few[0].loss, few[-1].loss
        parts.append(f"loss {first:.4g} to {last:.4g}")
    return dot.join(parts)


def _plots(report: Report, width: int, unicode: bool) -> list[RenderableType]:
    """Side by side: a stale method looks good against one axis only."""
    from rich.table import Table

    if sum(math.isfinite(point.loss) for point in report.losses) < 2:
        return []
    wide = max(20, (width - 3) // 2 - 13)  # the numbers of the axis stand before it
    few = smooth(report.losses)
    by_step = [(float(point.step), point.loss) for point in few]
    by_time = [(point.seconds, point.loss) for point in few]
    grid = Table.grid(padding=(0, 3))
    grid.add_row(
        *(
            "\n".join(plot.curve(points, width=wide, height=7, title=title, unicode=unicode))
            for points, title in ((by_step, "loss by step"), (by_time, "loss by second"))
        )
    )
    return [grid]


def smooth(losses: Sequence[LossPoint], count: int = 40) -> list[LossPoint]:
    """At most `count` points, each the mean of a stretch: single batches are noisy."""
    if len(losses) <= count:
        return list(losses)
    edges = [round(at * len(losses) / count) for at in range(count + 1)]
    stretches = [losses[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    return [each[-1]._replace(loss=sum(p.loss for p in each) / len(each)) for each in stretches]


def _bytes(report: Report) -> RenderableType | None:
    kinds = sorted({*report.sent_bytes, *report.received_bytes})
    if not kinds:
        return None
    rows = [
        (
            kind,
            size(report.sent_bytes.get(kind, 0)),
            size(report.received_bytes.get(kind, 0)),
            size(report.sent_bytes.get(kind, 0) / max(1, report.steps)),
            f"{report.messages.get(kind, 0):,}",
        )
        for kind in kinds
    ]
    return _table(("bytes", "sent", "received", "sent per step", "messages"), rows)


def _staleness(report: Report, unicode: bool) -> RenderableType | None:
    if not report.staleness:
        return None
    total = sum(report.staleness.values())
    mean = sum(by * n for by, n in report.staleness.items()) / total
    most = max(report.staleness.values())
    rows = [
        (
            str(by),
            f"{n:,}",
            f"{n / total:.1%}",
            ("█" if unicode else "#") * max(1, round(BAR * n / most)),
        )
        for by, n in _few(report.staleness)
    ]
    head = ("staleness", "updates", "share", f"mean {mean:.2f}, at most {max(report.staleness)}")
    return _table(head, rows, left=(0, 3))


def _few(staleness: dict[int, int], count: int = 12) -> list[tuple[Any, int]]:
    """The lowest, and one row for all beyond."""
    rows = sorted(staleness.items())
    if len(rows) <= count:
        return list(rows)
    beyond = rows[count - 1 :]
    return [*rows[: count - 1], (f"{beyond[0][0]} or more", sum(n for _, n in beyond))]


def _members(report: Report) -> RenderableType | None:
    if len(report.members) < 2:
        return None
    rows = [
        (
            each.name,
            f"{each.steps:,}",
            f"{each.samples:,}",
            f"{each.samples_per_s:,.0f}",
            f"{each.seconds:,.1f}",
            size(sum(each.counters.get("sent_bytes", {}).values())),
            size(each.peak_memory_bytes),
        )
        for each in report.members
    ]
    head = ("member", "steps", "samples", "samples/s", "seconds", "sent", "peak memory")
    return _table(head, rows)


def _rest(report: Report) -> RenderableType | None:
    rows: list[tuple[str, str]] = []
    if report.events:
        rows.append(("events", ", ".join(f"{name} {n:,}" for name, n in report.events.items())))
    if report.drift:
        at, largest = max(report.drift, key=lambda point: point[1])
        rows.append(
            ("drift", f"{report.drift[-1][1]:.3g} at the end, at most {largest:.3g} (step {at})")
        )
    if report.evaluation:
        last = report.evaluation[-1]
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in last.numbers.items())
        rows.append(("evaluation", f"{numbers} (step {last.step})"))
    for fault in report.faults:
        at_step = "" if fault.step is None else f" at step {fault.step}"
        rows.append(("survived", f"{fault.kind} of {fault.who}{at_step}: {fault.text}"))
    return _table(None, rows, left=(0, 1)) if rows else None


def _table(
    head: Sequence[str] | None, rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)
) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=head is not None, show_edge=False)
    for at, name in enumerate(head or rows[0]):
        table.add_column(name, justify="left" if at in left else "right", header_style="bold")
    for row in rows:
        table.add_row(*row)
    return table


def size(count: float) -> str:
    """Bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
