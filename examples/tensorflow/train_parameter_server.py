"""A linear model with ParameterServerStrategy: chief, workers and parameter servers run this one
script, and TF_CONFIG tells each what it is."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf


def serve(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Workers and parameter servers do what the chief tells them, until they are ended."""
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
        start=True,
    )
    print(f"{resolver.task_type} {resolver.task_id} serves", flush=True)
    server.join()


def coordinate(
    resolver: tf.distribute.cluster_resolver.ClusterResolver, epochs: int, steps: int
) -> None:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    spec = resolver.cluster_spec()
    print(f"chief of {spec.num_tasks('worker')} workers, {spec.num_tasks('ps')} ps", flush=True)
    with strategy.scope():
        slope = tf.Variable(0.0)
        offset = tf.Variable(0.0)
    print(f"the slope lives on {slope.device}", flush=True)

    def make_data() -> tf.data.Dataset:
        return (
            tf.data.Dataset.random(seed=0)
            .map(lambda number: tf.cast(number % 1000, tf.float32) / 1000)
            .map(lambda x: (x, 2 * x + 10))
            .batch(32)
        )

    @tf.function
    def step(batches: tf.data.Iterator) -> tf.Tensor:
        x, y = next(batches)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((slope * x + offset - y) ** 2)
        gradients = tape.gradient(loss, (slope, offset))
        slope.assign_sub(0.1 * gradients[0])
        offset.assign_sub(0.1 * gradients[1])
        return loss

    batches = iter(coordinator.create_per_worker_dataset(make_data))
    for epoch in range(1, epochs + 1):
        losses = [coordinator.schedule(step, args=(batches,)) for _ in range(steps)]
        coordinator.join()
        mean = sum(coordinator.fetch(losses)) / steps
        print(f"epoch {epoch} loss={mean:.4f}", flush=True)
    print(f"y = {slope.numpy():.2f} x + {offset.numpy():.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="of each epoch, over all workers")
    options = parser.parse_args()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        serve(resolver)
    else:
        coordinate(resolver, options.epochs, options.steps)


if __name__ == "__main__":
    main()
