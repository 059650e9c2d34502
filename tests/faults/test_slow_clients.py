"""R-F33: a thousand who watch, some who do not read and some who never finish a head: the server
holds little for each, and others do not notice."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from urllib.parse import quote

import psutil
import pytest

from windlass.core.signing import sign
from windlass.testing.platform import Platform, wait_for

WATCHERS = 1000
MB = 1_000_000


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("slow") / "home") as found:
        yield found


class Idler:
    """One who asks for a long log and reads nothing of it. Half a minute goes by before it is
    dropped, so it is there from the first test on, and beside all others."""

    def __init__(self, platform: Platform) -> None:
        words = "import sys\nfor n in range(3_000_000): sys.stdout.write(f'{n:09}\\n')"
        self.job = platform.submit([sys.executable, "-c", words], limits={"log_rate": "1GiB"})
        platform.wait(self.job, 120)
        self.plug = socket.socket()
        self.plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.plug.connect(("127.0.0.1", platform.port))
        self.plug.sendall(request(platform, f"/api/v1/jobs/{self.job.id}/stream"))
        self.lasted = 0.0
        """Seconds until it was dropped."""
        self._over = threading.Event()
        began = time.monotonic()
        wait_for(lambda: not _dropped(platform, self.plug), 10, "the server has taken it in")
        self._watch = threading.Thread(target=self._look, args=(platform, began))
        self._watch.start()

    def _look(self, platform: Platform, began: float) -> None:
        while not self._over.wait(0.2):
            if _dropped(platform, self.plug):
                self.lasted = time.monotonic() - began
                return

    def held(self) -> bytes:
        """All that was sent to it, once it is dropped."""
        wait_for(lambda: self.lasted, 90, "the server drops it")
        found = b""
        self.plug.settimeout(60)
        try:
            while piece := self.plug.recv(65536):
                found += piece
        except ConnectionError:
            pass
        return found

    def close(self) -> None:
        self._over.set()
        self._watch.join()
        self.plug.close()


@pytest.fixture(scope="module")
def idler(platform: Platform) -> Iterator[Idler]:
    found = Idler(platform)
    yield found
    found.close()


def request(platform: Platform, path: str) -> bytes:
    """A signed GET, as bytes."""
    key = platform.credentials()
    whole = {"Host": f"127.0.0.1:{platform.port}"}
    whole |= sign(
        "GET", platform.url + path, whole, b"", key["access_key"], key["secret_key"],
        int(time.time() * 1000),
    )  # fmt: skip
    lines = "".join(f"{name}: {value}\r\n" for name, value in whole.items())
    return f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode()


def memory(platform: Platform) -> int:
    assert platform.process is not None
    return int(psutil.Process(platform.process.pid).memory_info().rss)


def cost(platform: Platform, calls: int = 100) -> tuple[float, float]:
    """CPU seconds of the server for so many reads, and the slowest of them but one."""
    assert platform.process is not None
    process = psutil.Process(platform.process.pid)
    before, took = sum(process.cpu_times()[:2]), []
    for _ in range(calls):
        began = time.perf_counter()
        platform.client.jobs.list(limit=1)
        took.append(time.perf_counter() - began)
    return sum(process.cpu_times()[:2]) - before, sorted(took)[-2]


class Watcher:
    """One who follows the feed, and counts the events it is told."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.writer: asyncio.StreamWriter | None = None

    async def watch(self, platform: Platform, ready: asyncio.Semaphore) -> None:
        reader, self.writer = await asyncio.open_connection("127.0.0.1", platform.port)
        self.writer.write(request(platform, "/api/v1/feed"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head, head
        ready.release()
        try:
            async for line in reader:
                if line.startswith(b"id: "):
                    self.told.append(int(line[4:]))
        except ConnectionError:
            pass


def test_a_thousand_watchers_cost_little_and_miss_nothing(platform: Platform, idler: Idler):
    platform.submit("true", name="before", hold=True)
    calm_cpu, calm_slow = cost(platform)
    held = memory(platform)

    async def go() -> None:
        ready, watchers = asyncio.Semaphore(0), [Watcher() for _ in range(WATCHERS)]
        tasks = []
        for at in range(0, WATCHERS, 50):  # not all in one instant: the backlog is not the test
            tasks += [
                asyncio.create_task(each.watch(platform, ready)) for each in watchers[at : at + 50]
            ]
            for _ in range(50):
                await asyncio.wait_for(ready.acquire(), 60)
        grown = memory(platform) - held
        cpu, slow = await asyncio.to_thread(cost, platform)
        await asyncio.to_thread(platform.submit, "true", name="during", hold=True)
        end = time.monotonic() + 60
        while not all(each.told for each in watchers) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        assert all(each.told for each in watchers), "each was told of the job"
        assert len({tuple(each.told) for each in watchers}) == 1, "all the same, in one order"
        assert len(set(watchers[0].told)) == len(watchers[0].told), "each event once"
        for each in watchers:
            assert each.writer is not None
            each.writer.close()
        await asyncio.gather(*tasks)
        assert grown < 150 * MB, f"{grown / WATCHERS:.0f} bytes for each"
        assert cpu <= 3 * calm_cpu + 0.5, (cpu, calm_cpu)
        assert slow <= 20 * calm_slow + 5, (slow, calm_slow)

    asyncio.run(go())
    wait_for(lambda: _connections(platform) < 50, 20, "the server has let them go")


def _connections(platform: Platform) -> int:
    assert platform.process is not None
    return len(psutil.Process(platform.process.pid).net_connections("tcp"))


def test_one_who_does_not_read_the_log_costs_a_buffer_and_slows_nobody(platform: Platform):
    """A hundred megabytes of output, twenty who asked for it and do not read."""
    flood = "import sys\nfor n in range(400): sys.stdout.write(('x' * 255 + '\\n') * 1000)"
    job = platform.submit([sys.executable, "-c", flood], name="flood", limits={"log_rate": "1GiB"})
    assert platform.wait(job, 120).state == "succeeded"
    calm_cpu, calm_slow = cost(platform)
    held = memory(platform)
    plugs = []
    try:
        for _ in range(20):
            plug = socket.socket()
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plug.connect(("127.0.0.1", platform.port))
            plug.sendall(request(platform, f"/api/v1/jobs/{job.id}/stream"))
            plugs.append(plug)
        cpu, slow = cost(platform)
        wait_for(lambda: _still(platform), 30, "they are fed no more")
        grown = memory(platform) - held
        assert grown < 20 * 4 * MB, f"{grown / 20 / MB:.1f} MB for each"
        cpu, slow = cost(platform)
        assert cpu <= 3 * calm_cpu + 0.5, (cpu, calm_cpu)
        assert slow <= 20 * calm_slow + 5, (slow, calm_slow)
    finally:
        for plug in plugs:
            plug.close()


def _still(platform: Platform) -> bool:
    """Whether the server does (nearly) nothing for a moment."""
    assert platform.process is not None
    process = psutil.Process(platform.process.pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(0.5)
    return sum(process.cpu_times()[:2]) - before < 0.1


def _dropped(platform: Platform, plug: socket.socket) -> bool:
    mine = plug.getsockname()[1]
    assert platform.process is not None
    found = psutil.Process(platform.process.pid).net_connections("tcp")
    return all(not each.raddr or each.raddr.port != mine for each in found)


def test_heads_that_never_end_do_not_keep_others_out(platform: Platform):
    """Two hundred who send a header now and then, as slowloris did."""
    calm_cpu, calm_slow = cost(platform)
    plugs = [socket.create_connection(("127.0.0.1", platform.port)) for _ in range(200)]
    try:
        for plug in plugs:
            plug.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for _ in range(3):
            for plug in plugs:
                plug.sendall(b"X-A: b\r\n")
            cpu, slow = cost(platform, 30)
            assert slow <= 20 * calm_slow + 5, (slow, calm_slow)
    finally:
        for plug in plugs:
            plug.close()


def test_the_log_of_a_slow_reader_tells_the_truth(platform: Platform):
    """Slowness is no loss: who reads at last reads all, in order."""
    job = platform.submit(
        [sys.executable, "-c", "for n in range(20000): print(n)"], name="counted"
    )
    platform.wait(job)
    with socket.create_connection(("127.0.0.1", platform.port), timeout=60) as plug:
        plug.sendall(request(platform, f"/api/v1/jobs/{job.id}/stream"))
        held = b""
        while b"event: end" not in held:
            piece = plug.recv(8192)
            assert piece
            held += piece
            time.sleep(0.001)
    text = "".join(
        json.loads(line[6:])["text"]
        for line in _unchunked(held).split(b"\n")
        if line.startswith(b"data: ") and b'"text"' in line
    )
    assert [int(line) for line in text.split()] == list(range(20000))


def test_the_log_goes_on_exactly_where_a_broken_stream_told_last(platform: Platform):
    """The cursor of a block is its own end, not that of what was read ahead of it."""
    words = "for n in range(40000): print(f'{n:07}')"
    job = platform.submit([sys.executable, "-c", words], name="resumed")
    platform.wait(job)
    got, cursor, turns = "", "", 0
    while True:
        turns += 1
        query = f"?cursor={quote(cursor)}" if cursor else ""
        with socket.create_connection(("127.0.0.1", platform.port), timeout=60) as plug:
            plug.sendall(request(platform, f"/api/v1/jobs/{job.id}/stream{query}"))
            held, ended = b"", False
            while not ended and held.count(b"event: log") < 2:
                piece = plug.recv(4096)
                assert piece and b": still here" not in piece, "it goes on until the end"
                held += piece
                ended = b"event: end" in held and held.endswith(b"\r\n")
        for block in _unchunked(held).split(b"\n\n")[:-1]:
            lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
            if lines.get(b"event") == b"log":
                got += json.loads(lines[b"data"])["text"]
            if b"id" in lines:
                cursor = lines[b"id"].decode()
        if ended:
            break
        assert turns < 50
    assert turns > 3, "it was broken often"
    assert [int(line) for line in got.split()] == list(range(40000))


def test_a_stream_that_broke_after_the_last_event_ends_when_it_is_taken_up(platform: Platform):
    """All was told but the end: a cursor behind the event that ended the job."""
    job = platform.submit([sys.executable, "-c", "print('all of it')"], name="told")
    platform.wait(job)
    whole = _until_the_end(platform, f"/api/v1/jobs/{job.id}/stream")
    cursors = [each.decode() for each in re.findall(rb"id: (.+)\n", whole)]
    furthest = max(cursors, key=lambda cursor: (int(cursor.split(";")[0]), len(cursor)))
    again = _until_the_end(platform, f"/api/v1/jobs/{job.id}/stream?cursor={quote(furthest)}")
    assert re.findall(rb"event: (\w+)\n", again) == [b"end"], "and nothing twice"


def _until_the_end(platform: Platform, path: str) -> bytes:
    held = b""
    with socket.create_connection(("127.0.0.1", platform.port), timeout=60) as plug:
        plug.sendall(request(platform, path))
        while b"\r\n0\r\n" not in held:
            piece = plug.recv(8192)
            assert piece
            held += piece
    return _unchunked(held)


def _unchunked(raw: bytes) -> bytes:
    body, out = raw.partition(b"\r\n\r\n")[2], b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size or b"0", 16)
        out, body = out + rest[:length], rest[length + 2 :]
    return out


@pytest.mark.slow
def test_one_who_does_not_read_is_dropped_and_comes_back_with_its_cursor(
    platform: Platform, idler: Idler
):
    """Half a minute, then it is alone; what it had read tells where it goes on."""
    held = idler.held()
    assert idler.lasted > 20, "not at the first pause"
    cursor = re.findall(rb"id: (.+)\nevent: log\ndata: .*\n\n", held)[-1].decode()
    path = f"/api/v1/jobs/{idler.job.id}/stream?cursor={quote(cursor)}"
    with socket.create_connection(("127.0.0.1", platform.port), timeout=60) as again:
        again.sendall(request(platform, path))
        more = b""
        while more.count(b"event: log") < 3:
            more += again.recv(65536)
    seen = [json.loads(data)["end"] for data in re.findall(rb"event: log\ndata: (.*)\n\n", held)]
    first = re.search(rb"event: log\ndata: (.*)\n\n", more)
    assert first is not None
    assert json.loads(first[1])["offset"] == seen[-1], "no gap and no repeat"


def test_nothing_of_it_was_a_mistake_of_ours(platform: Platform):
    assert "Traceback" not in platform.log()
