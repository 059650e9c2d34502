"""Messages with tensors: whole or not at all, once, in order, and never waited for without end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch

from windlass.core.errors import Conflict, InvalidInput, MemberLost, TrainingFailed
from windlass.train.comm import frames, lending
from windlass.train.comm.transport import Answer, Endpoint, Peer, Request
from windlass.train.counters import Counters
from windlass.train.group import Group
from windlass.train.seat import Seat
from windlass.train.testing.relay import Relay

SECRET = b"s" * 32
Make = Callable[..., Endpoint]


@pytest.fixture
def make() -> Iterator[Make]:
    with ExitStack() as stack:

        def one(name: str, secret: bytes = SECRET) -> Endpoint:
            endpoint = Endpoint(name, secret, counters=Counters())
            stack.callback(endpoint.close)
            return endpoint

        yield one


def echo(request: Request) -> None:
    request.reply({"you": request.peer_name, **request.header}, request.tensors)


def pair(make: Make) -> tuple[Endpoint, Endpoint, Peer]:
    there, here = make("server 0"), make("worker 0")
    return there, here, here.peer("server 0", there.address)


@pytest.mark.parametrize("name", sorted(frames.DTYPES))
def test_every_dtype_and_shape_goes_there_and_back(make: Make, name: str) -> None:
    there, _, peer = pair(make)
    there.on("echo", echo)
    raw = torch.randint(0, 2, (24,), dtype=torch.uint8)
    sent = [
        torch.zeros((), dtype=frames.DTYPES[name]),
        torch.zeros((0, 3), dtype=frames.DTYPES[name]),
        raw.to(frames.DTYPES[name]).reshape(2, 3, 4),
        raw.to(frames.DTYPES[name]).reshape(4, 6).t(),
    ]
    answer = peer.call("echo", {"a": 1}, sent, kind="state", step=1, deadline_seconds=60)
    assert answer.header == {"you": "worker 0", "a": 1}
    for got, was in zip(answer.tensors, sent, strict=True):
        assert got.dtype == was.dtype and got.shape == was.shape and torch.equal(got, was)


def test_what_comes_is_received_straight_into_the_given_memory(make: Make) -> None:
    there, _, peer = pair(make)
    there.on("echo", echo)
    payload = torch.rand(100_000, dtype=torch.float64)
    mine = torch.zeros_like(payload)
    where = mine.data_ptr()
    answer = peer.call(
        "echo", {}, [payload], kind="state", step=1, deadline_seconds=60, into=[mine]
    )
    assert answer.tensors[0] is mine and mine.data_ptr() == where
    assert torch.equal(mine, payload)
    strided = torch.zeros(2, 100_000, dtype=torch.float64).t()[:, 0]
    peer.call("echo", {}, [payload], kind="state", step=1, deadline_seconds=60, into=[strided])
    assert torch.equal(strided, payload), "what cannot be received into is copied to"
    with pytest.raises(InvalidInput, match="into"):
        peer.call(
            "echo", {}, [payload], kind="state", step=1, deadline_seconds=60,
            into=[torch.zeros(5)],
        )  # fmt: skip
    assert peer.call("echo", {}, [payload], kind="state", step=1, deadline_seconds=60).tensors


def test_a_handler_may_give_the_memory_for_a_request(make: Make) -> None:
    there, _, peer = pair(make)
    pool = [torch.zeros(1000)]
    there.on(
        "push",
        lambda request: request.reply({"same": request.tensors[0] is pool[0]}),
        place=lambda header, specs: pool if header["use"] else None,
    )
    call = {"kind": "gradient", "step": 1, "deadline_seconds": 20.0}
    assert peer.call("push", {"use": True}, [torch.ones(1000)], **call).header["same"]
    assert torch.equal(pool[0], torch.ones(1000))
    assert not peer.call("push", {"use": False}, [torch.ones(1000)], **call).header["same"]


def test_a_hundred_megabytes_arrive_unharmed_and_are_counted(make: Make) -> None:
    there, here, peer = pair(make)
    there.on("echo", echo)
    payload = torch.randint(0, 255, (100_000_000,), dtype=torch.uint8)
    answer = peer.call("echo", {}, [payload], kind="parameters", step=1, deadline_seconds=60)
    assert torch.equal(answer.tensors[0], payload)
    assert here.counters.sent_bytes["parameters"] == 100_000_000
    assert here.counters.received_bytes["parameters"] == 100_000_000
    assert there.counters.received_bytes["parameters"] == 100_000_000
    assert 0 < here.counters.sent_bytes["control"] < 2000


def test_many_callers_at_once_each_get_their_own_answer(make: Make) -> None:
    there, _, peer = pair(make)
    there.on("echo", echo)

    def ask(n: int) -> bool:
        sent = torch.full((n * 97 % 5000,), n, dtype=torch.int64)
        answer = peer.call("echo", {"n": n}, [sent], kind="state", step=n, deadline_seconds=30)
        return answer.header["n"] == n and torch.equal(answer.tensors[0], sent)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(400)))


def test_requests_of_one_sender_are_handled_in_their_order_and_one_at_a_time(make: Make) -> None:
    there, _, peer = pair(make)
    order: list[int] = []
    inside = threading.Semaphore(1)

    def handler(request: Request) -> None:
        assert inside.acquire(blocking=False), "two at once"
        order.append(request.header["n"])
        inside.release()
        request.reply()

    there.on("note", handler)
    futures = [peer.send("note", {"n": n}, kind="control") for n in range(300)]
    for each in futures:
        each.result(60)
    assert order == list(range(300))


def test_an_answer_may_come_later_from_any_thread_and_does_not_hold_up_others(make: Make) -> None:
    there, here, peer = pair(make)
    parked: list[Request] = []
    there.on("park", parked.append)
    there.on("echo", echo)
    waits = [peer.send("park", {"n": n}, kind="control") for n in range(20)]
    assert (
        peer.call("echo", {"x": 1}, kind="control", step=0, deadline_seconds=60).header["x"] == 1
    )
    assert not any(each.done() for each in waits)
    for request in reversed(parked):
        request.reply({"n": request.header["n"]})
    assert [each.result(60).header["n"] for each in waits] == list(range(20))


def test_what_a_handler_raises_is_raised_by_the_call(make: Make) -> None:
    there, _, peer = pair(make)

    def ours(request: Request) -> None:
        raise Conflict("no such range", hint="ask again", ranges=[1, 2])

    def others(request: Request) -> None:
        raise ZeroDivisionError("nothing to divide by")

    there.on("ours", ours)
    there.on("others", others)
    with pytest.raises(Conflict, match="no such range") as caught:
        peer.call("ours", kind="control", step=1, deadline_seconds=60)
    assert caught.value.details["ranges"] == [1, 2]
    with pytest.raises(TrainingFailed, match="server 0: ZeroDivisionError: nothing"):
        peer.call("others", kind="control", step=1, deadline_seconds=60)
    with pytest.raises(InvalidInput, match="'nothing'") as unknown:
        peer.call("nothing", kind="control", step=1, deadline_seconds=60)
    assert "others, ours" in unknown.value.hint
    with pytest.raises(InvalidInput, match="header"):
        peer.call("ours", {"x": object()}, kind="control", step=1, deadline_seconds=60)


def test_no_answer_by_the_deadline_names_peer_operation_and_step(make: Make) -> None:
    there, _, peer = pair(make)
    there.on("park", lambda request: None)
    started = time.monotonic()
    with pytest.raises(MemberLost, match="server 0 lost in park at step 7: nothing came for 0.3"):
        peer.call("park", kind="control", step=7, deadline_seconds=0.3)
    assert time.monotonic() - started < 8


def test_nobody_there_is_told_with_the_reason(make: Make) -> None:
    here = make("worker 0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()[:2]
    with pytest.raises(MemberLost, match=r"nothing came for 2.0 s \(.*refused") as caught:
        here.peer("server 0", address).call("x", kind="control", step=1, deadline_seconds=2.0)
    assert caught.value.details["missing"] == ["server 0"]


def test_a_peer_that_comes_later_is_reached(make: Make) -> None:
    here = make("worker 0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()[:2]
        waits = here.peer("server 0", address).send("echo", kind="control")
    there = make("server 0")
    there.on("echo", echo)
    relay = Relay(there.address, address[1])
    try:
        assert waits.result(60).header["you"] == "worker 0"
    finally:
        relay.close()


@pytest.mark.parametrize("way", ["budget", "back_budget"])
@pytest.mark.parametrize("after", [1, 150, 700, 5_000, 150_000])
def test_a_wire_that_breaks_anywhere_does_each_request_once(
    make: Make, way: str, after: int
) -> None:
    """A break in the request makes it come again; a break in the answer must not do it twice."""
    there, here = make("server 0"), make("worker 0")
    done: list[int] = []

    def add(request: Request) -> None:
        done.append(request.header["n"])
        request.reply({"n": request.header["n"]}, [request.tensors[0] + 1])

    there.on("add", add)
    relay = Relay(there.address)
    try:
        peer = here.peer("server 0", relay.address)
        setattr(relay, way, after)
        sent = [torch.full((10_000,), float(n)) for n in range(8)]
        into = [torch.zeros(10_000) for _ in range(8)]
        futures = [
            peer.send("add", {"n": n}, [sent[n]], kind="gradient", into=[into[n]])
            for n in range(8)
        ]
        for n, each in enumerate(futures):
            assert each.result(60).header["n"] == n
            assert torch.equal(into[n], sent[n] + 1)
        assert sorted(done) == list(range(8))
        assert relay.connections >= 2, "the wire did break"
    finally:
        relay.close()


def test_a_message_given_up_halfway_lets_go_of_its_memory(make: Make) -> None:
    """Past the deadline the caller may write to what it wanted to send: none of it is sent."""
    here = make("worker 0")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mine = torch.zeros(20_000_000)
        peer = here.peer("server 0", listener.getsockname()[:2])
        future = peer.send("push", {}, [mine], kind="gradient", deadline_seconds=3.0)
        other, _ = listener.accept()
        with other:
            _accept_by_hand(other, SECRET)
            with pytest.raises(MemberLost):
                future.result(60)
            mine.fill_(1)
            came = b""
            while data := other.recv(1 << 20):
                came += data
        assert len(came) < 80_000_000, "it was cut off"
        assert b"\x80\x3f" not in came[1000:]


def test_a_lost_peer_fails_everything_that_waits_for_it_at_once(make: Make) -> None:
    there, _, peer = pair(make)
    there.on("park", lambda request: None)
    waits = [peer.send("park", kind="control", step=n) for n in range(5)]
    started = time.monotonic()
    peer.cut("no sign of life for 5 s")
    for n, each in enumerate(waits):
        with pytest.raises(MemberLost, match=f"park at step {n}: no sign of life"):
            each.result(60)
    with pytest.raises(MemberLost, match="no sign of life"):
        peer.call("park", kind="control", step=9, deadline_seconds=60)
    assert time.monotonic() - started < 15


def test_a_peer_in_another_incarnation_is_asked_anew_and_never_twice(make: Make) -> None:
    first, here = make("server 0"), make("worker 0")
    arrived = threading.Event()
    first.on("park", lambda request: arrived.set())
    relay = Relay(first.address)
    try:
        peer = here.peer("server 0", relay.address)
        waits = peer.send("park", kind="control", step=3)
        assert arrived.wait(60)
        second = make("server 0")
        second.on("park", echo)
        relay.target = second.address
        relay.cut()
        with pytest.raises(MemberLost, match="park at step 3: it was started again"):
            waits.result(60)
        assert peer.call("park", kind="control", step=4, deadline_seconds=60).header["you"]
    finally:
        relay.close()


def test_without_the_secret_nothing_is_heard_and_both_sides_prove_it(make: Make) -> None:
    there, stranger = make("server 0"), make("worker 0", b"another secret")
    asked: list[Request] = []
    there.on("x", asked.append)
    with pytest.raises(MemberLost, match="no proof of the group's secret"):
        stranger.peer("server 0", there.address).call(
            "x", {}, [torch.ones(9)], kind="control", step=1, deadline_seconds=60
        )
    here = make("worker 1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        future = here.peer("server 0", listener.getsockname()[:2]).send("x", kind="control")
        other, _ = listener.accept()
        with other:
            _accept_by_hand(other, b"a guess")
            with pytest.raises(MemberLost, match="it gave no proof of the group's secret"):
                future.result(60)
    assert not asked


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        os.urandom(4096),
        frames.PREFIX.pack(frames.MAGIC, 1 << 30, 0),
        frames.PREFIX.pack(frames.MAGIC, 5, 0) + b"[1,2]",
        frames.PREFIX.pack(frames.MAGIC, 2, 1 << 50) + b"{}",
        frames.PREFIX.pack(frames.MAGIC, 9, 0) + b'{"ack":1}',
        frames.PREFIX.pack(frames.MAGIC, 4000, 0) + b"[" * 4000,
        frames.PREFIX.pack(frames.MAGIC, 2, 8) + b"{}12345678",
        b"",
    ],
    ids=["http", "noise", "long", "list", "huge", "ack", "deep", "payload", "nothing"],
)
def test_garbage_ends_its_connection_and_nothing_else(make: Make, garbage: bytes) -> None:
    there, _, peer = pair(make)
    there.on("echo", echo)
    with socket.create_connection(there.address, 60) as stranger:
        stranger.sendall(garbage)
        stranger.shutdown(socket.SHUT_WR)
        try:
            while stranger.recv(4096):
                pass
        except ConnectionResetError:
            pass
    assert peer.call("echo", kind="control", step=1, deadline_seconds=60).header["you"]


def test_a_frame_whose_tensors_do_not_add_up_is_none(make: Make) -> None:
    there, _, _ = pair(make)
    seen: list[Request] = []
    there.on("x", seen.append)
    for spec, payload in (
        (["float32", [2]], b"1234"), (["object", [1]], b"12345678"), (["float32", [-1]], b"1234"),
        (["float32", [True]], b"1234"),
    ):  # fmt: skip
        with socket.create_connection(there.address, 60) as mine:
            _connect_by_hand(mine, SECRET)
            text = json.dumps({"n": 1, "f": 1, "op": "x", "k": "a", "h": {}, "t": [spec]}).encode()
            head = frames.PREFIX.pack(frames.MAGIC, len(text), len(payload))
            mine.sendall(head + text + payload)
            mine.settimeout(60)
            assert mine.recv(100) == b"", "the other side ended it"
    assert not seen


def test_closing_needs_nobody_and_ends_what_waits(make: Make) -> None:
    before = set(threading.enumerate())
    there, here, peer = pair(make)
    there.on("park", lambda request: None)
    waits = peer.send("park", kind="control", step=1)
    started = time.monotonic()
    here.close()
    with pytest.raises(MemberLost, match="endpoint is closed"):
        waits.result(60)
    with pytest.raises(MemberLost, match="endpoint is closed"):
        peer.call("park", kind="control", step=2, deadline_seconds=60)
    there.close()
    assert time.monotonic() - started < 15
    assert not set(threading.enumerate()) - before


# -- between processes ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with Group(2, 1, silent_seconds=30.0) as found:
        yield found


def talk(seat: Seat, key: str, megabytes: int) -> tuple[int, float] | None:
    endpoint = Endpoint(seat.name, seat.meeting.secret, counters=Counters())
    finished = threading.Semaphore(0)
    try:
        if seat.role == "server":
            endpoint.on("double", lambda request: request.reply({}, [request.tensors[0] * 2]))
            endpoint.on("bye", lambda request: (request.reply(), finished.release())[0])
            endpoint.publish(seat.meeting, key)
            for _ in range(seat.workers):
                assert finished.acquire(timeout=60)
            return None
        peer = endpoint.find("server 0", seat.meeting, deadline_seconds=30, key=key)
        mine = torch.full((megabytes * 250_000,), float(seat.rank + 1))
        back = torch.zeros_like(mine)
        call = {"step": 1, "deadline_seconds": 60.0}
        for _ in range(3):
            peer.call("double", {}, [mine], kind="state", into=[back], **call)
            assert torch.equal(back, mine * 2)
        peer.call("bye", kind="control", **call)
        return endpoint.counters.sent_bytes["state"], float(back[0])
    finally:
        endpoint.close()


class SlowToEnd(Endpoint):
    """Asks another while it ends, and ends only when that had time to be connected."""

    late: Future[Answer] | None = None
    after: tuple[str, int]

    def _cancel_all(self) -> None:
        if self.late is None:
            self.late = self.peer("server 1", self.after).send("echo", kind="control")
            self.loop.run_until_complete(asyncio.sleep(0.2))
        super()._cancel_all()


def test_who_is_asked_while_an_endpoint_ends_is_not_connected_any_more() -> None:
    """A connection that nobody would ever close."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = SlowToEnd("worker 0", SECRET, counters=Counters())
        endpoint.after = listener.getsockname()[:2]
        endpoint.close()
        assert endpoint.late is not None
        with pytest.raises(MemberLost, match="endpoint is closed"):
            endpoint.late.result(60)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_processes_talk_through_the_meeting(group: Group) -> None:
    answers = group.call(talk, "talk", 8)
    assert answers["worker 0"] == (24_000_000, 2.0)
    assert answers["worker 1"] == (24_000_000, 4.0)


def lose_in_the_middle(seat: Seat, key: str) -> str:
    """Worker 1 asks the server for what it never gets; the server is killed meanwhile."""
    endpoint = Endpoint(seat.name, seat.meeting.secret, counters=Counters())
    endpoint.on("park", lambda request: None)
    endpoint.publish(seat.meeting, key)
    try:
        if seat.role == "server":
            threading.Event().wait(60)
        peer = endpoint.find("server 0", seat.meeting, deadline_seconds=30, key=key)
        seat.meeting.tell({"asking": True})
        big = torch.zeros(50_000_000)
        peer.call("park", {}, [big], kind="gradient", step=12, deadline_seconds=60)
    except MemberLost as err:
        return str(err)
    finally:
        endpoint.close()
    return "it answered"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_ends_or_stops_in_mid_frame_is_missed_within_seconds(
    how: signal.Signals,
) -> None:
    asking = threading.Event()
    with Group(1, 1, silent_seconds=5.0, told=lambda *_: asking.set()) as pair_of:
        number = pair_of.begin(lose_in_the_middle, "lose")
        assert asking.wait(60)
        pair_of.kill("server 0", how)
        started = time.monotonic()
        said = pair_of.finish(number, only=["worker 0"])["worker 0"]
        assert "server 0 lost in park at step 12" in said
        assert time.monotonic() - started < 30


def _accept_by_hand(connection: socket.socket, secret: bytes) -> None:
    """The called side of a handshake, as the documentation of the frames has it."""
    from windlass.train.comm import wire

    connection.settimeout(60)
    _send_by_hand(connection, {"ask": "a question"})
    hello = _read_by_hand(connection)
    answer = wire.proof(secret, f"called {hello['ask']}")
    _send_by_hand(connection, {"proof": answer, "incarnation": "by hand"})


def _connect_by_hand(connection: socket.socket, secret: bytes) -> None:
    from windlass.train.comm import wire

    connection.settimeout(60)
    asked = _read_by_hand(connection)["ask"]
    _send_by_hand(
        connection,
        {
            "hello": "worker 7", "incarnation": os.urandom(4).hex(), "ask": "q",
            "proof": wire.proof(secret, f"caller {asked}"),
        },
    )  # fmt: skip
    assert _read_by_hand(connection)["proof"] == wire.proof(secret, "called q")


def _send_by_hand(connection: socket.socket, header: dict[str, str]) -> None:
    text = json.dumps(header).encode()
    connection.sendall(frames.PREFIX.pack(frames.MAGIC, len(text), 0) + text)


def _read_by_hand(connection: socket.socket) -> dict[str, str]:
    prefix = connection.recv(frames.PREFIX.size, socket.MSG_WAITALL)
    size, _ = frames.read_prefix(prefix)
    found: dict[str, str] = json.loads(connection.recv(size, socket.MSG_WAITALL))
    return found


# -- messages that are only told of later ---------------------------------------------------------


def test_a_handler_at_once_runs_in_the_endpoints_own_thread_in_the_order_of_sending(
    make: Make,
) -> None:
    there, _, peer = pair(make)
    seen: list[tuple[str, int]] = []

    def note(request: Request) -> None:
        seen.append((threading.current_thread().name, request.header["n"]))
        request.reply()

    there.on("note", note, at_once=True)
    sent = [peer.send("note", {"n": n}, kind="control", lazily=True) for n in range(40)]
    for each in sent:
        each.result(30)
    assert seen == [("server 0 endpoint", n) for n in range(40)]


@pytest.mark.parametrize("budget", [300, 1500, 5000, 20_000])
@pytest.mark.parametrize("way", ["budget", "back_budget"])
def test_what_is_sent_lazily_is_done_once_however_the_wire_breaks(
    make: Make, budget: int, way: str
) -> None:
    there, here = make("server 0"), make("worker 0")
    seen: list[int] = []

    def note(request: Request) -> None:
        seen.append(int(request.tensors[0][0]))
        request.reply()

    there.on("note", note, at_once=True)
    relay = Relay(there.address)
    try:
        peer = here.peer("server 0", relay.address)
        peer.send("note", {}, [torch.tensor([-1])], kind="state").result(30)
        setattr(relay, way, budget)
        sent = [
            peer.send("note", {}, [torch.full((50,), n)], kind="state", lazily=True)
            for n in range(60)
        ]
        for each in sent:
            assert each.result(60) == Answer({}, [])
        assert seen == list(range(-1, 60))
    finally:
        relay.close()


def test_what_is_sent_lazily_may_be_refused(make: Make) -> None:
    there, _, peer = pair(make)

    def refuse(request: Request) -> None:
        raise Conflict("not now")

    there.on("refuse", refuse, at_once=True)
    with pytest.raises(Conflict, match="not now"):
        peer.send("refuse", {}, kind="control", lazily=True).result(30)


def test_who_asks_is_first_told_what_was_done_before(make: Make) -> None:
    there, _, peer = pair(make)
    there.on("note", lambda request: request.reply(), at_once=True)
    there.on("echo", echo)
    for _ in range(20):
        sent = peer.send("note", {}, kind="control", lazily=True)
        peer.call("echo", {}, kind="control", step=None, deadline_seconds=30)
        assert sent.done()


def test_an_endpoint_that_ends_tells_what_it_has_done(make: Make) -> None:
    there, _, peer = pair(make)
    came = threading.Event()

    def note(request: Request) -> None:
        request.reply()
        came.set()

    there.on("note", note, at_once=True)
    sent = peer.send("note", {}, kind="control", lazily=True)
    assert came.wait(30)
    there.close()
    assert sent.result(30) == Answer({}, [])


def test_memory_is_lent_within_one_address_only() -> None:
    """Links between namespaces of one machine are there to be used."""
    with ExitStack() as stack:
        here = Endpoint("worker 0", SECRET, counters=Counters())
        stack.callback(here.close)
        for host, lent in (("127.0.0.1", True), ("127.0.0.2", False)):
            there = Endpoint("server 0", SECRET, host=host, counters=Counters())
            stack.callback(there.close)
            there.on("echo", echo)
            peer = here.peer("server 0", there.address)
            payload = torch.rand(50_000)
            for _ in range(2):
                answer = peer.call(
                    "echo", {}, [payload], kind="state", step=None, deadline_seconds=30
                )
                assert torch.equal(answer.tensors[0], payload)
            assert peer._connection is not None
            assert (peer._connection.borrower is not None) is (lent and lending._READ is not None)
