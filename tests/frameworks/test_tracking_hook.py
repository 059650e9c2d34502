"""The start-up hook in a real framework: Keras, on torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from windlass.testing.platform import Platform

SCRIPT = """
import numpy, keras
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
model.fit(numpy.ones((32, 2)), numpy.ones((32, 1)), epochs=2, validation_split=0.25, verbose=0)
"""


def test_a_script_of_keras_that_prints_nothing_has_curves(
    laboratory: Platform, made: Callable[..., Path]
) -> None:
    python = made("keras", "keras==3.15.1", "torch==2.13.0", "numpy")
    job = laboratory.submit(
        [str(python), "-c", SCRIPT], environment={"vars": {"KERAS_BACKEND": "torch"}}
    )
    assert laboratory.wait(job, 300).state == "succeeded"
    found = laboratory.client.http.get(f"/jobs/{job.id}/metrics", {"key": "loss,val_mae"})
    assert [(each["key"], each["source"]) for each in found["series"]] == [
        ("loss", "keras"), ("val_mae", "keras"),
    ]  # fmt: skip
    assert [[point[0] for point in each["points"]] for each in found["series"]] == [[0, 1]] * 2
