"""`windlass.log(loss=…)` and `windlass.progress(…)`: what a training script tells about itself.

Both cost some microseconds, wait for no disk longer than a moment (`spool.py`) and never raise.
Strict JSON has no NaN and no infinities, and a diverging loss is exactly what one wants to see:
they are written as the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import math
import os
from typing import Any, Dict, Optional, Tuple, Union

from windlass.job.context import Context, context
from windlass.job.manifest import step_of
from windlass.job.offline import introduce
from windlass.job.spool import Spool, say_once

Number = Union[int, float, str]


def log(step: Optional[int] = None, **values: Any) -> None:
    """Record named numbers at a step: `windlass.log(step=10, loss=loss, accuracy=0.9)`.

    Takes int, float, and whatever has `.item()` or `float()` (torch and numpy scalars). Without
    a step, the step after the last one logged (after the resumed checkpoint, or 0). A value that
    is no number is left out and named once on stderr.
    """
    try:
        stream = _stream()
        record = stream.record("metric")
        record["step"] = stream.take_step(step)
        numbers: Dict[str, Number] = {}
        for key, value in values.items():
            try:
                numbers[key] = number(value)
            except Exception as error:
                say_once(
                    "value " + key, "log(%s=…) is no number and is left out: %s" % (key, error)
                )
        record["values"] = numbers
        stream.spool.append(record)
    except Exception as error:  # a metric must never end a training
        say_once("log", "log() failed and was ignored: %r" % error)


def progress(done: float, total: Optional[float] = None, note: str = "") -> None:
    """Say how far the work is: `windlass.progress(3, 10, "epochs")`."""
    try:
        stream = _stream()
        record = stream.record("progress")
        record["done"] = number(done)
        record["total"] = None if total is None else number(total)
        record["step"] = stream.last_step
        record["note"] = str(note)
        stream.spool.append(record)
    except Exception as error:  # as above
        say_once("progress", "progress() failed and was ignored: %r" % error)


def note(kind: str, **facts: Any) -> bool:
    """Put a line of another kind into the spool, for the worker. False when it was lost."""
    stream = _stream()
    record = stream.record(kind)
    record.update(facts)
    return stream.spool.append(record)


def number(value: Any) -> Number:
    """A number as strict JSON can hold it. Raises TypeError or ValueError when it is none."""
    kind = type(value)
    if kind is not float and kind is not int:
        if isinstance(value, (str, bytes)):
            raise TypeError("found the text %r" % (value[:40],))
        if hasattr(value, "item"):
            value = value.item()
        elif not isinstance(value, int):
            value = float(value)
        if not isinstance(value, (int, float)):
            raise TypeError("found %s" % type(value).__name__)
        value = float(value) if isinstance(value, float) else int(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else number(float(value))
    if math.isfinite(value):
        result: float = value
        return result
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


class _Stream:
    """One process's spool, and the step it has come to."""

    def __init__(self, here: Context) -> None:
        self.spool = Spool(here.run_dir / ("spool-%d.jsonl" % here.spool_rank))
        self.last_step: Optional[int] = None
        if here.resume_from is not None:
            self.last_step = step_of(here.resume_from)
        self._rank = here.rank if here.rank != here.spool_rank else None
        try:
            introduce(here)
        except OSError as error:
            say_once("offline", "this run could not be named for a later sync: %s" % error)

    def record(self, kind: str) -> Dict[str, Any]:
        return {"kind": kind} if self._rank is None else {"kind": kind, "rank": self._rank}

    def take_step(self, step: Any) -> int:
        if step is None:
            taken = 0 if self.last_step is None else self.last_step + 1
        else:
            taken = step if type(step) is int else int(step)
        self.last_step = taken
        return taken


_streams: Dict[Tuple[int, int], _Stream] = {}


def _stream() -> _Stream:
    """This process's stream; a forked child goes on from its parent's step."""
    here = context()
    key = (os.getpid(), here.spool_rank)
    found = _streams.get(key)
    if found is None:
        fresh = _Stream(here)
        for old in list(_streams.values()):
            if old.spool.path == fresh.spool.path:
                fresh.last_step = old.last_step
        found = _streams.setdefault(key, fresh)
    return found
