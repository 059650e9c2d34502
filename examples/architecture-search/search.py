"""The space: up to three blocks, each of one of four kinds, with what that kind needs."""

from __future__ import annotations


def space(trial):
    for block in range(trial.suggest_int("blocks", 1, 3)):
        kind = trial.suggest_categorical(
            f"kind_{block}", ["conv", "separable", "residual", "pool"]
        )
        if kind != "pool":
            trial.suggest_categorical(f"width_{block}", [8, 16, 32])
        if kind in ("conv", "separable"):
            trial.suggest_categorical(f"kernel_{block}", [3, 5])
    trial.suggest_float("lr", 1e-3, 3e-2, log=True)
