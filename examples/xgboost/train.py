"""Gradient boosting on handwritten digits, each rank with its share of the rows.

XGBoost takes the tracker's address as arguments, so the script reads it from the environment.
"""

from __future__ import annotations

import hashlib
import os
import threading

import xgboost
from sklearn.datasets import load_digits
from xgboost import collective
from xgboost.tracker import RabitTracker


def start_tracker() -> threading.Thread:
    """Rank 0 tells the others who is there. To be waited for only after this rank has joined."""
    tracker = RabitTracker(
        n_workers=int(os.environ["DMLC_NUM_WORKER"]),
        host_ip=os.environ["DMLC_TRACKER_URI"],
        port=int(os.environ["DMLC_TRACKER_PORT"]),
        sortby="task",
    )
    tracker.start()
    thread = threading.Thread(target=tracker.wait_for, daemon=True)
    thread.start()
    return thread


def train() -> None:
    rank, world_size = collective.get_rank(), collective.get_world_size()
    digits = load_digits()
    mine = slice(rank, None, world_size)
    data = xgboost.DMatrix(digits.data[mine], digits.target[mine])
    params = {"objective": "multi:softmax", "num_class": 10, "max_depth": 3, "nthread": 1}
    seen: dict[str, dict[str, list[float]]] = {}
    model = xgboost.train(
        params, data, 5, evals=[(data, "train")], evals_result=seen, verbose_eval=False
    )
    losses = seen["train"]["mlogloss"]
    digest = hashlib.sha256(model.save_raw()).hexdigest()[:16]
    print(f"rank {rank} of {world_size} loss {losses[0]:.4f} -> {losses[-1]:.4f} model {digest}")


def main() -> None:
    if "DMLC_TRACKER_URI" not in os.environ:
        train()
        return
    first = int(os.environ["DMLC_TASK_ID"]) == 0
    tracker = start_tracker() if first else None
    with collective.CommunicatorContext(
        dmlc_tracker_uri=os.environ["DMLC_TRACKER_URI"],
        dmlc_tracker_port=int(os.environ["DMLC_TRACKER_PORT"]),
        dmlc_task_id=os.environ["DMLC_TASK_ID"],
        dmlc_retry=60,
    ):
        train()
    if tracker is not None:
        tracker.join()


if __name__ == "__main__":
    main()
