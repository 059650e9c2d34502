"""Elephas: a Keras model on Spark with its own parameter server, asynchronous, an exchange of
weights for each batch. A worker's first batches wait for Spark's task and for TensorFlow to trace
the model, so a run fits twice, for few and for more epochs: the time of the difference counts."""

from __future__ import annotations

import math
import socket
import time
from typing import Any

import keras
import numpy as np
from elephas.spark_model import AsynchronousSparkModel
from elephas.utils.rdd_utils import to_simple_rdd
from pyspark import SparkConf, SparkContext

from benchmarks.peers import network

FEW = 1


def run(context: Any, size: str, updates: int) -> dict[str, Any]:
    x, y = network.digits()
    each = math.ceil(len(y) // network.WORKERS / network.BATCH)
    more = max(1, round(updates / each))
    once, _ = fitted(context, x, y, size, FEW)
    seconds, loss = fitted(context, x, y, size, FEW + more)
    return {
        "seconds": max(1e-3, seconds - once),
        "updates": more * each * network.WORKERS,
        "loss": loss,
        "whole_seconds": seconds,
    }


def fitted(context: Any, x: Any, y: Any, size: str, epochs: int) -> tuple[float, float]:
    keras.utils.set_random_seed(0)
    *hidden, last = network.LAYERS[size][1:]
    layers = [keras.layers.Dense(each, activation="relu") for each in hidden]
    model = keras.Sequential(
        [keras.Input((64,)), *layers, keras.layers.Dense(last, activation="softmax")]
    )
    model.compile(keras.optimizers.SGD(network.RATE), "categorical_crossentropy")
    wanted = np.eye(10, dtype=np.float32)[y]
    rows = to_simple_rdd(context, x, wanted)
    with socket.create_server(("", 0)) as found:
        port = found.getsockname()[1]
    trained = AsynchronousSparkModel(
        model, mode="asynchronous", frequency="batch", num_workers=network.WORKERS,
        parameter_server_mode="http", port=port,
    )  # fmt: skip
    began = time.perf_counter()
    trained.fit(rows, epochs=epochs, batch_size=network.BATCH, verbose=0, validation_split=0.0)
    seconds = time.perf_counter() - began
    return seconds, float(trained.master_network.evaluate(x, wanted, verbose=0))


def main() -> None:
    settings = SparkConf().setMaster(f"local[{network.WORKERS}]").set("spark.ui.enabled", "false")
    context = SparkContext(conf=settings)
    context.setLogLevel("ERROR")
    try:
        network.answer(lambda size, updates: run(context, size, updates))
    finally:
        context.stop()


if __name__ == "__main__":
    main()
