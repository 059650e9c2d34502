"""Payloads that are read where they are: one copy within a machine, whole or none."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch

from windlass.core.errors import MemberLost
from windlass.train.comm import frames, lending
from windlass.train.comm.lending import LENT_BYTES, Borrower, Lender
from windlass.train.comm.transport import Endpoint, Request
from windlass.train.counters import Counters
from windlass.train.testing.relay import Relay

SECRET = b"s" * 32
Make = Callable[[str], Endpoint]
LARGE = LENT_BYTES // 4 * 3  # float32: three times what is lent


@pytest.fixture
def make() -> Iterator[Make]:
    with ExitStack() as stack:

        def one(name: str) -> Endpoint:
            endpoint = Endpoint(name, SECRET, counters=Counters())
            stack.callback(endpoint.close)
            return endpoint

        yield one


def echo(request: Request) -> None:
    request.reply({}, request.tensors)


def call(**more: Any) -> dict[str, Any]:
    return {"kind": "state", "step": 1, "deadline_seconds": 30.0, **more}


def carried(make: Make, payload: Any) -> tuple[list[torch.Tensor], int]:
    """What came back of it, and how much of it went through the socket."""
    there, here = make("server 0"), make("worker 0")
    there.on("echo", echo)
    relay = Relay(there.address)
    try:
        peer = here.peer("server 0", relay.address)
        peer.call("echo", {}, [torch.zeros(4)], **call())  # connected, and each knows of the other
        peer.call("echo", {}, [torch.zeros(4)], **call())
        before = relay.carried.total()
        return peer.call("echo", {}, payload, **call()).tensors, relay.carried.total() - before
    finally:
        relay.close()


def test_what_is_large_does_not_go_through_the_socket(make: Make) -> None:
    sent = torch.rand(LARGE)
    (found,), through = carried(make, [sent])
    assert torch.equal(found, sent)
    assert through < 2000


def test_what_cannot_be_read_goes_through_the_socket(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine, another user, another system."""
    monkeypatch.setattr(lending, "_READ", None)
    sent = torch.rand(LARGE)
    (found,), through = carried(make, [sent])
    assert torch.equal(found, sent)
    assert through > 2 * sent.nbytes


@pytest.mark.parametrize("size", [5, LARGE])
def test_pieces_arrive_as_one_vector(make: Make, size: int) -> None:
    pieces = [torch.rand(3, size), torch.rand(1), torch.rand(0), torch.rand(size, 2)]
    other = torch.rand(size)
    (vector, same), _ = carried(make, [pieces, other])
    assert torch.equal(vector, torch.cat([each.reshape(-1) for each in pieces]))
    assert torch.equal(same, other)


def test_a_message_given_up_before_it_was_read_is_none(make: Make) -> None:
    """Past the deadline the memory is the caller's again: nobody may take it for the message."""
    there, here = make("server 0"), make("worker 0")
    held, let_go = threading.Event(), threading.Event()
    pushed: list[Request] = []

    def hold(request: Request) -> None:
        request.reply()
        held.set()
        assert let_go.wait(60)

    there.on("hold", hold, at_once=True)
    there.on("push", pushed.append, at_once=True)
    there.on("echo", echo)
    peer = here.peer("server 0", there.address)
    peer.call("echo", {}, [torch.zeros(4)], **call())
    peer.call("echo", {}, [torch.zeros(LARGE)], **call())
    try:
        peer.call("hold", {}, **call())
        assert held.wait(60)
        mine = torch.zeros(LARGE)
        with pytest.raises(MemberLost, match="push at step 1: nothing came for 0.2"):
            peer.call("push", {}, [mine], **call(deadline_seconds=0.2))
        mine.fill_(1.0)
    finally:
        let_go.set()
    peer.call("echo", {}, [torch.zeros(4)], **call())
    assert not pushed


def test_a_lease_that_has_ended_is_seen_by_who_reads() -> None:
    lender = Lender()
    borrower = Borrower.of(lender.told())
    assert borrower is not None
    source, target = torch.rand(1000), torch.zeros(1000)
    lease = lender.lease()
    assert lease is not None
    where = (frames.pieces_of([source[:300], source[300:]]), frames.pieces_of([target]))
    borrower.read(*where, lease.address, lease.number)
    assert torch.equal(source, target)
    lease.end()
    lease.end()
    with pytest.raises(ValueError, match="taken back"):
        borrower.read(*where, lease.address, lease.number)
    again = lender.lease()
    assert again is not None and again.number != lease.number


def test_a_frame_that_is_gone_lends_nothing() -> None:
    lender = Lender()
    frame = frames.Frame({}, [torch.rand(LARGE)], "state")
    head = frames.read_header(bytes(frame.lent(lender)[0])[frames.PREFIX.size :], 0)
    assert head.at is not None and head.payload_bytes == 4 * LARGE
    assert ctypes.c_uint64.from_address(head.cell[0]).value == head.cell[1]
    del frame
    assert ctypes.c_uint64.from_address(head.cell[0]).value == 0


def test_only_who_has_the_memory_is_believed() -> None:
    """A number of a process says little: of another container, or of one that came after."""
    lender = Lender()
    pid, address, token = lender.told()
    assert Borrower.of([pid, address, "00" * 16]) is None
    for wrong in (None, "x", [], [pid], [pid, 8, token], [0, address, token], [pid, "8", token]):
        assert Borrower.of(wrong) is None
    program = "import time; print('here', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"here\n"
        assert Borrower.of([other.pid, address, token]) is None
        other.kill()
        other.wait(30)
        with pytest.raises(OSError):
            target = torch.zeros(4)
            Borrower(other.pid).read([(address, 16)], frames.pieces_of([target]), address, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"at": [[4096, 8]], "cell": [4096, 1]},
        {"at": [[-4096, 12]], "cell": [4096, 1]},
        {"at": [[4096, 20], [8192, -8]], "cell": [4096, 1]},
        {"at": [], "cell": [4096, 1]},
    ],
)
def test_a_header_whose_loan_does_not_add_up_is_none(wrong: dict[str, Any]) -> None:
    text = json.dumps({"t": [["float32", [3]]], **wrong}).encode()
    with pytest.raises(ValueError):
        frames.read_header(text, 0)
