"""A seat in a gang that somebody else started: a Windlass job, torchrun, or one process alone.

Where the members meet, and who holds that place:

    a job whose gang goes on without those it loses   the platform's worker, at WINDLASS_GATHERING
    any other job                                     worker 0, at MASTER_ADDR:MASTER_PORT
    below torchrun, which itself listens there        worker 0, at any port; torchrun's store says
                                                      which (`comm/torchdist/launcher.py`)

A member of the role `ps` is a server.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from windlass.core.errors import InvalidInput
from windlass.job.context import context
from windlass.train.comm.gathering import Gathering
from windlass.train.comm.meeting import Meeting
from windlass.train.comm.torchdist import launcher
from windlass.train.failures import lost
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy

_SERVERS = ("ps", "server")
_seats = itertools.count()
"""How often this process has taken a seat: all ranks of a gang take theirs in the same order."""


@dataclass(frozen=True)
class _Where:
    """Where the others are, and what proves that one is of them."""

    address: tuple[str, int]
    secret: bytes
    room: str = ""


def is_member(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher started this process as one of several (or as the only one) ranks."""
    return all(environment.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))


@contextmanager
def seated(
    *, device: str | None, seed: int, deadline_seconds: float, strategy: Strategy | None = None
) -> Iterator[Seat]:
    """This process's seat, until the end of the block. Raises MemberLost when it was started again
    and the strategy takes nobody back, or the others are done."""
    alone = not is_member()
    env = os.environ
    rank, size = (0, 1) if alone else (int(env["RANK"]), int(env["WORLD_SIZE"]))
    role = "server" if env.get("ROLE_NAME") in _SERVERS and not alone else "worker"
    index = int(env["ROLE_RANK"]) if role == "server" else rank
    name, patience = f"{role} {index}", max(60.0, deadline_seconds)
    if rank == 0 and role == "server":
        raise InvalidInput("roles: rank 0 of a training is a worker (found only `ps`)")
    came_back = context().restart > 0
    if came_back and strategy is not None and strategy.on_loss != "rejoin":
        why = f"it was started again, and {strategy.name} takes nobody back"
        raise lost([name], "coming back", None, why=why)
    with ExitStack() as stack:
        where = _where(stack, env, alone=alone, rank=rank, patience=patience)
        meeting = Meeting(where.address, name, where.secret, room=where.room)
        stack.callback(meeting.leave)
        known = meeting.wait_for_number(
            size, operation="joining the gang", deadline_seconds=patience, lost_too=came_back
        )
        if came_back:
            _check_in_time(meeting)
        servers = sum(each.startswith("server ") for each in known)
        yield Seat(
            role="server" if role == "server" else "worker",
            rank=index,
            workers=size - servers,
            servers=servers,
            meeting=meeting,
            device=choose_device(device, context().local_rank),
            deadline_seconds=deadline_seconds,
            seed=seed,
            host=meeting.host,
        )


def _where(
    stack: ExitStack, env: Mapping[str, str], *, alone: bool, rank: int, patience: float
) -> _Where:
    """Where to meet; held here, until the end of `stack`, where that is this process's task."""
    if alone:
        secret = secrets.token_bytes(32)
        return _Where(_hold(stack, secret, "127.0.0.1", 0, patience), secret)
    number = next(_seats)
    if env.get("WINDLASS_GATHERING"):
        held_at, _, held_port = env["WINDLASS_GATHERING"].rpartition(":")
        return _Where((held_at, int(held_port)), _secret(env), room=str(number))
    host, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
    if not launcher.holds_the_port(env):
        secret = _secret(env)
        if rank == 0:
            host, port = _hold(stack, secret, host, port, patience)
        return _Where((host, port), secret)
    drawn, told = secrets.token_hex(32), None
    if rank == 0:
        host, port = _hold(stack, _secret(env, drawn), host, 0, patience)
        told = f"{host} {port} {drawn}"
    host, at, drawn = launcher.share(env, f"gathering/{number}", told, patience).split()
    return _Where((host, int(at)), _secret(env, drawn))


def _hold(
    stack: ExitStack, secret: bytes, host: str, port: int, patience: float
) -> tuple[str, int]:
    gathering = Gathering(secret, host=host, port=port)
    stack.callback(gathering.close, patience_seconds=min(10.0, patience))
    return gathering.address


def _check_in_time(meeting: Meeting) -> None:
    """Raises MemberLost where the training that this member was lost from is over."""
    roster = meeting.roster
    workers = {name for name in roster.present - {meeting.name} if name.startswith("worker ")}
    if not workers and any(name.startswith("worker ") for name in roster.left):
        why = "it was started again, but the others are done"
        raise lost([meeting.name], "coming back", None, why=why)


def choose_device(asked: str | None, index: int) -> torch.device:
    """`cuda` means the device of this rank among those it sees. Raises InvalidInput."""
    count = torch.cuda.device_count()
    if asked is None:
        asked = "cuda" if count else "cpu"
    try:
        device = torch.device(asked)
    except RuntimeError as err:
        raise InvalidInput(f"device: cpu, cuda or cuda:N (found {asked!r})") from err
    if device.type == "cuda":
        if not count:
            raise InvalidInput("device: there is no CUDA device here (found 'cuda')")
        device = torch.device("cuda", index % count if device.index is None else device.index)
        torch.cuda.set_device(device)
    return device


def _secret(environment: Mapping[str, str], drawn: str = "") -> bytes:
    """What only members of this gang know: the attempt's token (the platform's worker makes the
    same of it), or what worker 0 drew. Ranks that somebody starts by hand have neither, unless
    they are given WINDLASS_TRAIN_SECRET: then anybody who reaches worker 0's port may join."""
    known = context().token or environment.get("WINDLASS_TRAIN_SECRET", "")
    known = known or ("" if drawn else environment.get("TORCHELASTIC_RUN_ID", ""))
    return hashlib.sha256(b"windlass.train " + known.encode() + drawn.encode()).digest()
