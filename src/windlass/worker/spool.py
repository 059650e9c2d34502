"""The spools: lines that user code appends to `run/spool-<rank>.jsonl`, shipped in order, once.

A batch is kept until the server has taken it, so a repeated one is the same to the byte.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

BATCH_BYTES = 1 << 18
BATCH_LINES = 5000


class Batch:
    """Lines of one rank's spool; `offset` and `end` are where they begin and end in the file."""

    def __init__(self, rank: int, lines: List[Any], offset: int, end: int) -> None:
        self.rank = rank
        self.lines = lines
        self.offset = offset
        self.end = end

    @property
    def step(self) -> Optional[int]:
        """The last step that these lines speak of."""
        for line in reversed(self.lines):
            if isinstance(line.get("step"), int):
                return int(line["step"])
        return None


class Spools:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._offsets: Dict[int, int] = {}

    def batches(self) -> Iterator[Batch]:
        """What is there and was not taken, a batch at a time; call `taken` before the next."""
        for rank, path in self._files():
            while True:
                batch = self._read(rank, path)
                if batch is None:
                    break
                yield batch
                if self._offsets.get(rank, 0) < batch.end:
                    break

    def taken(self, batch: Batch) -> None:
        self._offsets[batch.rank] = batch.end

    def left(self) -> bool:
        """Whether something is there that was not taken."""
        return next(self.batches(), None) is not None

    def _files(self) -> List[Tuple[int, str]]:
        found = []
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        for name in names:
            number = name[6:-6]
            if name.startswith("spool-") and name.endswith(".jsonl") and number.isdigit():
                found.append((int(number), os.path.join(self._folder, name)))
        return sorted(found)

    def _read(self, rank: int, path: str) -> Optional[Batch]:
        offset = self._offsets.get(rank, 0)
        try:
            opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            text = os.pread(opened, BATCH_BYTES, offset)
        except OSError:
            return None
        finally:
            os.close(opened)
        end = text.rfind(b"\n") + 1
        if end == 0:
            if len(text) < BATCH_BYTES:
                return None
            # One line longer than a batch is no line of ours: step over it.
            end = len(text)
        lines = []
        pieces = text[:end].split(b"\n")
        if len(pieces) > BATCH_LINES:
            pieces = pieces[:BATCH_LINES]
            end = sum(len(piece) + 1 for piece in pieces)
        for line in pieces:
            found = _parsed(line)
            if found is not None:
                lines.append(found)
        return Batch(rank, lines, offset, offset + end)


def _parsed(line: bytes) -> Optional[Dict[str, Any]]:
    """The line's object; None for what is no line of ours, or what no server takes."""
    if not line.strip() or b"\\u0000" in line:
        return None
    try:
        # NaN is no JSON: its name stands for it, as `windlass.job` writes it.
        found = json.loads(line, parse_constant=str)
        if b"\\ud" in line or b"\\uD" in line:
            json.dumps(found, ensure_ascii=False).encode()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
