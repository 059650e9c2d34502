"""Windlass: submit the training script you already have.

In a training script, on the platform and off it:

    windlass.log(step=10, loss=0.3)              windlass.progress(3, 10, "epochs")
    with windlass.checkpoint(step) as path: …    windlass.resume_from()
    windlass.checkpoint(model=model, optimizer=optimizer), or (save=…, load=…)
    windlass.context(watch_stop=True)            windlass.should_stop()
    windlass.predictions(truth, predicted)

From outside: `windlass.Client()`. Names are loaded at first use: importing this package alone
costs next to nothing, and the first group needs the standard library only."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # as typing's, without importing typing
if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.job.checkpoint import checkpoint, resume_from
    from windlass.job.context import Context, context
    from windlass.job.log import log, progress
    from windlass.job.manifest import CheckpointError
    from windlass.job.predictions import predictions
    from windlass.job.registry import CheckpointFenced
    from windlass.job.stop import should_stop

__all__ = [
    "CheckpointError",
    "CheckpointFenced",
    "Client",
    "Context",
    "__version__",
    "checkpoint",
    "context",
    "log",
    "predictions",
    "progress",
    "resume_from",
    "should_stop",
]

_HOMES = {
    "CheckpointError": "windlass.job.manifest",
    "CheckpointFenced": "windlass.job.registry",
    "Client": "windlass.client",
    "Context": "windlass.job.context",
    "checkpoint": "windlass.job.checkpoint",
    "context": "windlass.job.context",
    "log": "windlass.job.log",
    "predictions": "windlass.job.predictions",
    "progress": "windlass.job.log",
    "resume_from": "windlass.job.checkpoint",
    "should_stop": "windlass.job.stop",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'windlass' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
