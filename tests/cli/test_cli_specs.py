"""From flags to a job, by table; every result must also be one that the server's model takes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from windlass.cli import specs
from windlass.cli.specs import Flags, build, parse_role, ranks_of, user_python, value_of
from windlass.core.errors import InvalidInput
from windlass.core.jobs import JobSpec


@pytest.fixture(autouse=True)
def project(home: Path) -> Path:
    Path("train.py").write_text("print(1)")
    Path("ddp.py").write_text("import torch.distributed as dist")
    return Path.cwd()


def spec_of(**flags: Any) -> dict[str, Any]:
    flags.setdefault("command", ("train.py",))
    plan = build(Flags(**flags), local=False)
    JobSpec.model_validate(plan.spec)
    return plan.spec


@pytest.mark.parametrize(
    ("flags", "part", "expected"),
    [
        ({}, "run", ["python", "train.py"]),
        ({"command": ("train.py", "--lr", "0.1", "-o", "x")}, "run",
         ["python", "train.py", "--lr", "0.1", "-o", "x"]),
        ({"command": ("bash", "-c", "echo $HOME")}, "run", ["bash", "-c", "echo $HOME"]),
        ({"command": ("python3", "-u", "train.py")}, "run", ["python3", "-u", "train.py"]),
        ({"workers": 4, "gpus": 1}, "roles", {"worker": {"count": 4, "gpus": 1}}),
        ({"nproc": 2, "cpus": 0.5, "memory": "8GiB"}, "roles",
         {"worker": {"nproc": 2, "cpus": 0.5, "memory": "8GiB"}}),
        ({"role": ("chief=1", "ps=2,memory=4GiB")}, "roles",
         {"chief": {"count": 1}, "ps": {"count": 2, "memory": "4GiB"}}),
        ({"role": ("worker=2", "ps=1"), "gpus": 1}, "roles",
         {"worker": {"count": 2, "gpus": 1}, "ps": {"count": 1}}),
        ({"env": ("A=1", "B=x=y")}, "environment", {"vars": {"A": "1", "B": "x=y"}}),
        ({"param": ("lr=0.1", "n=3", "on=true", "s=sgd")}, "params",
         {"lr": 0.1, "n": 3, "on": True, "s": "sgd"}),
        ({"time": "6h", "idle": "20m", "grace": "5s"}, "limits",
         {"time": "6h", "idle": "20m", "grace": "5s"}),
        ({"retries": 5, "retry_on": ("oom", "exit:33")}, "retry",
         {"times": 5, "on": ["oom", "exit:33"]}),
        ({"priority": 90, "queue": "night"}, "queue", {"priority": 90, "name": "night"}),
        ({"hold": True}, "hold", True),
        ({"name": "mine"}, "name", "mine"),
        ({}, "framework", "python"),
        ({"command": ("ddp.py",)}, "framework", "pytorch"),
        ({"command": ("torchrun", "ddp.py")}, "framework", "pytorch"),
        ({"framework": "pytorch"}, "framework", "pytorch"),
    ],
)  # fmt: skip
def test_flags_become_fields(flags: dict[str, Any], part: str, expected: Any) -> None:
    assert spec_of(**flags)[part] == expected


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"command": ()}, "nothing to run"),
        ({"command": ("nope.py",)}, "no such file: nope.py"),
        ({"command": ("python", "nope.py")}, "no such file: nope.py"),
        ({"role": ("worker",)}, "does not say how many"),
        ({"role": ("worker=0",)}, "does not say how many"),
        ({"role": ("worker=1,gpuz=1",)}, "no field 'gpuz=1'; known: cpus, finish, gpu_model"),
        ({"role": ("worker=1,gpu=x",)}, "gpus='x' is not a number"),
        ({"role": ("worker=1,finish=x",)}, "not one of all, first, never"),
        ({"role": ("worker=1",), "workers": 2}, "both say how many"),
        ({"role": ("ps=1",), "gpus": 1}, "--gpus: for the role `worker`"),
        ({"env": ("NOT_SET_ANYWHERE",)}, "not set here"),
        ({"env": ("=x",)}, "is not NAME=VALUE"),
        ({"param": ("lr",)}, "--param: 'lr' is not NAME=VALUE"),
        ({"code": "nope"}, "--code: 'nope' is not a directory"),
        ({"code": ".", "no_code": True}, "exclude each other"),
    ],
)
def test_mistakes_name_the_flag_and_what_was_found(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        spec_of(**flags)
    assert words in caught.value.message


def test_a_script_outside_the_code_says_which_directory_to_name(project: Path) -> None:
    (project.parent / "other.py").write_text("")
    with pytest.raises(InvalidInput, match="outside the code directory") as caught:
        spec_of(command=("../other.py",))
    assert caught.value.hint == "--code .."
    plan = build(Flags(command=("../other.py",), code=".."), local=False)
    assert plan.spec["run"] == ["python", "../other.py"]
    assert plan.spec["code"] == {"workdir": "project"}, "it runs where one stands"
    assert plan.code == project.parent


def test_an_absolute_script_inside_the_code_runs_from_the_copy(project: Path) -> None:
    assert spec_of(command=(str(project / "train.py"),))["run"] == ["python", "train.py"]


def test_without_code_a_local_script_keeps_its_place(project: Path) -> None:
    plan = build(Flags(command=("train.py",), no_code=True), local=True)
    assert plan.spec["run"] == ["python", str(project / "train.py")]
    assert plan.code is None


def test_the_users_python_is_named_for_a_local_server_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "environment" not in build(Flags(command=("train.py",)), local=False).spec
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    spec = build(Flags(command=("train.py",)), local=True).spec
    assert spec["environment"]["python"] == str(python)
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert user_python() == sys.executable
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "pipx" / "venvs" / "windlass"))
    assert user_python() == sys.executable, "nothing else is there"
    (tmp_path / "python3").touch(0o755)
    assert user_python() == str(tmp_path / "python3")
    assert os.path.isabs(user_python())


def test_flags_win_over_the_job_file_and_its_paths_are_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    (folder / "src").mkdir(parents=True)
    base = {
        "run": "python a.py", "workers": 2, "code": {"dir": "src", "ignore": ["x"]},
        "limits": {"time": "1h", "idle": "5m"}, "params": {"lr": 1, "n": 2},
    }  # fmt: skip
    flags = Flags(workers=3, gpus=1, time="2h", param=("lr=5",))
    plan = build(flags, local=False, base=base, folder=folder)
    JobSpec.model_validate(plan.spec)
    assert plan.code == folder / "src"
    assert plan.spec["roles"] == {"worker": {"count": 3, "gpus": 1}}
    assert "workers" not in plan.spec
    assert plan.spec["limits"] == {"time": "2h", "idle": "5m"}
    assert plan.spec["params"] == {"lr": 5, "n": 2}
    assert plan.spec["code"] == {"ignore": ["x"]}
    assert len(plan.ranks) == 3
    assert base["workers"] == 2, "the file's own content is left alone"


@pytest.mark.parametrize(
    ("spec", "ranks"),
    [
        ({}, 1),
        ({"workers": 3}, 3),
        ({"roles": {"worker": {"count": 2, "gpus": 4}}}, 8),
        ({"roles": {"worker": {"count": 2, "nproc": 3, "gpus": 1}, "ps": {}}}, 7),
    ],
)
def test_ranks_are_counted_as_the_server_does(spec: dict[str, Any], ranks: int) -> None:
    assert len(ranks_of(spec)) == ranks
    model = JobSpec.model_validate({"run": ["x"], **spec})
    assert sum(role.count * role.ranks_per_member for role in model.roles.values()) == ranks


def test_ranks_have_the_numbers_that_the_contract_deals() -> None:
    spec = {"roles": {"ps": {}, "worker": {"count": 2, "nproc": 2}, "chief": {}, "a": {}}}
    assert ranks_of(spec) == [
        "chief-0-0", "worker-0-0", "worker-0-1", "worker-1-0", "worker-1-1", "ps-0-0", "a-0-0",
    ]  # fmt: skip


def test_values_keep_their_kind() -> None:
    texts = ["1", "-1", "0.5", "1e-3", "true", "False", "nan", "inf", "x", "1_0", ""]
    assert [value_of(text) for text in texts] == [
        1, -1, 0.5, 0.001, True, False, "nan", "inf", "x", 10, "",
    ]  # fmt: skip


def test_a_plain_command_typed_at_home_sends_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd()))
    assert build(Flags(command=("echo", "hi")), local=False).code is None
    assert build(Flags(command=("train.py",)), local=False).code is not None


def test_role_names_and_numbers() -> None:
    assert parse_role("worker=2,gpu=1,cpus=0.5,mem=1g,nproc=2,min=1,finish=first") == (
        "worker",
        {
            "count": 2,
            "gpus": 1,
            "cpus": 0.5,
            "memory": "1g",
            "nproc": 2,
            "min": 1,
            "finish": "first",
        },
    )
    assert set(specs.ROLE_FIELDS.values()) < set(
        JobSpec.model_fields["roles"].annotation.__args__[1].model_fields
    )  # type: ignore[union-attr]


# -- launchers -------------------------------------------------------------------------------


def plan_of(*command: str, **flags: Any) -> specs.Plan:
    plan = build(Flags(command=command, **flags), local=False)
    JobSpec.model_validate(plan.spec)
    return plan


TORCH_RUN = ("python", "-m", "torch.distributed.run")


@pytest.mark.parametrize(
    ("command", "flags", "run", "roles"),
    [
        (("torchrun", "--standalone", "ddp.py", "--nnodes", "7"), {},
         ["torchrun", "ddp.py", "--nnodes", "7"], None),
        (("torchrun", "--nproc_per_node=2", "ddp.py"), {"workers": 3},
         ["torchrun", "ddp.py"], {"worker": {"count": 3, "nproc": 2}}),
        (("torchrun", "--nproc-per-node", "2", "--nnodes", "2", "ddp.py"), {"workers": 2},
         ["torchrun", "ddp.py"], {"worker": {"count": 2, "nproc": 2}}),
        ((*TORCH_RUN, "--rdzv_backend=c10d", "--rdzv-endpoint", "h:1", "--max-restarts=3",
          "--master_addr", "h", "--master_port=1", "--node_rank=0", "ddp.py"), {"workers": 2},
         [*TORCH_RUN, "--max-restarts=3", "ddp.py"], {"worker": {"count": 2}}),
        (("python", "-m", "torch.distributed.launch", "--use_env", "--nproc_per_node=2", "ddp.py"),
         {}, ["python", "-m", "torch.distributed.launch", "--use_env", "ddp.py"],
         {"worker": {"nproc": 2}}),
        (("torchrun", "--nproc_per_node=2", "ddp.py"), {"nproc": 4},
         ["torchrun", "ddp.py"], {"worker": {"nproc": 4}}),
        (("torchrun", "--nproc_per_node", "gpu", "ddp.py"), {}, ["torchrun", "ddp.py"], None),
    ],
)  # fmt: skip
def test_what_torchrun_is_told_of_its_place_is_taken_out_and_told(
    command: tuple[str, ...], flags: dict[str, Any], run: list[str], roles: Any
) -> None:
    plan = plan_of(*command, **flags)
    assert plan.spec["run"] == run and plan.spec.get("roles") == roles
    assert "the job itself says where each rank stands" in plan.notices[0]
    assert plan_of("torchrun", "--max-restarts=3", "ddp.py").notices == ()


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("torchrun", "--nnodes", "2", "ddp.py"), "windlass run --workers 2 -- torchrun ddp.py"),
        (("torchrun", "--nnodes=1:4", "ddp.py"), "windlass run --workers 4 -- torchrun ddp.py"),
        (("accelerate", "launch", "--num_machines", "2", "ddp.py"), "--workers 2"),
        (("deepspeed", "--num_nodes=3", "ddp.py"), "--workers 3"),
        (("torchrun", "--nproc_per_node", "cpu", "ddp.py"), "--nproc N -- torchrun ddp.py"),
    ],
)
def test_a_launcher_that_would_wait_for_ever_is_refused_with_the_sentence_to_type(
    command: tuple[str, ...], hint: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        plan_of(*command)
    assert hint in (caught.value.hint or "")


def test_torchrun_in_a_job_file_and_in_a_role_is_mended_too() -> None:
    base = {"run": "torchrun --standalone --nproc_per_node=2 ddp.py", "workers": 2}
    plan = build(Flags(), local=False, base=base)
    assert plan.spec["run"] == ["torchrun", "ddp.py"]
    assert plan.spec["roles"] == {"worker": {"count": 2, "nproc": 2}}
    run = ["torchrun", "--nproc_per_node=2", "ddp.py"]
    plan = build(Flags(), local=False, base={"roles": {"worker": {"count": 2, "run": run}}})
    assert plan.spec["roles"]["worker"] == {"count": 2, "run": ["torchrun", "ddp.py"], "nproc": 2}


def test_torchrun_in_a_shell_line_and_a_gang_of_no_framework_are_told_of() -> None:
    shell = plan_of("bash", "-c", "cd x; torchrun --standalone ddp.py")
    assert "give it as the command itself" in shell.notices[0]
    gang = plan_of("train.py", workers=2)
    assert "2 members of no framework that is known here" in gang.notices[0]
    assert plan_of("train.py", workers=2, framework="python").notices == ()
    assert plan_of("train.py").notices == ()
