"""Workers meet and form a group: gloo, or nccl where each has a CUDA device of its own.

The first of them holds a store of torch's, through which the back ends find each other; its
address is told in the meeting, together with everybody's device.
"""

from __future__ import annotations

import json
import platform
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from windlass.core.errors import MemberLost, TrainingFailed
from windlass.train.comm.torchdist import background
from windlass.train.comm.torchdist.group import WorkerGroup
from windlass.train.failures import lost
from windlass.train.seat import Seat

_POLL_SECONDS = 0.2
_LATER = timedelta(seconds=30)


def form(
    seat: Seat, names: Sequence[str] | None = None, *, label: str | None = None
) -> WorkerGroup:
    """All of `names` (all workers) call it, each as often as the others, or with a label that is
    used but once. Raises MemberLost with those that do not come."""
    names = list(names or [f"worker {n}" for n in range(seat.workers)])
    if label is None:
        seat.formed[seat.meeting.scope] += 1
        label = f"{seat.formed[seat.meeting.scope]}/{len(names)}"
    key = f"group/{label}"
    backend, store = None, None
    if len(names) > 1:
        backend, store = _meet(seat, names, key)
    return WorkerGroup(
        backend, seat.device, key, names, seat.meeting, seat.counters, seat.deadline_seconds, store
    )


def _meet(seat: Seat, names: list[str], key: str) -> tuple[Any, Any]:
    operation, timeout = "forming the group", timedelta(seconds=seat.deadline_seconds)
    about: dict[str, Any] = _device_of(seat)
    store: Any = None
    if seat.name == names[0]:
        # Bound to the address that the members use; torch alone would listen on every one.
        listener = socket.create_server((seat.host, 0), backlog=256)
        about["store"] = listener.getsockname()[:2]
        store = dist.TCPStore(  # type: ignore[attr-defined]  # torch's own types lack it
            seat.host, about["store"][1], None, True, timeout, wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )  # fmt: skip
    said = seat.meeting.gather(
        key, json.dumps(about).encode(), names, operation=operation,
        deadline_seconds=seat.deadline_seconds,
    )  # fmt: skip
    told = [json.loads(said[name]) for name in names]
    if store is None:
        host, port = told[0]["store"]
        store = dist.TCPStore(  # type: ignore[attr-defined]
            host, port, None, False, timeout, wait_for_workers=False
        )
    rank = names.index(seat.name)
    kind = backend_for(told)
    prefixed = dist.PrefixStore(key, store)  # type: ignore[attr-defined]
    make = _nccl if kind == "nccl" else _gloo
    backend = _patiently(
        lambda: make(prefixed, rank, len(names), seat, timeout),
        seat, names, operation,
    )  # fmt: skip
    return backend, store


def backend_for(told: Sequence[dict[str, Any]]) -> str:
    """`nccl` where each worker has a CUDA device of its own and nccl is there, else `gloo`."""
    apart = len({each["device"] for each in told}) == len(told)
    return "nccl" if apart and all(each["nccl"] for each in told) else "gloo"


def _device_of(seat: Seat) -> dict[str, Any]:
    cuda = seat.device.type == "cuda"
    found = torch.cuda.get_device_properties(seat.device) if cuda else None
    unique = getattr(found, "uuid", None)  # the device's own, over all machines
    device = f"{platform.node()} {seat.device}" if unique is None else str(unique)
    return {"device": device, "nccl": cuda and dist.is_nccl_available()}


def _gloo(store: Any, rank: int, size: int, seat: Seat, timeout: timedelta) -> Any:
    kind = dist.ProcessGroupGloo
    options = kind._Options()  # type: ignore[attr-defined]  # torch's own types lack it
    options._devices = [kind.create_device(hostname=seat.host)]
    options._timeout = timeout + _LATER  # our own deadline comes first, and knows names
    options._threads = 2
    return kind(store, rank, size, options)


def _nccl(store: Any, rank: int, size: int, seat: Seat, timeout: timedelta) -> Any:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout + _LATER
    return dist.ProcessGroupNCCL(store, rank, size, options)


def _patiently(make: Callable[[], Any], seat: Seat, names: list[str], operation: str) -> Any:
    """A back end connects to all in its constructor: in a thread, so that a loss is seen."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(make())
        except BaseException as err:
            failed.append(err)

    thread = background.begin(run)
    ends = time.monotonic() + seat.deadline_seconds
    while thread.is_alive():
        thread.join(_POLL_SECONDS)
        gone = _gone(seat, names, operation)
        if gone is not None and thread.is_alive():
            raise gone
        if time.monotonic() > ends:
            raise lost([], operation, None, waited=seat.deadline_seconds)
    if failed:
        raise _gone(seat, names, operation) or TrainingFailed(
            f"{operation} failed: {failed[0]}"
        ) from failed[0]
    return found[0]


def _gone(seat: Seat, names: Sequence[str], operation: str) -> MemberLost | None:
    gone = {n: why for n, why in seat.meeting.roster.lost.items() if n in names}
    if not gone:
        return None
    return lost(list(gone), operation, None, why="; ".join(sorted(set(gone.values()))))
