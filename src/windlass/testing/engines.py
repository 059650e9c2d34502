"""The contract that every engine passes.

To run it on an engine, subclass and give the fixture:

    class TestMyEngine(EngineContract):
        @pytest.fixture
        def engine_kit(self, tmp_path): ...  # yields an `EngineKit`

The engine must start `windlass/testing/stub_worker.py`. No engine is let off a test: all of them
together are tests times engines, which `windlass.testing.contract_table` prints and holds us to.
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from windlass.core.errors import Conflict, InvalidInput
from windlass.engines.base import Engine, LaunchFailed, LaunchPlan, NodeLaunch, Seen, Sight

STUB_WORKER = Path(__file__).with_name("stub_worker.py")
DEADLINE_SECONDS = 60.0
Suite = TypeVar("Suite")


class EngineKit(Protocol):
    """What the suite needs beside the engine itself."""

    nodes: tuple[str, ...]  # at least two of the names that `Engine.nodes` gives
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None

    def engine(self) -> Engine:
        """A new engine, not started, over the same state as those before."""

    def gate(self) -> Path:
        """A FIFO that workers can wait at."""

    def worker_pid(self, attempt_id: str, node: str) -> int | None:
        """The live worker's pid, once it is known."""

    def marks(self, attempt_id: str, node: str) -> dict[str, str]:
        """The environment by which a rank, and all that comes of it, is known for the worker's."""

    def launch(self, attempt_id: str, node: str) -> dict[str, Any]:
        """What `launch.json` must hold for its worker."""


class Hints:
    """Collects an engine's hints and lets a test wait for one."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._news = asyncio.Event()

    def __call__(self, attempt_id: str) -> None:
        self.heard.append(attempt_id)
        self._news.set()

    async def of(self, attempt_id: str) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while attempt_id not in self.heard:
                self._news.clear()
                await self._news.wait()


def on_a_loop(
    test: Callable[[Suite, EngineKit], Awaitable[None]],
) -> Callable[[Suite, EngineKit], None]:
    """Run an async test with the kit's event loop."""

    @functools.wraps(test)
    def run(self: Suite, engine_kit: EngineKit) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(2 * DEADLINE_SECONDS):
                await test(self, engine_kit)

        with asyncio.Runner(loop_factory=engine_kit.loop_factory) as runner:
            runner.run(bounded())

    return run


class WorkerContract:
    """What holds with any worker, also with the real one, which lives until it is killed."""

    @on_a_loop
    async def test_it_offers_nodes_under_its_own_name(self, engine_kit: EngineKit) -> None:
        async with Running(engine_kit) as (engine, _):
            nodes = await engine.nodes()
        assert set(engine_kit.nodes) <= {node.name for node in nodes}
        assert {node.engine for node in nodes} == {engine.name}
        assert all(node.capacity.slots >= 4 for node in nodes)

    @on_a_loop
    async def test_what_was_never_launched_is_absent(self, engine_kit: EngineKit) -> None:
        async with Running(engine_kit) as (engine, _):
            attempt_id = secrets.token_hex(16)
            assert await sight_of(engine, attempt_id, engine_kit.nodes[0]) is Sight.ABSENT
            assert (await engine.end(attempt_id, engine_kit.nodes[0])).sight is Sight.ABSENT
            await engine.forget(attempt_id)

    @on_a_loop
    async def test_launch_again_starts_nothing(self, engine_kit: EngineKit) -> None:
        async with Running(engine_kit) as (engine, _):
            plan = plan_of(engine_kit, until=str(engine_kit.gate()))
            await engine.launch(plan)
            await until(engine, plan, Sight.ALIVE)
            pid = await _pid(engine_kit, plan.attempt_id, plan.nodes[0].node)
            await engine.launch(plan)
            assert engine_kit.worker_pid(plan.attempt_id, plan.nodes[0].node) == pid
            assert _workers_of(plan.attempt_id) == {pid}
            await end_all(engine, plan)

    @on_a_loop
    async def test_ten_launches_at_once_start_one_worker(self, engine_kit: EngineKit) -> None:
        async with Running(engine_kit) as (engine, _):
            plan = plan_of(engine_kit, until=str(engine_kit.gate()))
            await asyncio.gather(*(engine.launch(plan) for _ in range(10)))
            await until(engine, plan, Sight.ALIVE)
            assert len(_workers_of(plan.attempt_id)) == 1
            await end_all(engine, plan)

    @on_a_loop
    async def test_two_engines_launching_at_once_leave_one_worker(
        self, engine_kit: EngineKit
    ) -> None:
        async with Running(engine_kit) as (one, _), Running(engine_kit) as (other, _):
            plan = plan_of(engine_kit, until=str(engine_kit.gate()))
            await asyncio.gather(one.launch(plan), other.launch(plan))
            await until(one, plan, Sight.ALIVE)
            await _until_true(lambda: len(_workers_of(plan.attempt_id)) == 1)
            await end_all(one, plan)

    @on_a_loop
    async def test_launch_after_the_end_starts_nothing(self, engine_kit: EngineKit) -> None:
        async with Running(engine_kit) as (engine, _):
            plan = plan_of(engine_kit, until=str(engine_kit.gate()))
            await engine.launch(plan)
            await until(engine, plan, Sight.ALIVE)
            await end_all(engine, plan)
            await engine.launch(plan)
            assert await sight_of(engine, plan.attempt_id, plan.nodes[0].node) is Sight.ENDED
            assert _workers_of(plan.attempt_id) == set()

    @on_a_loop
    async def test_a_gang_gets_a_worker_on_each_of_its_nodes(self, engine_kit: EngineKit) -> None:
        async with Running(engine_kit) as (engine, _):
            plan = plan_of(engine_kit, nodes=2, until=str(engine_kit.gate()))
            await engine.launch(plan)
            await until(engine, plan, Sight.ALIVE)
            assert len(_workers_of(plan.attempt_id)) == 2
            await end_all(engine, plan)

    @on_a_loop
    async def test_a_node_it_does_not_have_is_refused_for_good(
        self, engine_kit: EngineKit
    ) -> None:
        async with Running(engine_kit) as (engine, _):
            attempt_id = secrets.token_hex(16)
            worker = NodeLaunch("no-such-node", {}, "token")
            with pytest.raises(LaunchFailed, match="no-such-node") as caught:
                await engine.launch(LaunchPlan("0" * 32, attempt_id, 1, (worker,)))
            assert not caught.value.transient

    @on_a_loop
    async def test_a_killed_worker_is_dead_by_a_hint(self, engine_kit: EngineKit) -> None:
        """R-F7. The test observes only after the hint: nobody has to poll."""
        async with Running(engine_kit) as (engine, hints):
            plan = plan_of(engine_kit, until=str(engine_kit.gate()))
            node = plan.nodes[0].node
            await engine.launch(plan)
            await until(engine, plan, Sight.ALIVE)
            hints.heard.clear()
            await kill(engine_kit, plan.attempt_id, node)
            await hints.of(plan.attempt_id)
            [seen] = await engine.observe([(plan.attempt_id, node)])
            assert seen.sight is Sight.DEAD and seen.reason
            after = await engine.end(plan.attempt_id, node)
            assert after.sight is Sight.ENDED
            assert after.record is not None and after.record["outcome"] == "lost"

    @on_a_loop
    async def test_a_new_engine_adopts_what_runs(self, engine_kit: EngineKit) -> None:
        """R-F4: the old engine is gone, the worker is not, and its death is still heard."""
        async with Running(engine_kit) as (engine, _):
            plan = plan_of(engine_kit, until=str(engine_kit.gate()))
            await engine.launch(plan)
            await until(engine, plan, Sight.ALIVE)
        node = plan.nodes[0].node
        pid = await _pid(engine_kit, plan.attempt_id, node)
        async with Running(engine_kit) as (engine, hints):
            assert await sight_of(engine, plan.attempt_id, node) is Sight.ALIVE
            assert engine_kit.worker_pid(plan.attempt_id, node) == pid
            await kill(engine_kit, plan.attempt_id, node)
            await hints.of(plan.attempt_id)
            assert await sight_of(engine, plan.attempt_id, node) is Sight.DEAD
            await end_all(engine, plan)

    @on_a_loop
    async def test_end_leaves_nothing_not_even_what_escaped(self, engine_kit: EngineKit) -> None:
        """R-F28, R-I4: a process in its own session, orphaned, with the mark of its worker. What
        belongs to the gang's other node, here on the same machine, is not touched."""
        async with Running(engine_kit) as (engine, _):
            plan = plan_of(engine_kit, nodes=2, until=str(engine_kit.gate()))
            await engine.launch(plan)
            await until(engine, plan, Sight.ALIVE)
            one, other = [
                await _leave_escapee(engine_kit.marks(plan.attempt_id, worker.node))
                for worker in plan.nodes
            ]
            try:
                seen = await engine.end(plan.attempt_id, plan.nodes[0].node)
                assert seen.sight is Sight.ENDED
                assert seen.record is not None and seen.record["survivors"] == []
                assert not _runs(one) and _runs(other)
                assert await sight_of(engine, plan.attempt_id, plan.nodes[1].node) is Sight.ALIVE
                await engine.end(plan.attempt_id, plan.nodes[1].node)
                assert not _runs(other)
                assert _workers_of(plan.attempt_id) == set()
            finally:
                for escapee in filter(_runs, (one, other)):
                    os.kill(escapee, signal.SIGKILL)

    @on_a_loop
    async def test_end_again_answers_the_same(self, engine_kit: EngineKit) -> None:
        async with Running(engine_kit) as (engine, _):
            plan = plan_of(engine_kit, until=str(engine_kit.gate()))
            await engine.launch(plan)
            first = await end_all(engine, plan)
            assert await end_all(engine, plan) == first

    @on_a_loop
    async def test_present_lists_strays_and_forget_removes_them(
        self, engine_kit: EngineKit
    ) -> None:
        async with Running(engine_kit) as (engine, _):
            plan = plan_of(engine_kit, until=str(engine_kit.gate()))
            place = (plan.attempt_id, plan.nodes[0].node)
            await engine.launch(plan)
        async with Running(engine_kit) as (engine, _):
            assert place in await engine.present()
            with pytest.raises(Conflict):
                await engine.forget(plan.attempt_id)
            await end_all(engine, plan)
            await engine.forget(plan.attempt_id)
            assert place not in await engine.present()
            assert await sight_of(engine, *place) is Sight.ABSENT
            await engine.forget(plan.attempt_id)

    @on_a_loop
    async def test_names_that_are_paths_are_refused(self, engine_kit: EngineKit) -> None:
        async with Running(engine_kit) as (engine, _):
            for name in ("..", "../x", "", "a/b", "A" * 32, "0" * 31, "0" * 33 + "\n"):
                with pytest.raises(InvalidInput):
                    await engine.forget(name)
                with pytest.raises(InvalidInput):
                    await engine.observe([(name, engine_kit.nodes[0])])
            for node in ("..", ".", "a/b", "", "-x", "x\n"):
                with pytest.raises(InvalidInput):
                    await engine.end("0" * 32, node)

    @on_a_loop
    async def test_twenty_attempts_at_once(self, engine_kit: EngineKit) -> None:
        """R-F4's number: twenty run, the engine is replaced, all twenty are known and end."""
        plans = [plan_of(engine_kit, until=str(engine_kit.gate())) for _ in range(20)]
        async with Running(engine_kit) as (engine, _):
            await asyncio.gather(*(engine.launch(plan) for plan in plans))
            for plan in plans:
                await until(engine, plan, Sight.ALIVE)
        async with Running(engine_kit) as (engine, hints):
            places = [(plan.attempt_id, plan.nodes[0].node) for plan in plans]
            assert {seen.sight for seen in await engine.observe(places)} == {Sight.ALIVE}
            for place in places:
                await kill(engine_kit, *place)
            for place in places:
                await hints.of(place[0])
            assert {seen.sight for seen in await engine.observe(places)} == {Sight.DEAD}
            ended = await asyncio.gather(*(engine.end(*place) for place in places))
            assert {seen.sight for seen in ended} == {Sight.ENDED}


class EngineContract(WorkerContract):
    """The whole: the worker is the stub, which waits at gates and ends as it is told."""

    @on_a_loop
    async def test_a_worker_is_seen_starting_then_alive_then_ended(
        self, engine_kit: EngineKit
    ) -> None:
        async with Running(engine_kit) as (engine, hints):
            begin, finish = engine_kit.gate(), engine_kit.gate()
            plan = plan_of(engine_kit, before_lock=str(begin), until=str(finish), outcome="failed")
            node = plan.nodes[0].node
            await engine.launch(plan)
            assert await sight_of(engine, plan.attempt_id, node) is Sight.STARTING
            await open_gate(begin)
            await until(engine, plan, Sight.ALIVE)
            await open_gate(finish)
            await hints.of(plan.attempt_id)
            [seen] = await engine.observe([(plan.attempt_id, node)])
            assert seen.sight is Sight.ENDED
            assert seen.record is not None and seen.record["outcome"] == "failed"

    @on_a_loop
    async def test_a_worker_that_dies_before_its_lock_is_dead_at_once(
        self, engine_kit: EngineKit
    ) -> None:
        async with Running(engine_kit) as (engine, hints):
            # The stub fails on a gate that is not there.
            plan = plan_of(engine_kit, before_lock="/nonexistent/gate")
            await engine.launch(plan)
            await hints.of(plan.attempt_id)
            [seen] = await engine.observe([(plan.attempt_id, plan.nodes[0].node)])
            assert seen.sight is Sight.DEAD
            assert "No such file" in seen.reason
            await end_all(engine, plan)

    @on_a_loop
    async def test_a_worker_that_comes_after_it_was_given_up_leaves(
        self, engine_kit: EngineKit
    ) -> None:
        """R-I2: an attempt that `end` declared over never runs."""
        async with Running(engine_kit) as (engine, _):
            begin = engine_kit.gate()
            plan = plan_of(engine_kit, before_lock=str(begin), until=str(engine_kit.gate()))
            await engine.launch(plan)
            assert (await end_all(engine, plan))[0].sight is Sight.ENDED
            assert _workers_of(plan.attempt_id) == set()

    @on_a_loop
    async def test_a_new_engine_adopts_a_worker_that_was_still_starting(
        self, engine_kit: EngineKit
    ) -> None:
        begin = engine_kit.gate()
        plan = plan_of(engine_kit, before_lock=str(begin))
        async with Running(engine_kit) as (engine, _):
            await engine.launch(plan)
        async with Running(engine_kit) as (engine, hints):
            assert await sight_of(engine, plan.attempt_id, plan.nodes[0].node) is Sight.STARTING
            await engine.launch(plan)
            await open_gate(begin)
            await hints.of(plan.attempt_id)
            assert await sight_of(engine, plan.attempt_id, plan.nodes[0].node) is Sight.ENDED

    @on_a_loop
    async def test_the_record_of_one_that_ended_meanwhile_is_known(
        self, engine_kit: EngineKit
    ) -> None:
        async with Running(engine_kit) as (engine, _):
            finish = engine_kit.gate()
            plan = plan_of(engine_kit, until=str(finish), outcome="oom")
            await engine.launch(plan)
            await until(engine, plan, Sight.ALIVE)
        pid = await _pid(engine_kit, plan.attempt_id, plan.nodes[0].node)
        await open_gate(finish)
        await _until_true(lambda: pid not in _workers_of(plan.attempt_id))
        async with Running(engine_kit) as (engine, _):
            await until(engine, plan, Sight.ENDED)  # its process is gone before its system says so
            [seen] = await engine.observe([(plan.attempt_id, plan.nodes[0].node)])
            assert seen.record is not None and seen.record["outcome"] == "oom"


class Running:
    """A started engine and its hints; stopped at the end."""

    def __init__(self, kit: EngineKit) -> None:
        self._engine = kit.engine()
        self._hints = Hints()

    async def __aenter__(self) -> tuple[Engine, Hints]:
        await self._engine.start(self._hints)
        return self._engine, self._hints

    async def __aexit__(self, *_: object) -> None:
        await self._engine.stop()


async def open_gate(gate: Path) -> None:
    """Let who waits at this FIFO go on."""

    def opened() -> bool:
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    await _until_true(opened)


def plan_of(kit: EngineKit, *, nodes: int = 1, **stub: Any) -> LaunchPlan:
    attempt_id = secrets.token_hex(16)
    workers = tuple(
        NodeLaunch(node, {**kit.launch(attempt_id, node), "stub": stub}, secrets.token_hex(16))
        for node in kit.nodes[:nodes]
    )
    return LaunchPlan(secrets.token_hex(16), attempt_id, 1, workers)


async def sight_of(engine: Engine, attempt_id: str, node: str) -> Sight:
    [seen] = await engine.observe([(attempt_id, node)])
    return seen.sight


async def until(engine: Engine, plan: LaunchPlan, sight: Sight) -> None:
    places = [(plan.attempt_id, worker.node) for worker in plan.nodes]
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        seen = await engine.observe(places)
        if all(one.sight is sight for one in seen):
            return
        assert time.monotonic() < deadline, f"not all {sight}: {seen}"
        await asyncio.sleep(0.01)


async def _until_true(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


async def end_all(engine: Engine, plan: LaunchPlan) -> list[Seen]:
    return [await engine.end(plan.attempt_id, worker.node) for worker in plan.nodes]


async def _leave_escapee(marks: dict[str, str]) -> int:
    """A grandchild in its own session, adopted by init, that carries a worker's marks."""
    script = (
        "import os, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "print(os.getpid(), flush=True)\n"
        "os.close(1)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, **marks}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-I", "-S", "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return int(done.stdout)


async def kill(kit: EngineKit, attempt_id: str, node: str) -> None:
    os.kill(await _pid(kit, attempt_id, node), signal.SIGKILL)


async def _pid(kit: EngineKit, attempt_id: str, node: str) -> int:
    """A worker is alive from its lock on, and says its pid a moment later."""
    await _until_true(lambda: kit.worker_pid(attempt_id, node) is not None)
    pid = kit.worker_pid(attempt_id, node)
    assert pid is not None
    return pid


def _workers_of(attempt_id: str) -> set[int]:
    """Pids of live processes of Python that were started with the attempt's directory as an
    argument; an engine's own programs that name it (srun) are no workers."""
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (
                attempt_id.encode() in (entry / "cmdline").read_bytes()
                and "python" in os.readlink(entry / "exe").rpartition("/")[2]
            ):
                found.add(int(entry.name))
        except OSError:
            continue
    return {pid for pid in found if _runs(pid)}


def _runs(pid: int) -> bool:
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return line.rpartition(b")")[2].split()[0] not in (b"Z", b"X")
