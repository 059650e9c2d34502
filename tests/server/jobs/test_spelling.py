"""What is copied from a job's page and run elsewhere makes the same job."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from windlass.cli.specs import Flags, build
from windlass.cli.submit import command
from windlass.core.jobs import JobSpec
from windlass.server.jobs.spelling import spellings

SPECS: dict[str, dict[str, Any]] = {
    "smallest": {"run": "true"},
    "quoted": {"run": ["python", "-c", "print('a b', \"c\", $HOME)"], "name": "quoted"},
    "dash": {"run": ["-odd", "--name", "x"]},
    "gang": {"run": "python train.py", "workers": 4, "framework": "pytorch",
             "roles": {"worker": {"gpus": 2, "memory": "8GiB", "cpus": 1.5, "nproc": 2}}},
    "one role": {"run": "true", "roles": {"worker": {"gpu_share": 0.25, "gpu_model": ["a100"]}}},
    "roles": {"run": "true", "framework": "tensorflow", "roles": {
        "chief": {"count": 1}, "ps": {"count": 2, "memory": 12345}, "worker": {"count": 2}}},
    "limits": {"run": "true", "limits": {"time": "6h", "idle": "10m", "grace": "90s"},
               "retry": {"times": 7, "on": ["lost", "exit:3", "log:NCCL error"]}},
    "queue": {"run": "true", "queue": {"name": "night", "priority": 70, "preemptible": False},
              "hold": True, "work": "notebook", "begin": "2027-01-01T00:00:00Z"},
    "params": {"run": "python a.py --lr ${lr}", "params": {"lr": 0.1, "n": 3, "on": True,
               "opt": "adam"}},
    "environment": {"run": "true", "environment": {"vars": {"A": "b c", "E": ""},
                    "secrets": ["TOKEN"]}},
    "from a job": {"run": "true", "start_from": {"job": "brisk-otter", "step": 40}},
    "from a model": {"run": "true", "start_from": {"model": "digits@champion"}},
    "near": {"run": "true", "workers": 2, "placement": {"level": "rack", "required": True},
             "after": ["brisk-otter"]},
    "git": {"run": "python a.py", "code": {"git": "https://example.org/x.git"}},
    "a branch": {"run": "python a.py", "code": {"git": "ssh://git@example.org/x", "ref": "v1.2"}},
}  # fmt: skip
FILE_ONLY: dict[str, dict[str, Any]] = {
    "a text that looks like a number": {"run": "true", "params": {"x": "1"}},
    "a role's own command": {"run": "true", "roles": {"worker": {}, "ps": {"run": "false"}}},
    "no idle": {"run": "true", "limits": {"idle": None}},
    "resume": {"run": "true", "start_from": {"job": "a", "resume": True}},
    "kept checkpoints": {"run": "true", "outputs": {"keep": 9}},
    "loss": {"run": "true", "on_member_loss": "continue"},
}


def read_back(line: str) -> JobSpec:
    program, verb, *words = shlex.split(line)
    assert (program, verb) == ("windlass", "run")
    context = command.make_context("run", list(words))
    known = {name: value for name, value in context.params.items() if name in Flags._fields}
    assert known["no_code"] is (known["git"] is None), "no code was sent"
    spec = JobSpec.model_validate(build(Flags(**known), local=False).spec)
    guessed = "--framework" not in words
    return spec.model_copy(update={"framework": None}) if guessed else spec


@pytest.mark.parametrize("name", SPECS)
def test_the_line_means_the_same_job(name: str) -> None:
    spec = JobSpec.model_validate(SPECS[name])
    line = spellings(spec).cli
    assert not line.endswith("job.yaml"), line
    found = read_back(line)
    spec = spec.model_copy(update={"workers": None})
    assert found.model_copy(update={"workers": None}) == spec, line


@pytest.mark.parametrize("name", FILE_ONLY)
def test_what_no_flag_says_is_left_to_the_file(name: str) -> None:
    told = spellings(JobSpec.model_validate(FILE_ONLY[name]))
    assert told.cli == "windlass run -f job.yaml"


@pytest.mark.parametrize("name", [*SPECS, *FILE_ONLY])
def test_the_file_and_the_call_mean_the_same_job(name: str) -> None:
    spec = JobSpec.model_validate({**SPECS, **FILE_ONLY}[name])
    told = spellings(spec)
    plain = spec.model_copy(update={"workers": None})
    read = JobSpec.model_validate(yaml.safe_load(told.yaml))
    assert read.model_copy(update={"workers": None}) == plain

    class Client:
        """Takes what the call gives."""

        class jobs:
            name = id = ""

            @classmethod
            def submit(cls, **fields: Any) -> Any:
                caught.update(fields)
                return cls

    caught: dict[str, Any] = {}
    words = told.python.replace("import windlass\n", "")
    exec(words, {"windlass": type("windlass", (), {"Client": Client}), "print": lambda *_: None})
    called = JobSpec.model_validate(caught)
    assert called.model_copy(update={"workers": None}) == plain


def test_code_is_the_folder_where_one_stands() -> None:
    told = spellings(JobSpec.model_validate({"run": "python a.py", "code": {"bundle": "a" * 64}}))
    assert told.cli == "windlass run --framework python python a.py"
    assert 'code="."' in told.python and "bundle" not in told.yaml
