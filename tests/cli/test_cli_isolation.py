"""How far jobs are kept apart, as the command line says it."""

from __future__ import annotations

import pytest

from windlass.cli import apart, doctor
from windlass.cli.node import HEAD, row
from windlass.cli.show import isolation_lines
from windlass.client.nodes import Node
from windlass.engines.local import isolation
from windlass.engines.local.isolation import Able


def test_a_job_shows_its_level_and_the_parts_of_it() -> None:
    one = {"level": 1, "network": "none", "uid": 200_017, "seccomp": "deny list", "memory": "v1"}
    assert isolation_lines({"n0": one, "n1": one}) == [
        "  isolation  level 1 · network none · uid 200017 · seccomp deny list · memory v1"
    ]
    other = {"level": 0, "network": "host", "memory": "none"}
    assert isolation_lines({"n0": one, "n1": other}) == [
        "  isolation  level 1 · network none · uid 200017 · seccomp deny list · memory v1 (n0)",
        "  isolation  level 0 · network host · memory none (n1)",
    ]
    assert isolation_lines({"n0": {}}) == []


def test_a_node_shows_the_level_that_it_can_give() -> None:
    node = Node("n0", "local", "ready", isolation={"level": "1"})
    assert dict(zip(HEAD, row(node), strict=True))["LEVEL"] == "1"


@pytest.mark.parametrize(
    ("able", "state", "words", "fix"),
    [
        (Able(1, True), "ok", "level 1: each job a user of its own", ""),
        (
            Able(0, False, {"bubblewrap": "none"}, ("bubblewrap is not installed",)),
            "note",
            "Level 1: bubblewrap is not installed",
            "apt install bubblewrap",
        ),
        (
            Able(0, True, {"bubblewrap": "works"}, ("the server does not run as root",)),
            "note",
            "level 0: jobs are not kept from each other. Level 1: the server does not run as root",
            "",
        ),
    ],
)
def test_the_doctor_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, able: Able, state: str, words: str, fix: str
) -> None:
    monkeypatch.setattr(isolation, "look", lambda: able)
    check = doctor.isolation()
    assert (check.state, check.fix) == (state, fix) and words in check.found


def test_what_is_in_force_says_what_a_job_can_read() -> None:
    alone = apart.in_force({"wish": "auto", "shared": False, "level": 0})
    several = apart.in_force({"wish": "auto", "shared": True, "level": 0})
    kept = apart.in_force({"wish": "1", "shared": True, "level": 1})
    assert alone[0] == "level 0: jobs of this server are not kept apart"
    assert "several users" in several[0] and alone[1] == several[1]
    assert "the server's data and keys" in alone[1]
    assert "apart from the others" in kept[0] and "its own files" in kept[1]
    assert all(len(line) <= 68 for told in (alone, several, kept) for line in told), "80 columns"
    assert doctor.in_force({"level": 0}).state == "note"
    assert doctor.in_force({"level": 1}).state == "ok"
    assert alone[1] in doctor.in_force({"level": 0}).found


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"wish": "auto", "level": 1}, "each job runs as a user of its own"),
        ({"wish": "0", "level": 0}, "does not keep their jobs apart (--isolation 0)"),
        ({"wish": "auto", "level": 0}, "this machine cannot keep their jobs apart"),
    ],
)
def test_who_makes_the_second_user_is_told_what_becomes_of_jobs(
    told: dict[str, object], words: str
) -> None:
    said = apart.sentence({"shared": True, **told})
    assert said.startswith("several users share this server now") and words in said
