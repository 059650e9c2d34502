"""A server's ranges on disk, every some versions: for a server that is started again while the
training waits for it, and for a person when both copies of a range are lost.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from windlass.train.runners.shard import Shard

if TYPE_CHECKING:
    from windlass.train.runners.serverstrategies import ServerStrategy
    from windlass.train.seat import Seat


class Snapshots:
    def __init__(self, strategy: ServerStrategy, seat: Seat) -> None:
        self._every = strategy.snapshot_every
        run = hashlib.sha256(seat.meeting.secret + seat.meeting.scope.encode()).hexdigest()[:16]
        self.folder = Path(strategy.snapshots) / run if strategy.snapshots else None
        self._saved: dict[int, int] = {}

    def take(self, shard: Shard) -> None:
        """Saves it when it is due; whole, or not at all."""
        if self.folder is None or not self._every:
            return
        if shard.version - self._saved.get(shard.index, 0) < self._every:
            return
        self._saved[shard.index] = shard.version
        header, tensors = shard.state()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"range-{shard.index}.pt"
        torch.save({"header": header, "tensors": tensors}, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    def load(self, shard: Shard) -> bool:
        """The newest one of this training into the shard. Whether there was one."""
        path = self.folder / f"range-{shard.index}.pt" if self.folder is not None else None
        if path is None or not path.is_file():
            return False
        kept = torch.load(path, weights_only=True)
        shard.load(kept["header"], kept["tensors"])
        self._saved[shard.index] = shard.version
        return True

    def words(self) -> str:
        found = sorted(self.folder.glob("range-*.pt")) if self.folder is not None else []
        if not found:
            return "there is no snapshot (options snapshots= and snapshot_every=)"
        return f"snapshots of {len(found)} ranges are in {self.folder}"
