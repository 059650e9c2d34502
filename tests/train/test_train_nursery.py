from __future__ import annotations

import gc
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from windlass.core.errors import MemberLost
from windlass.train.group import Group
from windlass.train.nursery import forks_are_safe
from windlass.train.seat import Seat

pytestmark = pytest.mark.skipif(not forks_are_safe(), reason="members are not forked here")


def drawn(seat: Seat) -> tuple[int, str, float, float, int]:
    import numpy

    return os.getppid(), os.environ["RANK"], random.random(), numpy.random.rand(), os.getpid()


def inherited(seat: Seat) -> tuple[bool, bool]:
    """What an optimiser imports; what is loaded and not looked at again."""
    return "torch._dynamo" in sys.modules, gc.get_freeze_count() > 0


def leave(seat: Seat, code: int) -> None:
    sys.stdout.flush()
    os._exit(code)


def ask_again(seat: Seat, seconds: float) -> None:
    time.sleep(seconds)


def gone(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def wait_until_gone(*pids: int) -> None:
    ends = time.monotonic() + 60
    while not all(map(gone, pids)):
        assert time.monotonic() < ends, f"still there: {[pid for pid in pids if not gone(pid)]}"
        time.sleep(0.02)


def test_members_of_one_nursery_are_as_if_each_had_been_started_alone() -> None:
    with Group(3) as group:
        answers = group.call(drawn, timeout_seconds=60)
        nurseries, ranks, own, numpys, pids = map(set, zip(*answers.values(), strict=True))
        assert len(nurseries) == 1 and nurseries.isdisjoint({os.getpid()})
        assert ranks == {"0", "1", "2"}
        assert len(own) == len(numpys) == len(pids) == 3
        assert set(group.call(inherited, timeout_seconds=60).values()) == {(True, True)}
        with pytest.raises(MemberLost, match="it ended with 7"):
            group.call(leave, 7, only=["worker 1"], timeout_seconds=60)
        group.start_again("worker 1")
        again = group.call(drawn, only=["worker 1"], timeout_seconds=60)["worker 1"]
        assert again[:2] == (os.getpid(), "1"), "a process of its own"
        pids |= {group.pid("worker 1"), *nurseries}
    wait_until_gone(*pids)


def test_a_nursery_that_is_killed_takes_its_members_along() -> None:
    with Group(2) as group:
        nursery = group.call(drawn, timeout_seconds=60)["worker 0"][0]
        number = group.begin(ask_again, 600)
        os.kill(nursery, signal.SIGKILL)
        assert group.processes["worker 0"].popen.wait(60) == -signal.SIGKILL
        with pytest.raises(MemberLost, match="killed by SIGKILL"):
            group.finish(number, only=["worker 0"], timeout_seconds=60)
        pids = [group.pid(name) for name in group.processes]
    wait_until_gone(nursery, *pids)
