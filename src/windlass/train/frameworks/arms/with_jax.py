"""JAX: the step compiled by jit, on the CPU."""

# mypy: ignore-errors
# `reading` is beside it; the framework may not be here.

import os
import sys

from reading import measured, missing, problem, rows

os.environ["JAX_PLATFORMS"] = "cpu"
try:
    import jax
    import jax.numpy as jnp
except ModuleNotFoundError as err:
    missing(err.name)

told, samples, labels, layers = problem(sys.argv[1])
x, y = jnp.asarray(samples), jnp.asarray(labels.astype("int32"))
state = {
    "parameters": [(jnp.asarray(weights), jnp.asarray(biases)) for weights, biases in layers],
    "velocity": [(jnp.zeros_like(w), jnp.zeros_like(b)) for w, b in layers],
}


def cross_entropy(parameters, inputs, targets):
    value = inputs
    for number, (weights, biases) in enumerate(parameters):
        value = value @ weights + biases
        if number + 1 < len(parameters):
            value = jax.nn.relu(value)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(value), targets[:, None], axis=1)
    return -chosen.mean()


@jax.jit
def update(parameters, velocity, inputs, targets):
    gradients = jax.grad(cross_entropy)(parameters, inputs, targets)
    velocity = jax.tree_util.tree_map(
        lambda before, gradient: told["momentum"] * before + gradient, velocity, gradients
    )
    parameters = jax.tree_util.tree_map(
        lambda before, moved: before - told["learning_rate"] * moved, parameters, velocity
    )
    return parameters, velocity


def step(number):
    take = rows(told, number)
    state["parameters"], state["velocity"] = update(
        state["parameters"], state["velocity"], x[take], y[take]
    )


def settle():
    jax.block_until_ready(state["parameters"])


def loss():
    return float(cross_entropy(state["parameters"], x, y))


measured(told, jax.__version__, step, settle, loss)
