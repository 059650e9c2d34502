"""What a model said about rows whose truth is known, kept beside it: ensembles are chosen by it.

A plain CSV in the output folder, so that nobody has to open a pickle to read it:

    id,truth,predicted            numbers
    id,truth,p:cat,p:dog          for each class, how likely it is
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any, List, Optional, Sequence

from windlass.job.context import context


def predictions(
    truth: Sequence[Any],
    predicted: Sequence[Any],
    ids: Optional[Sequence[Any]] = None,
    classes: Optional[Sequence[Any]] = None,
    test: bool = False,
) -> Path:
    """Keep what a model predicted for rows it was not trained on; where the file is.

    `predicted` has a number or a label for each row, or a row of probabilities, one for each of
    `classes` (0, 1, … when absent). `ids` tells which rows they are: needed where trials do not
    all predict the same rows in the same order. `test`: rows that nothing is chosen by, only
    measured on. Raises ValueError when the lengths differ.
    """
    facts, said = _plain(truth), _plain(predicted)
    names = list(range(len(facts))) if ids is None else _plain(ids)
    if not len(facts) == len(said) == len(names):
        raise ValueError(
            "as many of each are needed: %d truths, %d predictions, %d ids"
            % (len(facts), len(said), len(names))
        )
    rows = [list(each) if isinstance(each, (list, tuple)) else [each] for each in said]
    many = bool(said) and isinstance(said[0], (list, tuple))
    head = ["predicted"]
    if many:
        width = len(rows[0])
        labels = list(range(width)) if classes is None else _plain(classes)
        if any(len(row) != len(labels) for row in rows):
            raise ValueError(
                "each prediction has one probability for each of the %d classes" % len(labels)
            )
        head = ["p:%s" % label for label in labels]
    folder = context().output_dir
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / ("predictions-test.csv" if test else "predictions.csv")
    draft = folder / (".%s.part" % target.name)
    with open(str(draft), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "truth", *head])
        for name, fact, row in zip(names, facts, rows):  # noqa: B905  # `strict` is newer than this code
            writer.writerow([name, fact, *row])
    os.replace(str(draft), str(target))
    return target


def _plain(values: Any) -> List[Any]:
    """Arrays and tensors as lists, without knowing what they are."""
    for step in ("detach", "cpu"):
        values = getattr(values, step)() if hasattr(values, step) else values
    return list(values.tolist() if hasattr(values, "tolist") else values)
