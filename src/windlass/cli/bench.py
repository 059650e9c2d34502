"""`windlass bench`: measure with one's own model, or frameworks with a small one."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli import exits, output
from windlass.cli.session import WORDS, Session, verb
from windlass.core.errors import InvalidInput

if TYPE_CHECKING:
    from windlass.train.comparison import Comparison, Row
    from windlass.train.frameworks.race import Arm, Race

HEAD = ("STRATEGY", "SAMPLES/S", "BYTES/STEP", "PEAK MEMORY")


@click.group("bench")
def command() -> None:
    """Compare strategies on your own model, and frameworks on a small one."""


@verb("strategies", outputs=WORDS, group=command)
@click.option("--only", metavar="NAMES", help="These strategies, with commas between.")
@click.option(
    "--workers", type=click.IntRange(1, 64), default=2, help="Processes that train; 2 by default."
)
@click.option(
    "--servers", type=click.IntRange(1, 64), help="Of strategies that have servers; 1 by default."
)
@click.option(
    "--steps", type=click.IntRange(1), default=100, help="Of each strategy; 100 by default."
)
@click.option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.")
@click.argument("script")
def strategies(session: Session, script: str, only: str | None, workers: int, **rest: Any) -> None:
    """Train under each strategy for a short while.

    SCRIPT defines make(), which gives a windlass.train.Task. What stands under
    `if __name__ == "__main__":` is not run. Losses are compared after equally many steps, and
    after as many seconds as the quickest needed. Exits 1 when no strategy could run.

    \b
    Examples:
      windlass bench strategies train.py
      windlass bench strategies train.py --only allreduce,ps:ssp,local_sgd --steps 300
    """
    if importlib.util.find_spec("torch") is None:
        raise InvalidInput("bench: torch is not installed", hint="pip install 'windlass[torch]'")
    from windlass.train import registry
    from windlass.train.comparison import compare, make_of

    names = [name.strip() for name in only.split(",") if name.strip()] if only else None
    for name in names or ():
        registry.load(name)
    found = compare(
        make_of(Path(script)),
        names,
        workers=workers,
        begun=lambda name: session.say(f"{name} …"),
        **rest,
    )
    _show(session, found)
    if all(row.why for row in found.rows):
        sys.exit(exits.ERROR)


@verb("frameworks", outputs=WORDS, group=command)
@click.option("--only", metavar="NAMES", help="Of torch, tensorflow, jax; commas between.")
@click.option("--steps", type=click.IntRange(1), default=500, help="Measured; 500 by default.")
@click.option("--threads", type=click.IntRange(1, 1024), default=1, help="Of each; 1 by default.")
@click.option(
    "--python", "pythons", metavar="NAME=PATH", multiple=True,
    help="The Python that has a framework, where this one has not.",
)  # fmt: skip
def frameworks(
    session: Session, only: str | None, steps: int, threads: int, pythons: tuple[str, ...]
) -> None:
    """Train one small network in PyTorch, TensorFlow and JAX.

    The same layers, samples, order, first weights, SGD with momentum and float32, on the CPU, each
    in a process of its own. Import and compilation are told apart from samples a second; losses
    after the same steps should be the same. Exits 1 when none could run.

    \b
    Examples:
      windlass bench frameworks
      windlass bench frameworks --threads 4 --python jax=envs/jax/bin/python
    """
    from windlass.train.frameworks.race import race

    names = [name.strip() for name in only.split(",") if name.strip()] if only else None
    wrong = [each for each in pythons if not all(each.partition("="))]
    if wrong:
        raise InvalidInput(
            f"--python {wrong[0]}: a name and a path", hint="--python jax=envs/jax/bin/python"
        )
    found = race(
        names, steps=steps, threads=threads, begun=lambda name: session.say(f"{name} …"),
        pythons={each.partition("=")[0]: each.partition("=")[2] for each in pythons},
    )  # fmt: skip
    _show_race(session, found)
    if all(each.samples_per_s is None for each in found.arms):
        sys.exit(exits.ERROR)


def _show_race(session: Session, found: Race) -> None:
    if session.quiet or session.one(json.loads(found.model_dump_json())):
        return
    steps = found.problem.warm_up + found.problem.steps
    head = ("FRAMEWORK", "VERSION", "SAMPLES/S", "START", f"LOSS AT {steps} STEPS", "")
    output.print_table(head, [_arm(each) for each in found.arms], colour=None)


def _arm(arm: Arm) -> list[str]:
    if arm.samples_per_s is None or arm.start_seconds is None:
        return [arm.framework, "", "", "", "", arm.why]
    return [
        arm.framework,
        arm.version,
        f"{arm.samples_per_s:,.0f}",
        f"{arm.start_seconds:.1f} s",
        _loss(arm.loss),
        arm.why,
    ]


def _show(session: Session, found: Comparison) -> None:
    data = json.loads(found.model_dump_json())
    if session.quiet or session.one(data):
        return
    head = (*HEAD, f"LOSS AT {found.steps} STEPS", f"LOSS AT {found.seconds:.2g} S", "")
    output.print_table(head, [_row(each) for each in found.rows], colour=None)


def _row(row: Row) -> list[str]:
    from windlass.train.readout import size

    if row.why:
        return [row.strategy, "", "", "", "", "", row.why]
    return [
        row.strategy,
        f"{row.samples_per_s:,.0f}",
        size(row.bytes_per_step or 0),
        size(row.peak_memory_bytes or 0),
        _loss(row.loss_at_steps),
        _loss(row.loss_at_seconds),
        "",
    ]


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
