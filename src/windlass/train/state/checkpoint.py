"""A training's checkpoints on the disk: which one to go on from, and reading it.

    __<n>_0.distcp   worker n's part of model and optimiser, as torch.distributed.checkpoint writes
    .metadata        what there is, by the whole model's names, and in which file
    worker-<n>.pt    what worker n alone holds: residuals, clocks
    manifest.json    sizes and digests of all, by the one writer of `windlass.job`

Nothing is tied to the number of workers or to the strategy: samples go by the global step, a
tensor is put together from whatever pieces it was saved in, a worker without a file begins afresh.
`state/saving.py` writes them. The folder must be seen by all workers.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from windlass.core.errors import InvalidInput
from windlass.job import checkpoint as writer
from windlass.job.context import context
from windlass.job.manifest import step_of
from windlass.train.runners.base import Runner
from windlass.train.seat import Seat
from windlass.train.state import pieces
from windlass.train.state.stored import Stored, read


def find(folder: str | None, resume: bool) -> Path | None:
    """The checkpoint to go on from: the platform's choice, or the newest good one of `folder`;
    one that is passed over since it is damaged is told. Raises InvalidInput when it is to begin
    afresh among another run's."""
    if context().on_platform:
        return writer.resume_from() if resume else None
    if folder is None or not Path(folder).is_dir():
        return None
    found = writer.newest_good(Path(folder))
    if found is not None and not resume:
        raise InvalidInput(
            f"checkpoint: {folder} holds an earlier run's, up to step {step_of(found)}",
            hint="give another folder, remove this one, or go on from it without resume=False",
        )
    return found


def load(runner: Runner, seat: Seat, path: Path) -> dict[str, Any]:
    """Put a checkpoint into the runner, which reads what it holds of it and no more; where the
    training stood, as `Saver.save` was told: `steps`, and what a strategy's loop added."""
    stored = opened(path)
    stood: dict[str, Any] = read(stored["windlass"])
    runner.stood = stood
    try:
        known = pieces.numbered(stored["optimizer"], runner.parameter_names)
        own = {
            name: _moved(read(stored[name]), seat.device)
            for name in stored
            if name not in ("model", "optimizer", "windlass")
        }
        runner.load_shared_state({**own, "model": stored["model"], "optimizer": known})
    except (RuntimeError, KeyError, ValueError) as err:
        raise InvalidInput(
            f"{path}: it does not fit this model or optimiser: {err}",
            hint="resume=False begins afresh",
        ) from err
    mine = path / f"worker-{seat.rank}.pt"
    if mine.is_file():
        runner.load_local_state(torch.load(mine, map_location=seat.device, weights_only=True))
    return stood


def opened(path: Path) -> Stored:
    """What a checkpoint holds, to be read as it is asked for. Raises InvalidInput where it is
    none of a training."""
    # Here and not above: it takes most of a second, and not every training resumes.
    from windlass.train.comm.torchdist.dcp import DcpReader

    try:
        found = Stored(DcpReader(path))
        if "windlass" in found:
            return found
        why = "it says nothing of steps"
    except (FileNotFoundError, pickle.UnpicklingError) as err:
        why = str(err)
    raise InvalidInput(
        f"{path}: it is no checkpoint of windlass.train: {why}",
        hint="give another folder as checkpoint=, or resume=False to begin afresh",
    )


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(inner, device) for key, inner in value.items()}
    return [_moved(each, device) for each in value] if isinstance(value, list) else value
