"""What was predicted beside what was measured, of every run that had a plan, kept on this host.

`predictions.json` in the folder of windlass's own data (`$WINDLASS_HOME`, else `~/.windlass`): the
last few hundred. Losing it costs nothing but the record.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

MOST = 500


@dataclass(frozen=True)
class Prediction:
    """Samples a second."""

    at: float
    strategy: str
    workers: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Of what was predicted, as a part of what was measured: 0.1 is a tenth too much."""
        return self.predicted / self.measured - 1 if self.measured else 0.0


def compared(predicted: float, measured: float) -> str:
    """In words."""
    off = predicted / measured - 1 if measured else 0.0
    side = "more" if off > 0 else "less"
    return (
        f"predicted {predicted:,.0f} samples/s, measured {measured:,.0f}: "
        f"{abs(off):.0%} {side} than it was"
    )


def keep(strategy: str, workers: int, predicted: float, measured: float) -> None:
    """Never fails: a record that cannot be written is not worth a training."""
    found = [*read(), Prediction(time.time(), strategy, workers, predicted, measured)]
    path = _path()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps([asdict(each) for each in found[-MOST:]]))
        os.replace(temporary, path)
    except OSError:
        return


def read() -> list[Prediction]:
    """What is there and can be read."""
    try:
        data = json.loads(_path().read_text(encoding="utf-8"))
        return [Prediction(**each) for each in data]
    except (OSError, ValueError, TypeError):
        return []


def median_error(of: list[Prediction]) -> float | None:
    """Of the sizes of the errors."""
    return statistics.median(abs(each.error) for each in of) if of else None


def _path() -> Path:
    home = os.environ.get("WINDLASS_HOME")
    folder = Path(home).expanduser().absolute() if home else Path.home() / ".windlass"
    return folder / "predictions.json"
