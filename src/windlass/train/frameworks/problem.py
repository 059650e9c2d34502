"""What all frameworks train: a network of three layers that tells digits apart.

The samples are made, not fetched: ten prototypes of 8 x 8, and noise. They, their order and the
first weights are the same bytes for all, so that losses at equal steps can be compared.
"""

from __future__ import annotations

import json
import math
import random
from array import array
from pathlib import Path

from windlass.core.strict import Strict

FEATURES, CLASSES = 64, 10


class Problem(Strict):
    """As it stands at the head of the file."""

    samples: int = 2048
    features: int = FEATURES
    classes: int = CLASSES
    hidden: int = 128
    batch: int = 64
    learning_rate: float = 0.05
    momentum: float = 0.9
    warm_up: int = 20
    """Steps that are made and not measured: compilation is in them."""
    steps: int = 500
    threads: int = 1
    seed: int = 0


def write(problem: Problem, path: Path) -> None:
    """One line of JSON; then little-endian float32: samples, labels (as numbers), and weights and
    biases layer by layer, weights by (inputs, outputs)."""
    dice = random.Random(problem.seed)
    prototypes = [[dice.uniform(0, 1) for _ in range(FEATURES)] for _ in range(CLASSES)]
    values = array("f")
    labels = array("f")
    for _ in range(problem.samples):
        label = dice.randrange(CLASSES)
        labels.append(label)
        values.extend(dice.gauss(each, 0.6) for each in prototypes[label])
    values.extend(labels)
    widths = [FEATURES, problem.hidden, problem.hidden, CLASSES]
    for before, after in zip(widths, widths[1:], strict=False):
        bound = 1 / math.sqrt(before)
        values.extend(dice.uniform(-bound, bound) for _ in range(before * after))
        values.extend(0.0 for _ in range(after))
    with open(path, "wb") as file:
        file.write(json.dumps(problem.model_dump()).encode() + b"\n")
        values.tofile(file)
