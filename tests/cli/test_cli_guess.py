"""The command line guesses the framework, says so, and asks where it cannot know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windlass.cli.specs import Flags, Plan, build
from windlass.core.errors import Ambiguous

BOTH = "import torch\nimport tensorflow as tf\n"


@pytest.fixture(autouse=True)
def project(home: Path) -> Path:
    return Path.cwd()


def plan(source: str, **flags: Any) -> Plan:
    Path("train.py").write_text(source)
    return build(Flags(**{"command": ("train.py",), **flags}), local=False)


def test_a_gang_that_imports_two_frameworks_asks_for_the_flag() -> None:
    with pytest.raises(Ambiguous) as raised:
        plan(BOTH, workers=2)
    assert "imports torch" in str(raised.value) and "imports tensorflow" in str(raised.value)
    assert "--framework pytorch or --framework tensorflow" in raised.value.hint


@pytest.mark.parametrize("flags", [{"nproc": 2}, {"gpus": 2}, {"role": ("chief=1", "worker=1")}])
def test_however_the_gang_comes_to_two_processes(flags: dict[str, Any]) -> None:
    with pytest.raises(Ambiguous):
        plan(BOTH, **flags)


def test_the_flag_answers_the_question() -> None:
    made = plan(BOTH, workers=2, framework="tensorflow")
    assert (made.spec["framework"], made.why_framework) == ("tensorflow", "")


def test_one_process_is_not_asked() -> None:
    made = plan(BOTH)
    assert made.spec["framework"] == "pytorch" and "single process" in made.why_framework


def test_a_module_beside_the_script_is_read() -> None:
    Path("model.py").write_text("import jax\n")
    assert plan("import model\n", workers=2).spec["framework"] == "jax"


def test_a_package_of_the_code_is_read() -> None:
    Path("nets").mkdir()
    Path("nets/__init__.py").write_text("")
    Path("nets/small.py").write_text("import paddle\n")
    made = plan("from nets.small import net\n", workers=2)
    assert made.spec["framework"] == "paddle"
    assert made.why_framework == "the script imports nets.small, which imports paddle"


def test_relative_imports_of_a_module_that_is_run_are_followed() -> None:
    Path("pkg").mkdir()
    for name, source in {
        "__init__": "",
        "task": "from . import net\n",
        "net": "import mxnet\n",
    }.items():
        Path(f"pkg/{name}.py").write_text(source)
    made = build(Flags(command=("python", "-m", "pkg.task")), local=False)
    assert made.spec["framework"] == "mxnet"
