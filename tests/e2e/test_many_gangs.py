"""A hundred gangs started at once on one machine find their own peers, and nobody else's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.testing.platform import Platform, wait_for

GANGS = 100

# What a framework does, without one: once the gate is open, rank 0 listens where it was told, rank
# 1 finds it there, and the job's id shows whether it was the right one. Half of the gangs listen
# as torch does, on a port that is still held, the others as XGBoost does, on one that is free.
MEET = """
import os, socket, sys, time
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
job = os.environ["WINDLASS_JOB_ID"].encode()
end = time.monotonic() + 500
while not os.path.exists(sys.argv[1]):
    assert time.monotonic() < end
    time.sleep(0.2)
if os.environ["RANK"] == "0":
    with socket.socket() as server:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(place)
        server.listen()
        connection, _ = server.accept()
        connection.sendall(job)
        connection.close()
else:
    while True:
        try:
            connection = socket.create_connection(place)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.05)
    assert connection.recv(100) == job
"""


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    # As many nodes as give each member its slot, all of them this machine.
    with Platform(tmp_path / "home", "--fake-nodes", "100") as platform:
        yield platform


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_gangs_at_once_each_meet_their_own(platform: Platform) -> None:
    gate = platform.gate()
    command = [sys.executable, "-I", "-S", "-c", MEET, str(gate)]
    wanted = {
        platform.submit(
            command,
            framework=("pytorch", "xgboost")[each % 2],
            roles={"worker": {"count": 2}},
            name=f"gang-{each}",
        ).id
        for each in range(GANGS)
    }

    def states() -> dict[str, str]:
        return {job.id: str(job.state) for job in platform.client.jobs.list(limit=200)}

    def everyone(*allowed: str) -> bool:
        found = states()
        return all(found.get(each) in allowed for each in wanted)

    wait_for(lambda: everyone("running"), 240, "all gangs run at once")
    gate.touch()
    wait_for(lambda: everyone("succeeded", "failed"), 240, "all gangs are over")
    assert everyone("succeeded"), states()
