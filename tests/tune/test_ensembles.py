"""Choosing an ensemble: never worse than its best member, the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from windlass.tune.ensembles import METRICS, accuracy, logloss, metric_for, rmse, select


def noisy(seed: int, count: int, classes: int) -> tuple[np.ndarray, list[np.ndarray]]:
    dice = np.random.default_rng(seed)
    truth = dice.integers(0, classes, 200)
    members = []
    for _ in range(count):
        said = dice.random((200, classes)) + 0.5 * np.eye(classes)[truth]
        members.append(said / said.sum(axis=1, keepdims=True))
    return truth, members


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("metric", ["accuracy", "logloss"])
def test_an_ensemble_is_never_worse_than_its_best_member(seed: int, metric: str) -> None:
    truth, members = noisy(seed, 6, 3)
    found = select(truth, members, METRICS[metric])
    costs = [METRICS[metric].cost(truth, each) for each in members]
    pairs = zip(found.weights, members, strict=True)
    together = sum(weight * each for weight, each in pairs)
    assert METRICS[metric].cost(truth, together) <= min(costs)
    assert found.best == int(np.argmin(costs)) and sum(found.weights) == pytest.approx(1.0)
    assert found == select(truth, members, METRICS[metric]), "nothing is left to chance"


def test_errors_that_cancel_out_are_taken_together_with_weights() -> None:
    truth = np.array([1.0, 2.0, 3.0, 4.0])
    members = [truth + 1.0, truth - 1.0, truth + 3.0]
    found = select(truth, members, METRICS["rmse"])
    assert found.weights == (0.5, 0.5, 0.0) and found.score == pytest.approx(0.0)
    assert found.alone == pytest.approx((1.0, 1.0, 3.0)) and found.best == 0
    three_to_one = select(truth, [truth - 1.0, truth + 3.0], METRICS["rmse"])
    assert three_to_one.weights == (0.75, 0.25), "one may be taken several times"


def test_among_equals_the_first_is_taken_and_the_smaller_ensemble() -> None:
    truth = np.array([0, 1, 1])
    same = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    found = select(truth, [same, same.copy(), same.copy()], METRICS["accuracy"])
    assert found.weights == (1.0, 0.0, 0.0) and found.score == pytest.approx(2 / 3)


def test_what_is_no_number_is_not_taken_and_nothing_is_an_error() -> None:
    truth = np.array([1.0, 2.0])
    found = select(truth, [truth * np.nan, truth + 1.0], METRICS["rmse"])
    assert found.weights == (0.0, 1.0) and found.best == 1
    for members in ([], [truth * np.nan], [truth, truth[:1]]):
        with pytest.raises(ValueError):
            select(truth, members, METRICS["rmse"])


def test_the_metrics_are_what_their_names_say() -> None:
    said = np.array([[0.75, 0.25], [0.5, 0.5]])
    assert accuracy(np.array([0, 1]), said) == 0.5
    assert logloss(np.array([0, 1]), said) == pytest.approx(-np.log(0.75 * 0.5) / 2)
    assert logloss(np.array([0]), np.array([[0.0, 1.0]])) < 40, "a certain error is finite"
    assert rmse(np.array([1.0, 3.0]), np.array([1.0, 1.0])) == pytest.approx(2**0.5)
    assert metric_for("maximize", True).name == "accuracy"
    assert metric_for("minimize", True).name == "logloss"
    assert metric_for("minimize", False).name == "rmse"
