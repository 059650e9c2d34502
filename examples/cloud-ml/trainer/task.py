"""A trainer as one packages it for Google Cloud's ML service."""

from __future__ import annotations

import argparse
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from trainer import model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job-dir", required=True, help="where the model goes")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()

    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    task = config.get("task", {"type": "master", "index": 0})
    print(f"{task['type']} {task['index']} writes to {options.job_dir}", flush=True)
    slope, offset = tf.Variable(0.0), tf.Variable(0.0)
    for epoch in range(1, options.epochs + 1):
        loss = model.train_epoch(slope, offset)
        print(f"epoch {epoch} loss={loss:.4f}", flush=True)
    path = tf.train.Checkpoint(slope=slope, offset=offset).write(options.job_dir + "/model")
    print(f"wrote {path}", flush=True)


if __name__ == "__main__":
    main()
