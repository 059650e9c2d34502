"""`windlass bench frameworks`: one small network in several frameworks."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from windlass.core.errors import InvalidInput
from windlass.train.frameworks.problem import Problem, write
from windlass.train.frameworks.race import Arm, _compared, race


def bench(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from windlass.cli.main import main; main()", "bench", "frameworks",
         *map(str, words)],
        capture_output=True, text=True, timeout=250, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def python(path: Path, line: str) -> Path:
    """A Python that is none, or that lacks everything."""
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_torch_trains_and_what_is_not_there_is_listed(tmp_path: Path) -> None:
    bare = python(tmp_path / "bare", f'exec {sys.executable} -S -s -E "$@"')
    broken = python(tmp_path / "broken", "echo boom >&2; exit 3")
    words = ("--steps", "30", "--python", f"jax={bare}", "--python", f"tensorflow={broken}")
    done = bench(*words, "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["problem"]["steps"] == 30
    torch, tensorflow, jax = found["arms"]
    assert torch["framework"] == "torch" and torch["version"] and not torch["why"]
    assert torch["samples_per_s"] > 0 and torch["start_seconds"] > 0
    assert 0 < torch["loss"] < 2.0, "ten classes: it was 2.3"
    assert jax["why"] == "not installed: pip install jax" and jax["samples_per_s"] is None
    assert tensorflow["why"] == "it ended with 3: boom"


def test_the_table_has_a_line_for_each_and_nothing_that_ran_exits_1(tmp_path: Path) -> None:
    bare = python(tmp_path / "bare", f'exec {sys.executable} -S -s -E "$@"')
    done = bench("--only", "jax", "--python", f"jax={bare}")
    assert done.returncode == 1
    assert "FRAMEWORK" in done.stdout and "LOSS AT 520 STEPS" in done.stdout
    assert "not installed: pip install jax" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--only", "caffe"), "caffe: no such framework"),
        (("--python", "jax"), "--python jax: a name and a path"),
        (("--python", "caffe=/bin/sh"), "caffe: no such framework"),
        (("--python", "jax=/no/such/python"), "there is no such file"),
        (("--steps", "0"), "--steps"),
    ],
)
def test_bad_input_is_told(words: tuple[str, ...], told: str) -> None:
    done = bench(*words)
    assert done.returncode == 2 and told in done.stderr, done.stderr


def test_a_loss_apart_from_the_others_is_told() -> None:
    arms = [Arm(framework=name, samples_per_s=1.0, loss=loss) for name, loss in
            (("a", 0.500), ("b", 0.501), ("c", 0.600))]  # fmt: skip
    assert [each.why for each in _compared(arms)] == [
        "",
        "",
        "its loss is not the others' (0.501)",
    ]


def test_the_problem_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in "ab":
        write(Problem(samples=64), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(InvalidInput, match="theano: no such framework") as refused:
        race(["theano"])
    assert refused.value.hint == "there are torch, tensorflow, jax"
