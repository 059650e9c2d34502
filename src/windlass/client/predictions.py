"""Predictions that a trial stored, read on the user's side and never unpickled.

`predictions.csv` as `windlass.predictions` writes it, or `predictions.npz` with the arrays `truth`
and `predicted`, and where they are needed `ids` and `classes`.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.core.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILES = ("predictions.csv", "predictions.npz")
TEST_FILES = ("predictions-test.csv", "predictions-test.npz")


@dataclass(frozen=True)
class Predictions:
    ids: tuple[str, ...]
    truth: tuple[str, ...]
    predicted: NDArray[Any]
    """A number for each row, or a row of probabilities."""
    classes: tuple[str, ...] = ()
    """Empty: numbers."""

    def truths(self) -> NDArray[Any]:
        """Numbers, or the places of the classes."""
        import numpy

        if self.classes:
            place = {label: at for at, label in enumerate(self.classes)}
            return numpy.array([place[each] for each in self.truth])
        return numpy.array([float(each) for each in self.truth])

    def ordered(self, ids: Sequence[str], classes: Sequence[str]) -> NDArray[Any] | None:
        """What was predicted for these rows and classes, in that order; None when it was not."""
        if len(ids) != len(self.ids) or set(classes) != set(self.classes):
            return None
        found = self.predicted
        if tuple(ids) != self.ids:
            place = {name: at for at, name in enumerate(self.ids)}
            if len(place) != len(self.ids) or any(name not in place for name in ids):
                return None
            found = found[[place[name] for name in ids]]
        if tuple(classes) != self.classes:
            found = found[:, [self.classes.index(label) for label in classes]]
        return found


def read(path: Path) -> Predictions:
    """Raises InvalidInput, naming the file, when it is not what this module's head says."""
    try:
        found = _read_npz(path) if path.suffix == ".npz" else _read_csv(path)
    except (OSError, ValueError, KeyError, IndexError, csv.Error, zipfile.BadZipFile) as err:
        raise InvalidInput(f"{path.name} holds no predictions: {err}") from err
    if not found.ids:
        raise InvalidInput(f"{path.name} holds no predictions: it has no rows")
    return found


def _read_csv(path: Path) -> Predictions:
    import numpy

    with open(path, newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        head = next(lines, [])
        if head[:2] != ["id", "truth"] or len(head) < 3:
            raise ValueError("its first line is not id,truth,predicted or id,truth,p:CLASS…")
        rows = [row for row in lines if row]
    if any(len(row) != len(head) for row in rows):
        raise ValueError("a line has more or fewer cells than the first")
    ids = tuple(row[0] for row in rows)
    truth = tuple(row[1] for row in rows)
    if head[2:] == ["predicted"]:
        return _made(ids, truth, [row[2] for row in rows], ())
    if not all(each.startswith("p:") for each in head[2:]):
        raise ValueError("its columns after truth are neither `predicted` nor p:CLASS…")
    chances = numpy.array([[float(cell) for cell in row[2:]] for row in rows])
    return _made(ids, truth, chances, tuple(each[2:] for each in head[2:]))


def _read_npz(path: Path) -> Predictions:
    import numpy

    with numpy.load(path, allow_pickle=False) as arrays:
        kept = {name: arrays[name] for name in arrays.files}
    truth = tuple(str(each) for each in kept["truth"].tolist())
    names = kept["ids"].tolist() if "ids" in kept else range(len(truth))
    ids = tuple(str(each) for each in names)
    said = kept["predicted"]
    if len(ids) != len(truth) or len(said) != len(truth):
        raise ValueError("ids, truth and predicted have different lengths")
    if said.ndim == 1:
        return _made(ids, truth, said.tolist(), ())
    labels = kept["classes"].tolist() if "classes" in kept else range(said.shape[1])
    return _made(ids, truth, said.astype(float), tuple(str(each) for each in labels))


def _made(
    ids: tuple[str, ...], truth: tuple[str, ...], said: Any, classes: tuple[str, ...]
) -> Predictions:
    """Labels become votes: a row with 1 at what was said."""
    import numpy

    if classes:
        if strange := set(truth) - set(classes):
            raise ValueError(f"{min(strange)!r} is true somewhere and no class")
        if numpy.ndim(said) != 2 or numpy.shape(said)[1] != len(classes):
            raise ValueError("not as many probabilities as classes")
        return Predictions(ids, truth, said, classes)
    words = [str(each) for each in said]
    try:
        numbers = numpy.array([float(each) for each in words])
        [float(each) for each in truth]
    except ValueError:
        labels = tuple(sorted({*truth, *words}))
        votes = numpy.zeros((len(words), len(labels)))
        votes[numpy.arange(len(words)), [labels.index(each) for each in words]] = 1.0
        return Predictions(ids, truth, votes, labels)
    return Predictions(ids, truth, numbers)


def as_votes(found: Predictions, classes: Sequence[str]) -> Predictions:
    """Numbers that are labels (0, 1, 2), or votes that did not name every class."""
    import numpy

    if found.classes:
        votes = numpy.zeros((len(found.ids), len(classes)))
        for at, label in enumerate(found.classes):
            votes[:, list(classes).index(label)] = found.predicted[:, at]
        return Predictions(found.ids, found.truth, votes, tuple(classes))
    said = [_label(each) for each in found.predicted.tolist()]
    truth = tuple(_label(float(each)) for each in found.truth)
    votes = numpy.zeros((len(said), len(classes)))
    votes[numpy.arange(len(said)), [list(classes).index(each) for each in said]] = 1.0
    return Predictions(found.ids, truth, votes, tuple(classes))


def labels_of(found: Predictions) -> set[str]:
    """The classes that its predictions, or its truth, speak of."""
    if found.classes:
        return set(found.classes)
    said = {_label(each) for each in found.predicted.tolist()}
    return said | {_label(float(each)) for each in found.truth}


def _label(number: float) -> str:
    return str(int(number)) if number.is_integer() else str(number)
