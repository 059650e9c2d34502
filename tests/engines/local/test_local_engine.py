"""What the local engine promises beyond the contract: crashes, privacy, no litter."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from local_kit import LocalKit

from windlass.engines.base import LaunchFailed, LaunchPlan, NodeLaunch, Sight
from windlass.engines.local.engine import LocalEngine
from windlass.engines.spawn import worker_command
from windlass.testing.engines import STUB_WORKER, Hints, open_gate

COMMAND = worker_command(STUB_WORKER)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[LocalKit]:
    kit = LocalKit(tmp_path, COMMAND)
    yield kit
    kit.clean()


def _plan(kit: LocalKit, **stub: Any) -> LaunchPlan:
    attempt_id = secrets.token_hex(16)
    launch = {**kit.launch(attempt_id, "fake-0"), "stub": stub}
    return LaunchPlan("0" * 32, attempt_id, 1, (NodeLaunch("fake-0", launch, "secret"),))


async def _until(engine: LocalEngine, plan: LaunchPlan, sight: Sight) -> None:
    deadline = time.monotonic() + 60
    while (seen := (await engine.observe([(plan.attempt_id, "fake-0")]))[0]).sight is not sight:
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.01)


async def _pid(kit: LocalKit, plan: LaunchPlan) -> int:
    """A worker is alive from its lock on, and says its pid a moment later."""
    deadline = time.monotonic() + 60
    while (pid := kit.worker_pid(plan.attempt_id, "fake-0")) is None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    return pid


def _run(kit: LocalKit, body: Callable[[LocalEngine, Hints], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        engine, hints = kit.engine(), Hints()
        await engine.start(hints)
        try:
            await body(engine, hints)
        finally:
            await engine.stop()

    asyncio.run(whole())


# A server that is killed at a named moment of `launch`, as a process of its own.
_SERVER = """
import asyncio, json, os, signal, sys
from pathlib import Path
from windlass.engines.base import LaunchPlan, NodeLaunch
from windlass.engines import directory, spawn
from windlass.engines.local import engine

home, moment, command, plans = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def dying_after(true):
    def run(*arguments):
        true(*arguments)
        die()
    return run

if moment == "before-rename":
    Path.rename = die
elif moment == "before-spawn":
    spawn.spawn = die
elif moment == "after-spawn":
    spawn.spawn = dying_after(spawn.spawn)
elif moment == "before-sync":
    directory.Directory.sync = die

async def main():
    local = engine.LocalEngine(Path(home), json.loads(command), fake_nodes=3)
    await local.start(lambda _: None)
    for attempt_id, launch in json.loads(plans):
        worker = NodeLaunch("fake-0", launch, "secret")
        await local.launch(LaunchPlan("0" * 32, attempt_id, 1, (worker,)))
    die()

asyncio.run(main())
"""


def _launch_in_a_server_that_is_killed(
    kit: LocalKit, plans: list[LaunchPlan], moment: str = "after-all"
) -> None:
    content = json.dumps([(plan.attempt_id, plan.nodes[0].launch) for plan in plans])
    arguments = [str(kit.home), moment, json.dumps(COMMAND), content]
    done = subprocess.run([sys.executable, "-c", _SERVER, *arguments], timeout=60)
    assert done.returncode == -signal.SIGKILL


def test_twenty_workers_outlive_a_killed_server_and_are_adopted(kit: LocalKit) -> None:
    """R-F4 with a real kill: all twenty go on; ten end meanwhile, and their records are known."""
    gates = [kit.gate() for _ in range(20)]
    plans = [_plan(kit, until=str(gate), outcome="failed") for gate in gates]
    _launch_in_a_server_that_is_killed(kit, plans)

    async def body(engine: LocalEngine, hints: Hints) -> None:
        for plan in plans:
            await _until(engine, plan, Sight.ALIVE)
        for gate in gates:
            await open_gate(gate)
        for plan in plans:
            await hints.of(plan.attempt_id)
        seen = await engine.observe([(plan.attempt_id, "fake-0") for plan in plans])
        assert {one.sight for one in seen} == {Sight.ENDED}
        assert {one.record["outcome"] for one in seen if one.record} == {"failed"}

    _run(kit, body)


@pytest.mark.parametrize(
    "moment", ["before-rename", "before-spawn", "after-spawn", "before-sync", "after-all"]
)
def test_a_launch_killed_at_any_moment_is_one_worker_when_repeated(
    kit: LocalKit, moment: str
) -> None:
    """R-I2. What each worker that ran writes down is counted, not what the engine believes."""
    gate = kit.gate()
    plan = _plan(kit, until=str(gate))
    _launch_in_a_server_that_is_killed(kit, [plan], moment)

    async def body(engine: LocalEngine, hints: Hints) -> None:
        [seen] = await engine.observe([(plan.attempt_id, "fake-0")])
        assert seen.sight is not Sight.DEAD
        await engine.launch(plan)
        await _until(engine, plan, Sight.ALIVE)
        pid = await _pid(kit, plan)
        await engine.launch(plan)
        assert kit.worker_pid(plan.attempt_id, "fake-0") == pid
        await open_gate(gate)
        await _until(engine, plan, Sight.ENDED)
        assert os.listdir(kit.home / "attempts" / plan.attempt_id) == ["fake-0"]

    _run(kit, body)


def test_a_worker_that_ran_is_not_started_again_though_its_start_was_cut_short(
    kit: LocalKit,
) -> None:
    plan = _plan(kit, until=str(kit.gate()))
    _launch_in_a_server_that_is_killed(kit, [plan], "after-spawn")
    mark = kit.directory(plan.attempt_id, "fake-0") / "spawn.json"

    async def body(engine: LocalEngine, hints: Hints) -> None:
        await _until(engine, plan, Sight.ALIVE)
        os.kill(await _pid(kit, plan), signal.SIGKILL)
        await _until(engine, plan, Sight.DEAD)
        await engine.launch(plan)
        assert json.loads(mark.read_text())["pid"] is None  # nobody was started by that
        assert (await engine.end(plan.attempt_id, "fake-0")).sight is Sight.ENDED

    _run(kit, body)


def test_a_start_cut_short_and_never_repeated_is_given_up(kit: LocalKit) -> None:
    plan = _plan(kit)
    _launch_in_a_server_that_is_killed(kit, [plan], "before-spawn")

    async def body() -> None:
        engine, hints = LocalEngine(kit.home, COMMAND, starting_seconds=0.5), Hints()
        await engine.start(hints)
        await hints.of(plan.attempt_id)
        assert (await engine.observe([(plan.attempt_id, "fake-0")]))[0].sight is Sight.DEAD
        assert (await engine.end(plan.attempt_id, "fake-0")).sight is Sight.ENDED
        await engine.stop()

    asyncio.run(body())


def test_a_command_that_is_not_there_fails_for_good_and_leaves_nothing(kit: LocalKit) -> None:
    kit.command = ["/nonexistent/python"]

    async def body(engine: LocalEngine, hints: Hints) -> None:
        plan = _plan(kit)
        with pytest.raises(LaunchFailed, match="/nonexistent/python") as caught:
            await engine.launch(plan)
        assert not caught.value.transient
        [seen] = await engine.observe([(plan.attempt_id, "fake-0")])
        assert seen.sight is Sight.ABSENT

    _run(kit, body)


def test_a_worker_sees_none_of_our_environment_or_descriptors(
    kit: LocalKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_SECRET_KEY", "leak")
    monkeypatch.setenv("PYTHONPATH", "/leak")
    monkeypatch.setenv("LC_ALL", "C")
    leaky = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaky, True)

    async def body(engine: LocalEngine, hints: Hints) -> None:
        plan = _plan(kit, until=str(kit.gate()))
        await engine.launch(plan)
        await _until(engine, plan, Sight.ALIVE)
        process = Path(f"/proc/{await _pid(kit, plan)}")
        names = {
            item.split(b"=")[0].decode()
            for item in (process / "environ").read_bytes().split(b"\0")
        }
        assert "LC_ALL" in names
        assert not {name for name in names if name.startswith(("WINDLASS", "PYTHON"))}
        directory = kit.directory(plan.attempt_id, "fake-0")
        for link in (process / "fd").iterdir():
            target = os.readlink(link)
            assert target == "/dev/null" or target.startswith(str(directory))
            assert int(link.name) != leaky or target != "/dev/null"
        assert os.getsid(int(process.name)) == int(process.name)
        assert os.readlink(process / "cwd") == str(directory)

    try:
        _run(kit, body)
    finally:
        os.close(leaky)


def test_the_engine_leaves_no_zombie_no_descriptor_and_no_warning(kit: LocalKit) -> None:
    async def body(engine: LocalEngine, hints: Hints) -> None:
        plans = [_plan(kit) for _ in range(10)]
        await asyncio.gather(*(engine.launch(plan) for plan in plans))
        for plan in plans:
            await hints.of(plan.attempt_id)
            await engine.forget(plan.attempt_id)
        assert await engine.present() == []
        # Not one child of ours, dead or alive; other tests of this process have theirs.
        assert {child.pid for child in psutil.Process().children()} <= children

    children = {child.pid for child in psutil.Process().children()}
    before = set(os.listdir("/proc/self/fd"))
    _run(kit, body)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= len(before)


def test_a_broken_record_is_put_aside_and_a_true_one_written(kit: LocalKit) -> None:
    async def body(engine: LocalEngine, hints: Hints) -> None:
        plan = _plan(kit, until=str(kit.gate()))
        await engine.launch(plan)
        await _until(engine, plan, Sight.ALIVE)
        (kit.directory(plan.attempt_id, "fake-0") / "exit.json").write_text("{torn")
        os.kill(await _pid(kit, plan), signal.SIGKILL)
        await hints.of(plan.attempt_id)
        seen = await engine.end(plan.attempt_id, "fake-0")
        assert seen.sight is Sight.ENDED
        assert seen.record is not None and seen.record["outcome"] == "lost"

    _run(kit, body)


def test_a_lock_kept_by_another_does_not_keep_an_attempt_from_its_end(kit: LocalKit) -> None:
    """R-F28: what holds the dead worker's lock is killed too, after half of the time."""
    keep = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2);"
        "print(flush=True); sys.stdin.read()"
    )

    async def body() -> None:
        engine = LocalEngine(kit.home, COMMAND, fake_nodes=3, end_seconds=6)
        hints = Hints()
        await engine.start(hints)
        plan = _plan(kit, until=str(kit.gate()))
        await engine.launch(plan)
        await _until(engine, plan, Sight.ALIVE)
        lock = kit.directory(plan.attempt_id, "fake-0") / "lock"
        os.kill(await _pid(kit, plan), signal.SIGKILL)
        await hints.of(plan.attempt_id)
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [sys.executable, "-c", keep, str(lock)], stdin=pipe, stdout=pipe
        ) as keeper:
            assert keeper.stdout is not None
            keeper.stdout.readline()
            [seen] = await engine.observe([(plan.attempt_id, "fake-0")])
            assert seen.sight is Sight.DEAD and str(keeper.pid) in seen.reason
            assert (await engine.end(plan.attempt_id, "fake-0")).sight is Sight.ENDED
            assert not Path(f"/proc/{keeper.pid}").exists()
        await engine.stop()

    asyncio.run(body())


def test_a_cancelled_launch_is_still_whole(kit: LocalKit) -> None:
    async def body(engine: LocalEngine, hints: Hints) -> None:
        plan = _plan(kit)
        task = asyncio.create_task(engine.launch(plan))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await engine.launch(plan)
        await hints.of(plan.attempt_id)
        [seen] = await engine.observe([(plan.attempt_id, "fake-0")])
        assert seen.sight is Sight.ENDED

    _run(kit, body)
