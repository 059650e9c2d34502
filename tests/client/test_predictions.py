"""Stored predictions, written in a job and read by the client without opening a pickle."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from windlass.client import predictions
from windlass.core.errors import InvalidInput
from windlass.job import predictions as writing


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = SimpleNamespace(output_dir=tmp_path / "out")
    monkeypatch.setattr(writing, "context", lambda: here)
    return tmp_path


def test_what_a_job_wrote_is_what_the_client_reads(folder: Path) -> None:
    chances = numpy.array([[0.1, 0.9], [0.8, 0.2]])
    path = writing.predictions(["b", "a"], chances, ids=[7, 3], classes=["a", "b"])
    assert path == folder / "out" / "predictions.csv"
    found = predictions.read(path)
    assert found.ids == ("7", "3") and found.classes == ("a", "b")
    assert found.truths().tolist() == [1, 0]
    turned = found.ordered(["3", "7"], ["b", "a"])
    assert turned is not None and turned.tolist() == [[0.2, 0.8], [0.9, 0.1]]
    assert found.ordered(["3", "8"], ["a", "b"]) is None
    numbers = predictions.read(writing.predictions([1, 2], [1.5, 2.5], test=True))
    assert numbers.predicted.tolist() == [1.5, 2.5] and numbers.classes == ()
    for truth, said in (([1], [1, 2]), ([1, 2], [[0.5, 0.5], [1.0]])):
        with pytest.raises(ValueError):
            writing.predictions(truth, said)


def test_labels_are_votes_also_where_they_are_numbers(folder: Path) -> None:
    words = predictions.read(writing.predictions(["cat", "dog"], ["dog", "dog"]))
    assert words.classes == ("cat", "dog") and words.predicted.tolist() == [[0, 1], [0, 1]]
    digits = predictions.read(writing.predictions([0, 2], [2, 2]))
    assert predictions.labels_of(digits) == {"0", "2"}
    voted = predictions.as_votes(digits, ["0", "1", "2"])
    assert voted.predicted.tolist() == [[0, 0, 1], [0, 0, 1]]
    assert voted.truths().tolist() == [0, 2]


def test_arrays_are_read_but_never_unpickled(folder: Path) -> None:
    path = folder / "predictions.npz"
    numpy.savez(path, truth=[0, 1], predicted=[[0.9, 0.1], [0.3, 0.7]])
    found = predictions.read(path)
    assert found.classes == ("0", "1") and found.truths().tolist() == [0, 1]
    numpy.savez(path, truth=numpy.array([{"a": 1}], dtype=object), predicted=[1.0])
    with pytest.raises(InvalidInput, match=r"predictions\.npz holds no predictions"):
        predictions.read(path)


@pytest.mark.parametrize("text", ["", "a,b\n", "id,truth,predicted\n", "id,truth,p:a\n1,b,0.5\n"])
def test_what_is_no_file_of_predictions_is_said_so(folder: Path, text: str) -> None:
    path = folder / "predictions.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="holds no predictions"):
        predictions.read(path)
