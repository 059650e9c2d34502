"""The problem's file as arrays, and the one line that an arm answers with."""

# mypy: ignore-errors
# It runs beside frameworks that are not here, under Pythons that are not ours.

import json
import os
import sys
import time

began = time.perf_counter()
if hasattr(os, "sched_setaffinity"):
    # As many cores as there may be threads: not every framework can be told otherwise.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[2])])


def problem(path):
    """(settings, samples, labels, [(weights, biases), …])."""
    import numpy

    with open(path, "rb") as file:
        told = json.loads(file.readline().decode())
        values = numpy.fromfile(file, dtype="<f4")
    count, features, hidden = told["samples"], told["features"], told["hidden"]
    at = count * features
    samples = values[:at].reshape(count, features)
    labels = values[at : at + count].astype("int64")
    at += count
    widths = [features, hidden, hidden, told["classes"]]
    layers = []
    for before, after in zip(widths, widths[1:]):  # noqa: B905 - older Pythons have no `strict`
        weights = values[at : at + before * after].reshape(before, after)
        at += before * after
        layers.append((weights, values[at : at + after]))
        at += after
    return told, samples, labels, layers


def rows(told, step):
    """Which samples a step takes: each epoch in the same order, whole batches alone."""
    first = step % (told["samples"] // told["batch"]) * told["batch"]
    return slice(first, first + told["batch"])


def measured(told, version, step, settle, loss):
    """Make the steps and answer. `settle` waits until what was begun is done."""
    for number in range(told["warm_up"]):
        step(number)
    settle()
    ready = time.perf_counter()
    for number in range(told["warm_up"], told["warm_up"] + told["steps"]):
        step(number)
    settle()
    seconds = time.perf_counter() - ready
    answer = {
        "version": version,
        "start_seconds": ready - began,
        "seconds": seconds,
        "samples_per_s": told["steps"] * told["batch"] / seconds,
        "loss": loss(),
    }
    print(json.dumps(answer))


def missing(name):
    """It is not installed here."""
    print(json.dumps({"missing": name}))
    sys.exit(0)
