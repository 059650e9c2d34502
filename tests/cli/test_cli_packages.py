"""A trainer package, as Google Cloud's ML service takes it, becomes a plain job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windlass.cli.specs import Flags, Plan, build
from windlass.core.errors import InvalidInput
from windlass.core.jobs import JobSpec


@pytest.fixture(autouse=True)
def project(home: Path) -> Path:
    trainer = Path("samples/trainer")
    trainer.mkdir(parents=True)
    (trainer / "__init__.py").touch()
    (trainer / "task.py").write_text("import torch\n")
    (trainer / "whole").mkdir()
    (trainer / "whole" / "__main__.py").write_text("print(1)\n")
    return Path.cwd()


def plan(local: bool = True, **flags: Any) -> Plan:
    flags = {"package_path": "samples/trainer", "module_name": "trainer.task", **flags}
    made = build(Flags(**flags), local=local)
    JobSpec.model_validate(made.spec)
    return made


def test_the_module_runs_in_the_folder_that_holds_its_package(project: Path) -> None:
    made = plan(command=("--epochs", "3"))
    assert made.spec["run"] == ["python", "-m", "trainer.task", "--epochs", "3"]
    assert made.code == project / "samples"


def test_the_framework_is_guessed_from_the_module() -> None:
    made = plan()
    assert made.spec["framework"] == "pytorch"
    assert "torch" in made.why_framework


def test_the_job_dir_comes_last_and_is_meant_from_here(project: Path) -> None:
    assert plan(command=("-v",), job_dir="out").spec["run"][3:] == [
        "-v", "--job-dir", str(project / "out"),
    ]  # fmt: skip
    assert plan(job_dir="gs://bucket/out").spec["run"][-1] == "gs://bucket/out"
    assert plan(job_dir="out", local=False).spec["run"][-1] == "out"


def test_the_package_is_found_by_the_modules_name(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("samples")
    made = plan(package_path=None, module_name="trainer.whole")
    assert made.spec["run"] == ["python", "-m", "trainer.whole"]
    assert made.code == project / "samples"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"module_name": None}, "--package-path: which module"),
        ({"module_name": None, "package_path": None, "job_dir": "x"}, "--job-dir: which module"),
        ({"package_path": "samples/none"}, "is not a directory"),
        ({"module_name": "other.task"}, "no module of the package 'trainer'"),
        ({"module_name": "trainer.none"}, "has no module 'trainer.none'"),
        ({"code": "."}, "--code and --module-name"),
        ({"no_code": True}, "--no-code and --module-name"),
    ],
)
def test_what_does_not_fit_is_said(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        plan(**flags)
