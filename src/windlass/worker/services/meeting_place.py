"""The place where the members of a training meet, held by the worker of rank 0's node.

So it outlives each of them: when worker 0 is lost the others still see each other. The code is
that of the training library, `train/comm/gathering.py`, which is carried in the worker's archive
(`pack`): what both ends speak is written once.
"""

from __future__ import annotations

import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST_VALUE_BYTES = 64 << 20
MOST_BYTES = 256 << 20
_MODULE = "windlass.train.comm.gathering"


class MeetingPlace:
    def __init__(self, listener: int, tracking_token: str) -> None:
        """`listener` is a listening socket. The members know the same token."""
        import hashlib
        import importlib

        secret = hashlib.sha256(b"windlass.train " + tracking_token.encode()).digest()
        module: Any = importlib.import_module(_MODULE)
        self._gathering = module.Gathering(
            secret,
            listener=socket.socket(fileno=listener),
            largest=LARGEST_VALUE_BYTES,
            most=MOST_BYTES,
        )

    def stop(self) -> None:
        self._gathering.close()
