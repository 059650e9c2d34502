"""Runtimes from history: high enough, from what is alike, in bounded room."""

from __future__ import annotations

import pytest

from windlass.scheduler.predict import Histories, likeness


@pytest.mark.parametrize(
    ("runs", "limit", "expected"),
    [
        ([], None, None),
        ([], 500, 500),
        ([100], None, 150),
        ([100], 120, 120),
        ([100], 500, 150),
        ([100, 300, 200], None, 450),
        ([900, 100, 100, 100, 100, 100], None, 150),  # the long one is forgotten after five
        ([100, 900, 100, 100, 100, 100], None, 1350),
        ([0], None, 1),
        ([-5], None, 1),
    ],
)
def test_the_longest_of_the_last_five_and_a_half_under_the_limit(
    runs: list[int], limit: int | None, expected: int | None
) -> None:
    histories = Histories()
    for ran in runs:
        histories.ended("lab", "ann", "train", ran)
    assert histories.expect("lab", "ann", "train", limit) == expected


def test_a_new_sort_of_job_is_guessed_from_the_users_others() -> None:
    histories = Histories()
    histories.ended("lab", "ann", "train", 1000)
    histories.ended("lab", "ann", "test", 10)
    assert histories.expect("lab", "ann", "test") == 15
    assert histories.expect("lab", "ann", "new") == 1500
    assert histories.expect("lab", "bob", "train") is None
    assert histories.expect("other", "ann", "train") is None


def test_a_job_without_likeness_is_counted_once() -> None:
    histories = Histories()
    for ran in (600, 1, 2, 3):
        histories.ended("lab", "ann", "", ran)
    assert histories.expect("lab", "ann", "") == 900


def test_who_was_not_heard_of_for_longest_is_forgotten() -> None:
    histories = Histories(room=4)
    histories.ended("lab", "ann", "a", 100)
    histories.ended("lab", "bob", "a", 100)
    histories.ended("lab", "ann", "b", 100)  # pushes out ann's "a", the oldest
    assert histories.expect("lab", "bob", "a") == 150
    histories.ended("lab", "ann", "b", 100)
    histories.ended("lab", "cid", "a", 100)  # pushes out both of bob's
    assert histories.expect("lab", "bob", "a") is None
    assert histories.expect("lab", "ann", "b") == 150
    assert histories.expect("lab", "cid", "a") == 150


@pytest.mark.parametrize(
    ("name", "command", "like"),
    [
        ("sweep-017", (), "sweep-#"),
        ("resnet50-lr0.1", (), "resnet#-lr#.#"),
        ("run-9f3ac2", (), "run-#"),
        ("", ("python", "train.py", "--lr", "0.1"), "python train.py"),
        ("", (), ""),
        ("x" * 500, (), "x" * 120),
    ],
)
def test_jobs_that_differ_by_numbers_are_alike(
    name: str, command: tuple[str, ...], like: str
) -> None:
    assert likeness(name, command) == like
