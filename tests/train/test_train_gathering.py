"""Where members meet: rooms, losses that stay known, bounds, and secrets nobody guesses."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta

import pytest
import torch.distributed as dist

from windlass.core.errors import MemberLost
from windlass.train import gang
from windlass.train.comm import wire
from windlass.train.comm.gathering import Gathering
from windlass.train.comm.meeting import Meeting

SECRET = b"s" * 32


@pytest.fixture
def gathering() -> Iterator[Gathering]:
    with closing(Gathering(SECRET, largest=1000, most=1500)) as found:
        yield found


def until(look: Callable[[], bool], seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < ends
        time.sleep(0.01)


def cut(meeting: Meeting) -> None:
    """As when its process died."""
    meeting._connection.shutdown(socket.SHUT_RDWR)


def test_those_of_one_room_see_nothing_of_another(gathering: Gathering) -> None:
    first = Meeting(gathering.address, "worker 0", SECRET, room="0")
    second = Meeting(gathering.address, "worker 0", SECRET, room="1")
    other = Meeting(gathering.address, "worker 1", SECRET, room="1")
    second.wait_for(["worker 1"], operation="x", step=None, deadline_seconds=60)
    first.wait_for(["worker 0"], operation="x", step=None, deadline_seconds=60)
    assert first.roster.present == {"worker 0"}
    other.put("key", b"of room 1")
    first.put("key", b"of room 0")
    for meeting, value in ((first, b"of room 0"), (second, b"of room 1")):
        assert meeting.get("key", operation="x", deadline_seconds=60) == value
    for each in (first, second, other):
        each.leave()


def test_a_loss_stays_known_when_the_member_is_back(gathering: Gathering) -> None:
    here = Meeting(gathering.address, "worker 0", SECRET)
    for _ in range(2):
        one = Meeting(gathering.address, "worker 1", SECRET)
        here.wait_for(["worker 1"], operation="x", step=None, deadline_seconds=60)
        cut(one)
        until(lambda: "worker 1" in here.roster.lost)
    last = Meeting(gathering.address, "worker 1", SECRET)
    here.wait_for(["worker 1"], operation="x", step=None, deadline_seconds=60)
    assert here.roster.lost == {} and here.roster.fell == ("worker 1", "worker 1")
    known = last.wait_for_number(2, operation="x", deadline_seconds=60, lost_too=True)
    assert known == {"worker 0", "worker 1"}
    last.leave(), here.leave()


def test_one_that_comes_back_counts_those_that_are_lost_and_a_new_one_does_not(
    gathering: Gathering,
) -> None:
    here = Meeting(gathering.address, "worker 0", SECRET)
    cut(Meeting(gathering.address, "worker 1", SECRET))
    until(lambda: "worker 1" in here.roster.lost)
    found = here.wait_for_number(2, operation="x", deadline_seconds=60, lost_too=True)
    assert found == {"worker 0", "worker 1"}
    with pytest.raises(MemberLost, match="1 of 2 came"):
        here.wait_for_number(2, operation="x", deadline_seconds=0.2)
    here.leave()


def test_one_that_comes_back_when_the_others_are_done_is_told_so(gathering: Gathering) -> None:
    done = Meeting(gathering.address, "worker 0", SECRET)
    late = Meeting(gathering.address, "worker 1", SECRET)
    late.wait_for(["worker 0", "worker 1"], operation="x", step=None, deadline_seconds=60)
    gang._check_in_time(late)
    done.leave()
    until(lambda: "worker 0" in late.roster.left)
    with pytest.raises(MemberLost, match="worker 1 lost in coming back: .* the others are done"):
        gang._check_in_time(late)
    late.leave()


@pytest.mark.parametrize("sizes", [(1001,), (900, 900)])
def test_who_puts_more_than_there_is_room_for_is_not_heard_and_the_others_are(
    gathering: Gathering, sizes: tuple[int, ...]
) -> None:
    greedy = Meeting(gathering.address, "worker 1", SECRET)
    here = Meeting(gathering.address, "worker 0", SECRET)
    here.wait_for(["worker 1"], operation="x", step=None, deadline_seconds=60)
    for number, size in enumerate(sizes):
        greedy.put(f"key/{number}", b"x" * size)
    until(lambda: "worker 1" in here.roster.lost)
    until(lambda: greedy.is_out)
    here.put("small", b"y")
    assert here.get("small", operation="x", deadline_seconds=60) == b"y"
    here.leave()


def test_a_stranger_who_sends_nonsense_is_dropped_and_nobody_suffers(
    gathering: Gathering,
) -> None:
    here = Meeting(gathering.address, "worker 0", SECRET)
    for nonsense in (b"[" * 100_000 + b"\n", b"7\n", b"{}\n", b"\xff\n", b'{"n": -1}\n'):
        with socket.create_connection(gathering.address, 60) as stranger:
            stranger.recv(1 << 16)
            stranger.sendall(nonsense)
            try:
                assert stranger.recv(1) == b""
            except ConnectionResetError:
                pass  # dropped with some of it unread
    here.put("key", b"value")
    assert here.get("key", operation="x", deadline_seconds=60) == b"value"
    here.leave()


def test_nothing_is_kept_for_somebody_who_has_not_proven_the_secret(
    gathering: Gathering,
) -> None:
    with socket.create_connection(gathering.address, 60) as stranger:
        stranger.recv(1 << 16)
        line = wire.pack({"op": "put", "key": "x"}, b"y")
        stranger.sendall(line.replace(b'"n": 1', b'"n": 900'))
        stranger.settimeout(60)
        assert stranger.recv(1) == b"", "it is dropped at the first line"


def test_below_torchrun_the_secret_is_drawn_and_shared_in_its_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = dist.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", 0, None, True, timedelta(seconds=20), wait_for_workers=False
    )
    for name, value in {
        "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
        "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    secrets = set()
    for _ in range(2):
        with gang.seated(device="cpu", seed=0, deadline_seconds=20) as seat:
            secrets.add(seat.meeting.secret)
    assert len(secrets) == 2, "each training has its own"
    assert hashlib.sha256(b"windlass.train none").digest() not in secrets


def test_what_comes_in_one_piece_with_the_greeting_is_taken_after_it() -> None:
    """A stranger may send no payload; the first word of one who has just proven itself may."""
    unpacker = wire.Unpacker(largest=0)
    together = wire.pack({"op": "hello"}) + wire.pack({"op": "put"}, b"a path")
    found = []
    for header, payload in unpacker.feed(together):
        unpacker.largest = 100
        found.append((header["op"], payload))
    assert found == [("hello", b""), ("put", b"a path")]
