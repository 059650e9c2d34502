"""Linear regression over several JAX processes: the data is split, the gradient is summed."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def main() -> None:
    if "JAX_PROCESS_ID" in os.environ:
        jax.distributed.initialize(
            coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
            num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
            process_id=int(os.environ["JAX_PROCESS_ID"]),
        )
    rank, world_size = jax.process_index(), jax.process_count()
    ranks = multihost_utils.process_allgather(jnp.array([rank]))
    assert int(ranks.sum()) == world_size * (world_size - 1) // 2

    # One axis over all devices of all processes; each process holds its own rows.
    split = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
    x = np.random.default_rng(rank).normal(size=(64, 1)).astype(np.float32)
    y = 2 * x + 10
    x_all = jax.make_array_from_process_local_data(split, x)
    y_all = jax.make_array_from_process_local_data(split, y)

    @jax.jit
    def step(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        def loss(weights: jax.Array) -> jax.Array:
            return jnp.mean((x * weights[0] + weights[1] - y) ** 2)

        value, gradient = jax.value_and_grad(loss)(weights)
        return weights - 0.1 * gradient, value

    weights = jnp.zeros(2)
    losses = []
    for _ in range(50):
        weights, value = step(weights, x_all, y_all)
        losses.append(float(value))
    line = " ".join(f"{each:.2f}" for each in np.asarray(weights))
    print(f"rank {rank} of {world_size} loss {losses[0]:.4f} -> {losses[-1]:.4f} weights {line}")


if __name__ == "__main__":
    main()
