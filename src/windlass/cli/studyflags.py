"""Flags that `windlass study` and `windlass automl`, which is one study, have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

METRICS = ("accuracy", "rmse", "logloss")
Option = Callable[..., Any]


def trials(help: str) -> Option:
    return click.option("--trials", type=click.IntRange(1), help=help)


def parallel(help: str, **more: Any) -> Option:
    return click.option("--parallel", type=click.IntRange(1), help=help, **more)


def seed(help: str, **more: Any) -> Option:
    return click.option("--seed", type=click.IntRange(0), help=help, **more)


def folds(most: int, help: str) -> Option:
    return click.option(
        "--folds", type=click.IntRange(2, most), default=5, show_default=True, help=help
    )


def top(default: int, help: str) -> Option:
    return click.option(
        "--top", type=click.IntRange(1, 1000), default=default, show_default=True, help=help
    )


def metric(help: str) -> Option:
    return click.option("--metric", type=click.Choice(METRICS), help=help)


def model_name(help: str) -> Option:
    return click.option("--as", "name", metavar="NAME", help=help)
