"""Gradient boosting on handwritten digits, each rank with its share of the rows.

LightGBM takes the list of machines as parameters, so the script reads it from the environment.
"""

from __future__ import annotations

import hashlib
import os

import lightgbm
from sklearn.datasets import load_digits


def main() -> None:
    rank = int(os.environ.get("RANK", "0"))
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    params = {
        "objective": "multiclass",
        "num_class": 10,
        "num_leaves": 7,
        "num_threads": 1,
        "verbosity": -1,
        "pre_partition": True,
    }
    if world_size > 1:
        params.update(
            machines=os.environ["LIGHTGBM_MACHINES"],
            num_machines=world_size,
            local_listen_port=int(os.environ["LIGHTGBM_LOCAL_LISTEN_PORT"]),
            tree_learner="data",
        )
    digits = load_digits()
    mine = slice(rank, None, world_size)
    data = lightgbm.Dataset(digits.data[mine], digits.target[mine])
    seen: dict[str, dict[str, list[float]]] = {}
    model = lightgbm.train(
        params, data, 5, valid_sets=[data], callbacks=[lightgbm.record_evaluation(seen)]
    )
    losses = seen["training"]["multi_logloss"]
    # The parameters at the end of the text name this rank's own port: only the trees are one.
    trees = model.model_to_string().partition("\nparameters:")[0]
    digest = hashlib.sha256(trees.encode()).hexdigest()[:16]
    print(f"rank {rank} of {world_size} loss {losses[0]:.4f} -> {losses[-1]:.4f} model {digest}")


if __name__ == "__main__":
    main()
