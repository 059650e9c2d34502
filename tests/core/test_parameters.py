"""A parameter found and changed in a command: the same for the client and the server."""

from __future__ import annotations

import pytest

from windlass.core.errors import InvalidInput
from windlass.core.jobs import JobSpec
from windlass.core.parameters import change_spec, change_words
from windlass.server.jobs import service


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python", "t.py", "--lr", "0.1"], ["python", "t.py", "--lr", "0.5"]),
        (["python", "t.py", "--lr=0.1", "-v"], ["python", "t.py", "--lr=0.5", "-v"]),
        (["python", "t.py", "lr=0.1"], ["python", "t.py", "lr=0.5"]),
        (["python", "t.py", "-lr", "1"], ["python", "t.py", "-lr", "0.5"]),
        (["python", "t.py", "--rate", "1"], None),
        (["python", "lr"], None),
        (["python", "t.py", "--lr"], None),
    ],
)
def test_a_parameter_is_found_in_a_command(words: list[str], expected: list[str] | None) -> None:
    assert change_words(words, "lr", 0.5) == expected


def test_an_underscore_finds_its_hyphen() -> None:
    assert change_words(["t", "--batch-size", "8"], "batch_size", 16) == [
        "t",
        "--batch-size",
        "16",
    ]


def test_an_unknown_parameter_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"no parameter 'lr'.*\(epochs\)"):
        change_spec({"run": ["t.py"], "params": {"epochs": 3}}, "lr", 1)


def test_the_command_of_a_role_is_changed_too() -> None:
    spec = {"run": ["t.py", "--lr", "1"], "roles": {"a": {"run": ["u.py", "lr=1"]}, "b": {}}}
    assert change_spec(spec, "lr", 2) == {
        "run": ["t.py", "--lr", "2"],
        "roles": {"a": {"run": ["u.py", "lr=2"]}, "b": {}},
    }


def test_the_server_changes_a_rerun_in_the_same_way() -> None:
    spec = JobSpec.model_validate({"run": ["t.py", "--batch-size=8"], "params": {"epochs": 3}})
    new = service.changed(spec, {"batch_size": 16, "epochs": 9}, {"name": "again"})
    assert (new.run, new.params, new.name) == (
        ("t.py", "--batch-size=16"),
        {"epochs": 9},
        "again",
    )
    with pytest.raises(InvalidInput, match="no parameter 'lr'"):
        service.changed(spec, {"lr": 1}, {})
