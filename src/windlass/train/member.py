"""The process of one member on this machine: it takes calls from whoever started it.

It ends at once when its parent is gone, whatever it is doing: no training is left behind.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import traceback
from dataclasses import dataclass
from typing import Any, Literal

from windlass.core.errors import WindlassError
from windlass.train import calls

_ORPHANED = 70


@dataclass(frozen=True)
class Place:
    """What a member is told when it starts."""

    role: Literal["worker", "server"]
    rank: int
    workers: int
    servers: int
    address: tuple[str, int]
    secret: bytes
    device: str
    threads: int
    seed: int
    deadline_seconds: float
    main: dict[str, Any]


def main(number: int) -> None:
    """Takes calls over the socket that was inherited under this number."""
    connection = socket.socket(fileno=number)
    place: Place = calls.receive(connection)
    calls.adopt_main(place.main)
    seat = _sit(place)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    calls.send(connection, ("ready", os.getpid()))
    while True:
        number, scope, function, arguments = inbox.get()
        if number is None:
            seat.meeting.leave()
            return
        seat.meeting.scope = f"{scope}/"
        try:
            answer = ("done", number, function(seat, *arguments))
            calls.send(connection, answer)
        except Exception as err:
            calls.send(connection, ("failed", number, _told(err), traceback.format_exc()))


def _sit(place: Place) -> Any:
    import torch

    from windlass.train.comm.meeting import Meeting
    from windlass.train.heap import keep_freed
    from windlass.train.seat import Seat

    keep_freed()
    torch.set_num_threads(place.threads)
    torch.manual_seed(place.seed)
    device = torch.device(place.device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", place.rank % max(1, torch.cuda.device_count()))
        torch.cuda.set_device(device)
    return Seat(
        role=place.role,
        rank=place.rank,
        workers=place.workers,
        servers=place.servers,
        meeting=Meeting(place.address, f"{place.role} {place.rank}", place.secret),
        device=device,
        deadline_seconds=place.deadline_seconds,
        seed=place.seed,
    )


def _listen(connection: socket.socket, inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(calls.receive(connection))
    except (EOFError, OSError):
        os._exit(_ORPHANED)
    except BaseException as err:  # a call that cannot be read is the caller's to hear of
        inbox.put((0, 0, _raise, (err,)))


def _raise(_: object, err: BaseException) -> None:
    raise err


def _told(err: Exception) -> WindlassError | str:
    """Ours travel as they are, others' as words: their classes may not be known over there."""
    return err if isinstance(err, WindlassError) else f"{type(err).__name__}: {err}"


if __name__ == "__main__":
    from windlass.train.member import main as run  # so that pickles name this module, not __main__

    run(int(sys.argv[1]))
