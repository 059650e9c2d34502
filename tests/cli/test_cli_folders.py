"""Which folder travels, where in it the job runs, and what people type in place of a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windlass.cli.specs import Flags, Plan, build
from windlass.core.errors import InvalidInput
from windlass.core.jobs import JobSpec


@pytest.fixture(autouse=True)
def project(home: Path) -> Path:
    Path("train.py").write_text("print(1)")
    Path("ddp.py").write_text("import torch.distributed as dist")
    return Path.cwd()


def plan_of(*command: str, local: bool = False, **flags: Any) -> Plan:
    plan = build(Flags(command=command, **flags), local=local)
    JobSpec.model_validate(plan.spec)
    return plan


@pytest.mark.parametrize(
    ("command", "flags", "run", "workdir"),
    [
        (("main.py",), {"code": ".."}, ["python", "main.py"], "mnist"),
        (("../train.py",), {"code": ".."}, ["python", "../train.py"], "mnist"),
        (("make", "x"), {"code": ".."}, ["make", "x"], "mnist"),
        (("main.py",), {}, ["python", "main.py"], None),
        # What lies only at the top of the code that was named is run there.
        (("train.py",), {"code": ".."}, ["python", "train.py"], None),
        (("mnist/main.py",), {"code": "..", "workdir": "."}, ["python", "mnist/main.py"], None),
        (("main.py",), {"code": "..", "workdir": "mnist"}, ["python", "main.py"], "mnist"),
    ],
)
def test_a_job_runs_where_one_stands_inside_the_code(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    flags: dict[str, Any],
    run: list[str],
    workdir: str | None,
) -> None:
    (project / "mnist").mkdir()
    (project / "mnist/main.py").write_text("import torch")
    monkeypatch.chdir(project / "mnist")
    plan = plan_of(*command, **flags)
    assert plan.spec["run"] == run
    assert plan.code == (project if "code" in flags else project / "mnist")
    assert (plan.spec.get("code") or {}).get("workdir") == workdir
    if "main.py" in command[0]:
        assert plan.spec["framework"] == "pytorch", "the script is read where it is"


def test_a_job_file_says_where_in_its_code_it_runs(project: Path) -> None:
    (project / "mnist").mkdir()
    base = {"run": "python ../train.py", "code": {"workdir": "mnist", "include": ["data/"]}}
    plan = build(Flags(), local=False, base=base, folder=project)
    assert plan.spec["code"] == base["code"] and plan.code == project


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"workdir": "nope"}, "--workdir: nope is not a directory in the code"),
        ({"workdir": ".."}, "lies outside the code"),
        ({"workdir": "x", "no_code": True}, "of code that is sent, and none is"),
        ({"here": True}, "the server is on another machine"),
        ({"here": True, "engine": "k8s"}, "engine k8s runs on other machines"),
        ({"here": True, "code": "."}, "--here sends nothing, and --code says what"),
    ],
)
def test_a_folder_that_cannot_be_is_refused(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        plan_of("train.py", **flags)


def test_here_sends_nothing_and_stays_on_this_machine(project: Path) -> None:
    plan = plan_of("train.py", here=True, local=True)
    assert (plan.code, plan.spec["engine"]) == (None, "local")
    assert plan.spec["code"] == {"here": str(project)}
    assert plan.spec["run"] == ["python", "train.py"]
    with pytest.raises(InvalidInput, match="no such file: nope.py"):
        plan_of("nope.py", here=True, local=True)


@pytest.mark.parametrize(
    ("command", "run", "notice"),
    [
        (("python train.py --lr 1",), ["python", "train.py", "--lr", "1"], ""),
        (("train.py --lr ${lr}",), ["python", "train.py", "--lr", "${lr}"], ""),
        (
            ("echo a && python train.py",),
            ["sh", "-c", "echo a && python train.py"],
            "run by a shell: sh -c 'echo a && python train.py'",
        ),
        (("A=1 python ddp.py | tee x",), ["sh", "-c", "A=1 python ddp.py | tee x"], "a shell"),
        (("plain.sh", "1"), ["bash", "plain.sh", "1"], "plain.sh has no #! line"),
        (("marked.sh",), ["sh", "marked.sh"], ""),
        (("./ready.sh",), ["./ready.sh"], ""),
    ],
)
def test_lines_and_shell_scripts_are_understood(
    project: Path, command: tuple[str, ...], run: list[str], notice: str
) -> None:
    for name, head, mode in (
        ("plain.sh", "", 0o644),
        ("marked.sh", "#!/usr/bin/env sh\n", 0o644),
        ("ready.sh", "#!/bin/sh\n", 0o755),
    ):
        (project / name).write_text(head + "echo hello\n")
        (project / name).chmod(mode)
    plan = plan_of(*command)
    assert plan.spec["run"] == run
    assert notice in " ".join(plan.notices) and bool(notice) == bool(plan.notices)
    assert plan.spec["framework"] == ("pytorch" if "ddp" in command[0] else "python")


def write(path: Path, *cells: Any, language: str = "python") -> None:
    found = [{"cell_type": "code", "source": each} for each in cells]
    about = {"kernelspec": {"language": language}}
    path.write_text(json.dumps({"cells": found, "metadata": about}))


def test_a_notebook_runs_as_a_script_of_its_cells_and_its_magics_are_told(project: Path) -> None:
    write(
        project / "x.ipynb",
        ["%matplotlib inline\n", "import torch\n", "x = 5"],
        "%%time\nif True:\n    !ls\n    print(x % 3)",
        "%%bash\nrm -rf /",
        'print("""\n%not magic\n""")',
    )
    plan = plan_of("x.ipynb", "--lr", "1")
    assert plan.spec["run"] == ["python", "x.ipynb.py", "--lr", "1"]
    assert plan.spec["framework"] == "pytorch"
    assert "cell 1, %matplotlib inline; cell 2, !ls; cell 3, %%bash" in plan.notices[1]
    script = plan.made["x.ipynb.py"].decode()
    said: list[object] = []
    exec(script.replace("import torch", ""), {"print": said.append})
    assert said == [2, "\n%not magic\n"]


def test_a_notebook_that_cannot_be_run_says_why(project: Path) -> None:
    write(project / "r.ipynb", language="R")
    with pytest.raises(InvalidInput, match="a notebook of R"):
        plan_of("r.ipynb")
    write(project / "bad.ipynb", "def")
    with pytest.raises(InvalidInput, match="cell 1 is not Python that a script can run: def"):
        plan_of("bad.ipynb")
    with pytest.raises(InvalidInput, match="no such file: none.ipynb"):
        plan_of("none.ipynb")
    write(project / "good.ipynb", "print(1)")
    with pytest.raises(InvalidInput, match="must be sent"):
        plan_of("good.ipynb", no_code=True)
