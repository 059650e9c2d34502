"""The same training as `train.py`, with the one line that Windlass offers for it."""

from __future__ import annotations

from train import train
from windlass.job import collective

if __name__ == "__main__":
    with collective.xgboost():
        train()
