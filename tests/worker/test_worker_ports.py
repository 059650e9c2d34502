"""Ports: held, released, and never given to two gangs, however many start at once."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from windlass.worker.ports import HeldPorts

GANGS, RANKS = 100, 2

# A gang: takes its ports, says so, and once told to start, releases them and listens on them as a
# framework would that sets no option. It keeps listening until it is told to end.
GANG = """
import socket, sys
from windlass.worker.ports import HeldPorts
held = HeldPorts(int(sys.argv[2]), sys.argv[1] or None)
print(*held.numbers, flush=True)
for order in sys.stdin:
    if order == "release\\n":
        held.release()
    elif order == "listen\\n":
        opened = []
        for number in held.numbers:
            opened.append(socket.socket())
            opened[-1].bind(("127.0.0.1", number))
            opened[-1].listen()
    print("done", flush=True)
"""


@pytest.fixture
def held() -> Iterator[HeldPorts]:
    found = HeldPorts(2)
    yield found
    found.close()


def test_a_held_port_is_offered_to_nobody(held: HeldPorts) -> None:
    others = [HeldPorts(50) for _ in range(4)]
    try:
        numbers = [number for each in (held, *others) for number in each.numbers]
        assert len(set(numbers)) == len(numbers)
    finally:
        for each in others:
            each.close()


def test_a_held_port_cannot_be_reached(held: HeldPorts) -> None:
    with closing(socket.socket()) as caller, pytest.raises(ConnectionRefusedError):
        caller.connect(("127.0.0.1", held.numbers[0]))


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_framework_that_reuses_addresses_listens_while_the_port_is_held(
    held: HeldPorts, family: socket.AddressFamily
) -> None:
    with closing(socket.socket(family)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", held.numbers[0]))
        listener.listen()
        with closing(socket.create_connection(("localhost", held.numbers[0]))):
            pass


def test_one_that_does_not_needs_it_released(held: HeldPorts) -> None:
    with closing(socket.socket()) as listener:
        with pytest.raises(OSError, match="in use"):
            listener.bind(("127.0.0.1", held.numbers[0]))
    held.release()
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", held.numbers[0]))
        listener.listen()


def test_a_released_port_stays_claimed_until_its_worker_is_done(tmp_path: Path) -> None:
    """Whoever binds the same port again finds the claim, and takes another."""
    import fcntl

    held = HeldPorts(1, str(tmp_path / "ports"))
    (number,) = held.numbers
    held.release()
    with (tmp_path / "ports" / str(number)).open() as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.close()
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_released_port_is_none_that_the_kernel_gives_away() -> None:
    """A neighbour that asked for any port took it, before the rank came that it was meant for."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if low < 22_000:
        pytest.skip(f"the kernel of this machine gives away all ports from {low} on")
    held = HeldPorts(300)
    try:
        assert len(set(held.numbers)) == 300
        assert not [number for number in held.numbers if low <= number <= high]
    finally:
        held.close()


def test_a_ledger_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    held = HeldPorts(1, str(tmp_path / "file" / "ports"))
    assert held.numbers
    held.close()


def _gangs(count: int, ledger: str, *before: str) -> list[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return [
        subprocess.Popen(
            [*before, sys.executable, "-S", "-c", GANG, ledger, str(RANKS)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]


def _tell(gangs: list[subprocess.Popen[str]], order: str) -> None:
    for gang in gangs:
        assert gang.stdin is not None
        gang.stdin.write(order + "\n")
        gang.stdin.flush()
    for gang in gangs:
        assert gang.stdout is not None
        assert gang.stdout.readline() == "done\n"


def _numbers(gangs: list[subprocess.Popen[str]]) -> list[int]:
    lines = [gang.stdout.readline() for gang in gangs if gang.stdout is not None]
    return [int(word) for line in lines for word in line.split()]


def _end(gangs: list[subprocess.Popen[str]]) -> None:
    for gang in gangs:
        gang.kill()
        gang.communicate()


@pytest.mark.slow
def test_a_hundred_gangs_at_once_never_collide(tmp_path: Path) -> None:
    """The first half has released its ports and not yet taken them when the second half asks."""
    ledger = str(tmp_path / "ports")
    first = _gangs(GANGS // 2, ledger)
    second: list[subprocess.Popen[str]] = []
    try:
        numbers = _numbers(first)
        _tell(first, "release")
        second = _gangs(GANGS // 2, ledger)
        numbers += _numbers(second)
        assert len(numbers) == GANGS * RANKS == len(set(numbers))
        _tell(second, "release")
        _tell(first + second, "listen")
    finally:
        _end(first + second)


@pytest.mark.slow
def test_they_do_not_collide_where_the_kernel_must_offer_a_port_twice(tmp_path: Path) -> None:
    """A network of its own with hardly more ports than the gangs need. Without the ledger the
    kernel gives a released port to the next who asks, nearly always."""
    gangs, ports = 20, 20 * RANKS + 10
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    script = tmp_path / "inside.py"
    script.write_text(
        "import sys\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), *[p for p in sys.path if p]]!r}\n"
        "import test_worker_ports as tests\n"
        "open('/proc/sys/net/ipv4/ip_local_port_range', 'w')"
        f".write('20000 {20000 + ports - 1}')\n"
        f"first = tests._gangs({gangs // 2}, sys.argv[1])\n"
        "numbers = tests._numbers(first)\n"
        "tests._tell(first, 'release')\n"
        f"second = tests._gangs({gangs // 2}, sys.argv[1])\n"
        "numbers += tests._numbers(second)\n"
        "tests._end(first + second)\n"
        "print(len(numbers), len(set(numbers)))\n"
    )
    command = ["unshare", "--net", "--map-root-user", sys.executable, str(script)]
    counts = []
    for ledger in (str(tmp_path / "ports"), ""):
        done = subprocess.run([*command, ledger], capture_output=True, text=True, timeout=60)
        if "unshare" in done.stderr:
            pytest.skip(f"no network namespace here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        counts.append(tuple(map(int, done.stdout.split())))
    asked, given = counts[0]
    assert asked == given == gangs * RANKS
    asked, given = counts[1]
    assert given < asked, "the test would see a collision"
