"""A finished model: its members loaded, each after its digest was checked, and asked together.

    model = load("digits")                     # the folder `windlass model get digits` made
    model.predict([{"x": 1.5, "colour": "red"}])

A member is a pickle, which is a program: load only what you or your colleagues registered.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windlass.automl import table
from windlass.automl.trial import ABOUT, MODEL, predicted

Rows = Sequence[Mapping[str, Any]]


class Model:
    """An ensemble of pipelines."""

    def __init__(self, folder: Path) -> None:
        self.about: dict[str, Any] = json.loads((folder / "ensemble.json").read_text("utf-8"))
        self.members: list[tuple[float, dict[str, Any], Any]] = []
        for each in self.about["members"]:
            self.members.append((each["weight"], *_member(folder, each)))
        self.problem = self.members[0][1]

    @property
    def classes(self) -> list[str]:
        return list(self.problem["classes"])

    def predict_proba(self, rows: Rows) -> NDArray[Any]:
        """For each row and each of `classes`, how likely it is."""
        if not self.classes:
            raise ValueError(f"{self.problem['target']} is a number: there are no classes")
        return self._together(rows)

    def predict(self, rows: Rows) -> list[Any]:
        """For each row its class, or its number."""
        said = self._together(rows)
        if self.classes:
            return [self.classes[at] for at in said.argmax(axis=1)]
        return [float(each) for each in said[:, 0]]

    def _together(self, rows: Rows) -> NDArray[Any]:
        if not rows:
            return np.zeros((0, max(1, len(self.classes))))
        given = np.array(table.features(self.problem, rows), dtype=object)
        parts = [
            weight * predicted(model, given, self.classes) for weight, _, model in self.members
        ]
        found: NDArray[Any] = np.sum(parts, axis=0)
        return found


def load(folder: str | Path) -> Model:
    """Raises ValueError when a file is not what was registered."""
    return Model(Path(folder))


def _member(folder: Path, about: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    import joblib  # type: ignore[import-untyped]

    inside = folder / about["folder"]
    for file in about["files"]:
        content = (inside / file["path"]).read_bytes()
        if hashlib.sha256(content).hexdigest() != file["digest"]:
            raise ValueError(f"{inside / file['path']} is not what was registered")
    problem: dict[str, Any] = json.loads((inside / ABOUT).read_text(encoding="utf-8"))
    return problem, joblib.load(inside / MODEL)


def main(folder: Path) -> None:
    words = argparse.ArgumentParser(description="Predict the target of each row of a CSV file.")
    words.add_argument("rows", help="a CSV file with the columns that the model learnt from")
    words.add_argument("--proba", action="store_true", help="how likely each class is")
    given = words.parse_args()
    try:
        model = load(folder)
        rows = table.by_name(table.read(Path(given.rows)))
        lacking = sorted({*model.problem["numbers"], *model.problem["categories"]} - set(rows[0]))
        if lacking:
            print(f"no column {', '.join(lacking)}: taken as missing", file=sys.stderr)
        out = csv.writer(sys.stdout)
        if given.proba:
            out.writerow(model.classes)
            out.writerows(model.predict_proba(rows).tolist())
        else:
            out.writerow([model.problem["target"]])
            out.writerows([each] for each in model.predict(rows))
    except ValueError as err:
        raise SystemExit(f"predict: {err}") from err
