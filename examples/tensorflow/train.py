"""A small classifier with MultiWorkerMirroredStrategy and `model.fit`: an ordinary script.

python train.py                     one process
TF_CONFIG=… python train.py         one of several workers
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf


def load_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in eight dimensions, in three classes by which of three directions they lean to."""
    random = np.random.default_rng(0)
    points = random.normal(size=(1536, 8)).astype("float32")
    directions = random.normal(size=(8, 3)).astype("float32")
    return points, (points @ directions).argmax(axis=1)


def build_model() -> tf.keras.Model:
    model = tf.keras.Sequential(
        [
            tf.keras.Input(shape=(8,)),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(3),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.01),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="over all workers together")
    options = parser.parse_args()

    tf.keras.utils.set_random_seed(0)
    if "TF_CONFIG" in os.environ:
        # Before anything else: it connects the workers.
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        strategy = tf.distribute.get_strategy()
    resolver = strategy.cluster_resolver
    index = resolver.task_id if resolver else 0
    print(f"worker {index} of {strategy.num_replicas_in_sync}", flush=True)

    data = tf.data.Dataset.from_tensor_slices(load_data()).shuffle(1536, seed=0)
    data = data.batch(options.batch, drop_remainder=True)
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    with strategy.scope():
        model = build_model()
    history = model.fit(data.with_options(sharding), epochs=options.epochs, verbose=0).history

    # Gathered over all workers: each of them prints the same.
    for epoch, loss in enumerate(history["loss"]):
        accuracy = history["accuracy"][epoch]
        print(f"epoch {epoch + 1} loss={loss:.4f} acc={accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
