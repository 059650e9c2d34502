"""The same training in several frameworks, each in a process of its own, one after the other.

Start and compilation are measured by themselves and are not in the samples a second. The loss at
the end is over all samples; since samples, order, weights and arithmetic are the same, it should
be the same too: where it is not, the numbers beside it do not compare.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.core.errors import InvalidInput
from windlass.core.strict import Strict
from windlass.train.frameworks.problem import Problem, write

ARMS = {
    "torch": ("with_torch.py", "torch"),
    "tensorflow": ("with_tensorflow.py", "tensorflow"),
    "jax": ("with_jax.py", "jax"),
}
"""Name → (its script, what pip calls it)."""
ALIKE = 0.02
"""Losses that are further apart than this part of the middle one are told."""
_LIMIT_SECONDS = 900.0


class Arm(Strict):
    """One framework. `why` says what kept it from running; the numbers are None then."""

    framework: str
    version: str = ""
    samples_per_s: float | None = None
    start_seconds: float | None = None
    """Import, first weights and the steps that are not measured, with what they compile."""
    loss: float | None = None
    why: str = ""


class Race(Strict):
    problem: Problem
    arms: tuple[Arm, ...]


def race(
    names: Sequence[str] | None = None,
    *,
    steps: int = 500,
    threads: int = 1,
    pythons: Mapping[str, str] | None = None,
    begun: Callable[[str], None] = lambda name: None,
) -> Race:
    """All frameworks, or those of `names`. `pythons` has, by name, the interpreter of one that
    lives in an environment of its own. Raises InvalidInput on a name that is not known."""
    for name in (*(names or ()), *(pythons or {})):
        if name not in ARMS:
            raise InvalidInput(f"{name}: no such framework", hint=f"there are {', '.join(ARMS)}")
    for name, path in (pythons or {}).items():
        if not Path(path).is_file():
            raise InvalidInput(f"--python {name}={path}: there is no such file")
    problem = Problem(steps=steps, threads=threads)
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        file = Path(folder) / "problem"
        write(problem, file)
        arms = []
        for name in names or ARMS:
            begun(name)
            arms.append(_run(name, (pythons or {}).get(name, sys.executable), file, threads))
    return Race(problem=problem, arms=tuple(_compared(arms)))


def _run(name: str, python: str, file: Path, threads: int) -> Arm:
    script = Path(__file__).parent / "arms" / ARMS[name][0]
    limits = {f"{which}_NUM_THREADS": str(threads) for which in ("OMP", "MKL", "OPENBLAS")}
    # Another Python must not find this one's packages.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    command = [python, "-B", str(script), str(file), str(threads)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False,
            stdin=subprocess.DEVNULL, env={**environment, **limits},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Arm(framework=name, why=f"it took more than {_LIMIT_SECONDS:.0f} s")
    except OSError as err:
        return Arm(framework=name, why=f"{python} cannot be started: {err}")
    answer = _answer(done.stdout)
    if done.returncode or answer is None:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no word"]
        return Arm(framework=name, why=f"it ended with {done.returncode}: {lines[-1].strip()}")
    if "missing" in answer:
        return Arm(framework=name, why=f"not installed: pip install {ARMS[name][1]}")
    return Arm(
        framework=name, version=str(answer["version"]), loss=float(answer["loss"]),
        samples_per_s=float(answer["samples_per_s"]),
        start_seconds=float(answer["start_seconds"]),
    )  # fmt: skip


def _answer(printed: str) -> dict[str, Any] | None:
    for line in reversed(printed.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        return found if isinstance(found, dict) else None
    return None


def _compared(arms: Sequence[Arm]) -> list[Arm]:
    losses = [each.loss for each in arms if each.loss is not None]
    middle = statistics.median(losses) if losses else 0.0
    found = []
    for each in arms:
        apart = each.loss is not None and abs(each.loss - middle) > ALIKE * abs(middle)
        words = f"its loss is not the others' ({middle:.4g})"
        found.append(each.model_copy(update={"why": words}) if apart else each)
    return found
