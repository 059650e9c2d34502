"""The same small network trains under every strategy, and a loop of torch changes little."""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
from windlass.testing.environments import Unavailable, environment
from windlass.train import registry
from windlass.train.fitting import Plan, train_and_tell
from windlass.train.group import Group
from windlass.train.report import Report

FOLDER = Path(__file__).parents[2] / "examples" / "strategies"
SUMMARY = re.compile(r"(\d[\d,]*) steps .* loss ([0-9.]+) to ([0-9.]+)")


def clean() -> dict[str, str]:
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {k: v for k, v in os.environ.items() if k not in dropped and "WINDLASS_" not in k}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def run(*words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=clean(), capture_output=True, text=True,
        timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def learnt(report: str) -> None:
    found = SUMMARY.search(report)
    assert found is not None, report
    assert float(found[3]) < 0.5 * float(found[2]), report


def test_five_lines_are_new() -> None:
    before, after = (
        [line for line in (FOLDER / name).read_text().splitlines() if line.strip()]
        for name in ("before.py", "after.py")
    )
    changes = list(difflib.ndiff(before, after))
    assert sum(line.startswith("+ ") for line in changes) <= 5, changes
    assert len(after) <= len(before)


def test_the_list_has_every_strategy_with_its_line() -> None:
    lines = dict(
        line.split(maxsplit=1) for line in run(FOLDER / "train.py", "--list").splitlines()
    )
    assert list(lines) == registry.known()
    assert all(len(line) > 20 for line in lines.values())


@pytest.mark.slow
def test_both_loops_learn_also_on_two_processes() -> None:
    for text in (run(FOLDER / "before.py"), run(FOLDER / "after.py")):
        losses = [float(found) for found in re.findall(r"loss=([0-9.]+)", text)]
        assert len(losses) == 5 and losses[-1] < losses[0]
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    text = run(*launcher, FOLDER / "after.py")
    assert len(re.findall(r"epoch 4 loss=[0-9.]+", text)) == 2


def test_an_option_of_the_command_line_reaches_the_strategy() -> None:
    words = ("--strategy", "hogwild", "--workers", "1", "--epochs", "2", "--option", "lock=true")
    report = run(FOLDER / "train.py", *words)
    assert report.startswith("hogwild (lock=True) on 1 worker")
    learnt(report)


@pytest.fixture(scope="module")
def groups() -> Iterator[Callable[[bool], Group]]:
    """Two workers, and two with a server; each begun once, since that takes seconds."""
    sys.path.insert(0, str(FOLDER))
    with ExitStack() as stack:
        found: dict[bool, Group] = {}

        def group(servers: bool) -> Group:
            if servers not in found:
                found[servers] = stack.enter_context(Group(2, int(servers), threads=1))
            return found[servers]

        yield group
    sys.path.remove(str(FOLDER))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", registry.known())
def test_it_learns_under(strategy: str, groups: Callable[[bool], Group]) -> None:
    import train  # type: ignore[import-not-found]

    kind = registry.load(strategy)
    plan = Plan(train.make, kind(), 6, None, None, None, None, False, False)
    answers = groups(kind.has_servers).call(train_and_tell, plan, timeout_seconds=200)
    report = Report.merge([each.report for each in answers.values()], strategy)
    learnt(str(report))
    assert report.evaluation[-1].numbers["accuracy"] > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["allreduce", "ps:ssp"])
def test_the_script_trains_with_members_of_its_own(strategy: str) -> None:
    learnt(run(FOLDER / "train.py", "--strategy", strategy, "--workers", "2"))


@pytest.mark.slow
def test_a_keras_model_is_taken_as_it_is(tmp_path: Path) -> None:
    """Keras from the environment of its own tests, all else from this one."""
    try:
        python = environment("keras", "keras==3.15.1", "torch==2.13.0", "numpy")
    except Unavailable as error:
        pytest.skip(str(error))
    asked = "import json, sysconfig; print(json.dumps(sysconfig.get_paths()))"
    told = subprocess.run([python, "-c", asked], capture_output=True, text=True, timeout=60)
    where = json.loads(told.stdout)["purelib"]
    script = tmp_path / "train_keras.py"
    text = (FOLDER / "train_keras.py").read_text()
    script.write_text(
        text.replace("import os\n", f"import os\nimport sys\nsys.path.append({where!r})\n", 1)
    )
    learnt(run(script, "--workers", "2", "--strategy", "hogwild"))
