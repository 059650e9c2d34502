"""A study, drawn: its best so far, what matters, parallel coordinates, its trials."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from windlass.cli import output
from windlass.core import plot

Study = Mapping[str, Any]
Trial = Mapping[str, Any]
BAR = 24
MOST_LINES = 60
"""So many trials are drawn as lines, the best among them."""


def draw(study: Study, trials: Sequence[Trial], limit: int) -> None:
    """To stdout, as wide as the terminal allows."""
    _head(study)
    if study["curve"]:
        _curve(study)
    if any(study["importance"].values()):
        _importance(study)
    counted = _counted(study, trials)
    if len(counted) > 2:
        _parallel(study, counted)
    if limit and trials:
        _table(study, trials, limit)


def one(study: Study, trial: Trial) -> None:
    """A trial in a few lines."""
    click.echo(f"{bold('trial ' + str(trial['number']))}  {values(study, trial)}")
    for name, value in trial["params"].items():
        click.echo(f"  {name} = {short(value)}")
    click.echo(f"  job {trial['job']}")


def values(study: Study, trial: Trial) -> str:
    return ", ".join(
        f"{goal['metric']} {short(value)}"
        for goal, value in zip(study["objectives"], trial["values"], strict=False)
    )


def _head(study: Study) -> None:
    counts = study["counts"]
    ended = sum(counts.get(state, 0) for state in ("succeeded", "pruned", "failed", "cancelled"))
    words = ", ".join(f"{count} {state}" for state, count in counts.items())
    state = output.state(study["state"])
    click.echo(f"{bold(study['name'])}  {state} · {ended} of {study['trials']} results")
    goals = ", ".join(f"{goal['goal']} {goal['metric']}" for goal in study["objectives"])
    pruner = "" if study["pruner"] == "none" else f", pruner {study['pruner']}"
    click.echo(f"  {goals} · sampler {study['sampler']}{pruner}")
    if words:
        click.echo(f"  {words}")
    if study["reason"] and study["reason"] != words:
        click.echo(f"  {study['reason']}")
    if len(study["objectives"]) == 1 and study["best"]:
        found = short(study["best_values"][0])
        click.echo(f"  best: trial {study['best'][0]}, {found}")
    elif study["best"]:
        click.echo(f"  not beaten: trials {', '.join(map(str, study['best']))}")


def _curve(study: Study) -> None:
    """The best value so far, as steps."""
    points: list[tuple[float, float]] = []
    for number, value in study["curve"]:
        if points:
            points.append((float(number), points[-1][1]))
        points.append((float(number), value))
    points.append((float(max(study["made"] - 1, points[-1][0])), points[-1][1]))
    wide = min(60, _columns() - 14)
    title = f"best {study['objectives'][0]['metric']} by trial"
    click.echo()
    for line in plot.curve(points, width=wide, height=7, title=title, unicode=_unicode()):
        click.echo(line)


def _importance(study: Study) -> None:
    click.echo()
    click.echo(bold("What each parameter explains alone"))
    full, empty = ("█", "░") if _unicode() else ("#", ".")
    ordered = sorted(study["importance"].items(), key=lambda item: -item[1])
    wide = max(len(name) for name, _ in ordered)
    for name, share in ordered[:12]:
        filled = round(share * BAR)
        click.echo(f"  {name:<{wide}} {full * filled}{empty * (BAR - filled)} {share:4.0%}")


# -- parallel coordinates -------------------------------------------------------------------


def _parallel(study: Study, trials: Sequence[Trial]) -> None:
    """An axis for each parameter and one for the objective; a line for each trial, the best
    tenth over the others."""
    space = study["spec"]["space"]
    names = [name for name in space if any(name in trial["params"] for trial in trials)]
    sign = -1.0 if study["objectives"][0]["goal"] == "maximize" else 1.0
    ordered = sorted(trials, key=lambda trial: sign * trial["values"][0])[:MOST_LINES]
    room = max(3, _columns() - 2)
    axes = [*names[: max(1, min(8, room // 12 - 1))], ""]
    apart = max(6, min(16, room // len(axes)))
    height = 9
    grids: list[set[tuple[int, int]]] = [set(), set()]
    ends = _ends(ordered)
    for at, trial in enumerate(ordered):
        layer = 0 if at < max(1, len(ordered) // 10) else 1
        grids[layer] |= _line(axes, space, trial, ends, apart, height)
    click.echo()
    shown = f" (the best {len(ordered)})" if len(ordered) < len(trials) else ""
    click.echo(bold(f"Parallel coordinates{shown}"))
    metric = study["objectives"][0]["metric"]
    _labels([*axes[:-1], metric], apart)
    tops = [_end(space[name], True) for name in axes[:-1]] + [short(ends[1])]
    bottoms = [_end(space[name], False) for name in axes[:-1]] + [short(ends[0])]
    _labels(tops, apart)
    for row in range(height):
        click.echo("  " + _cells(grids, (len(axes) - 1) * apart + 1, row))
    _labels(bottoms, apart)


def _line(
    axes: Sequence[str],
    space: Mapping[str, Any],
    trial: Trial,
    ends: tuple[float, float],
    apart: int,
    height: int,
) -> set[tuple[int, int]]:
    """The dots of one trial: from axis to axis, over those that it does not have."""
    scale = (2, 4) if _unicode() else (1, 1)
    dots: set[tuple[int, int]] = set()
    last: tuple[int, int] | None = None
    for at, name in enumerate(axes):
        if name and name not in trial["params"]:
            continue
        value = trial["params"][name] if name else trial["values"][0]
        part = _part(space[name], value) if name else _between(value, *ends)
        rows = height * scale[1] - 1
        here = (at * apart * scale[0], rows - round(part * rows))
        dots |= set(plot.dots_between(last or here, here))
        last = here
    return dots


def _cells(grids: Sequence[set[tuple[int, int]]], wide: int, row: int) -> str:
    both = grids[0] | grids[1]
    if not _unicode():
        return "".join(
            "#" if (x, row) in grids[0] else "." if (x, row) in both else " " for x in range(wide)
        )
    text = plot.braille(both, wide, row)
    if not output.colour_wanted():
        return text
    best = plot.braille(grids[0], wide, row)
    return "".join(
        click.style(cell, fg="green", bold=True) if mark != " " else output.dim(cell)
        for cell, mark in zip(text, best, strict=True)
    )


def _labels(words: Sequence[str], apart: int) -> None:
    text = "".join(f"{word[: apart - 1]:<{apart}}" for word in words)
    click.echo(output.dim("  " + text.rstrip()))


def _part(dimension: Mapping[str, Any], value: Any) -> float:
    """How far up its axis a value is, 0 to 1."""
    if dimension["kind"] == "choice":
        choices = list(dimension["choices"])
        return choices.index(value) / max(1, len(choices) - 1) if value in choices else 0.0
    low, high = dimension["low"], dimension["high"]
    if dimension["log"]:
        low, high, value = math.log(low), math.log(high), math.log(value)
    return _between(value, low, high)


def _between(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


def _ends(trials: Sequence[Trial]) -> tuple[float, float]:
    found = [trial["values"][0] for trial in trials]
    return min(found), max(found)


def _end(dimension: Mapping[str, Any], top: bool) -> str:
    if dimension["kind"] == "choice":
        return short(dimension["choices"][-1 if top else 0])
    return short(dimension["high" if top else "low"])


# -- trials ---------------------------------------------------------------------------------


def _table(study: Study, trials: Sequence[Trial], limit: int) -> None:
    """The best first, then those that have no value yet, then those that failed."""
    sign = -1.0 if study["objectives"][0]["goal"] == "maximize" else 1.0

    def order(trial: Trial) -> tuple[int, float, int]:
        value = (trial["values"] or [None])[0]
        rank = 2 if trial["state"] in ("failed", "cancelled") else 0 if value is not None else 1
        return (rank, sign * value if value is not None else 0.0, trial["number"])

    names = list(study["spec"]["space"])
    head = ["TRIAL", "STATE", *[goal["metric"].upper() for goal in study["objectives"]], "STEP"]
    rows = [
        [
            trial["number"], trial["state"],
            *[short(value) for value in trial["values"] or [None] * len(study["objectives"])],
            "" if trial["step"] is None else trial["step"],
            *[short(trial["params"].get(name)) for name in names],
            trial["reason"] or ("" if trial["feasible"] else "out of bounds"),
        ]
        for trial in sorted(trials, key=order)[:limit]
    ]  # fmt: skip
    click.echo()
    click.echo(bold(f"Trials ({len(trials)})"))
    output.print_table([*head, *[name.upper() for name in names], "WHY"], rows)
    if len(trials) > limit:
        click.echo(f"  … and {len(trials) - limit} more: -n {len(trials)}")


def _counted(study: Study, trials: Sequence[Trial]) -> list[Trial]:
    return [
        trial
        for trial in trials
        if trial["values"]
        and all(value is not None for value in trial["values"])
        and trial["state"] != "failed"
    ]


def short(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def bold(text: str) -> str:
    return click.style(text, bold=True) if output.colour_wanted() else text


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdigit() else shutil.get_terminal_size().columns


def _unicode() -> bool:
    return plot.unicode_wanted() and sys.stdout is not None
