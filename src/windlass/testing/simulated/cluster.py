"""Nodes, workers and the engine that servers see them through.

The cluster is other machines: it goes on whatever happens to a server. A worker keeps the
protocol as the real one does, over the same bad network as everyone; it dies as its fate says,
and then its ranks live on until somebody ends them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from windlass.core.errors import Conflict, Fenced, WindlassError
from windlass.core.resources import Node, Resources
from windlass.engines.base import LaunchFailed, LaunchPlan, Seen, Sight
from windlass.testing.simulated.evidence import Evidence, Interval
from windlass.testing.simulated.network import Lost
from windlass.testing.simulated.process import Process, outside

Place = tuple[str, str]


@dataclass(frozen=True)
class Fate:
    """What will become of one worker. Seconds; None: it does not happen."""

    boot: float = 0.3
    run: float = 6.0
    exit: int = 0
    obeys: float = 0.5
    """From an order to end to the end of its ranks."""
    deaf: bool = False
    """It never looks at its orders (stopped, or in a long call)."""
    dies: float | None = None
    """Killed, this long after its launch; its ranks are not."""
    saves: float | None = None
    """Between two checkpoints."""


class Calls(Protocol):
    """What a worker may call; every call may be lost (`Lost`)."""

    async def register(self, who: FakeWorker, seq: int) -> bool: ...
    async def rendezvous(self, who: FakeWorker) -> bool: ...
    async def started(self, who: FakeWorker, seq: int) -> None: ...
    async def beat(self, who: FakeWorker, seq: int) -> None: ...
    async def orders(self, who: FakeWorker) -> list[dict[str, Any]]: ...
    async def ended(self, who: FakeWorker, seq: int, record: dict[str, Any]) -> None: ...
    async def checkpoint(self, who: FakeWorker, step: int) -> None: ...


class FakeWorker:
    """One worker of an attempt on one node, with its ranks."""

    def __init__(self, cluster: Cluster, launch: dict[str, Any], fate: Fate) -> None:
        self.launch, self.fate = launch, fate
        self.attempt_id, self.attempt = str(launch["attempt_id"]), int(launch["attempt"])
        self.job_id, self.node = str(launch["job_id"]), str(launch["node"])
        self.locked = False
        self.gone = False
        self.record: dict[str, Any] | None = None
        self.interval: Interval | None = None
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._chance = cluster.chance
        self._seq = 0
        self._order: dict[str, Any] | None = None
        self._done = asyncio.Event()  # ranks ended, or an order came
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None
        self._death: asyncio.TimerHandle | None = None
        if fate.dies is not None:
            self._death = self._loop.call_later(fate.dies, self.die, "SIGKILL")
        self._tasks = [outside(self._life())]

    @property
    def running(self) -> bool:
        return self.interval is not None and self.interval.ended is None

    # From outside

    def die(self, why: str) -> None:
        """The worker alone is killed: no record, and its ranks go on."""
        if self.gone:
            return
        self._note(f"killed: {why}")
        self._leave()

    def end_by_force(self) -> None:
        """The engine ends all of it, and leaves a record if there was none."""
        if not self.gone:
            self._leave()
        self._stop_ranks("worker")
        if self.record is None:
            self.record = self._exit_record("lost", "ended by the engine")

    # Its own life

    async def _life(self) -> None:
        try:
            await asyncio.sleep(self.fate.boot)
            if self.record is not None:
                return self._leave()
            self.locked = True
            whole = await self._report(lambda seq: self._cluster.calls.register(self, seq))
            self._tasks.append(outside(self._listen()))
            while not whole and self._order is None:
                await asyncio.sleep(0.3 + self._chance.random())
                try:
                    whole = await self._cluster.calls.rendezvous(self)
                except (Lost, WindlassError) as err:
                    if isinstance(err, Fenced):
                        raise
            if self._order is None:
                await asyncio.sleep(self._chance.random() * 0.2)
            if self._order is None:
                self._start_ranks()
                await self._report(lambda seq: self._cluster.calls.started(self, seq))
            await self._watch()
        except Fenced as err:
            self._note(f"fenced: {err}")
            self._stop_ranks("worker")
            self.record = self.record or self._exit_record("lost", "fenced")
            return self._leave()
        self._note(f"record {self.record and self.record['outcome']}")
        try:
            async with asyncio.timeout(10):
                record: dict[str, Any] = self.record or {}
                await self._report(lambda seq: self._cluster.calls.ended(self, seq, record))
        except (TimeoutError, WindlassError):
            pass  # the record is on its disk
        self._leave()

    async def _watch(self) -> None:
        """Beats until the ranks end by themselves or as ordered; then the record."""
        while not self._done.is_set():
            try:
                async with asyncio.timeout(10):
                    await self._done.wait()
            except TimeoutError:
                await self._report(lambda seq: self._cluster.calls.beat(self, seq))
        if self._order is not None:
            if self.running:
                obeys = min(self.fate.obeys, self._order["grace_ms"] / 1000)
                await asyncio.sleep(obeys)
            self._stop_ranks("worker")
        ended_well = self.interval is not None and self.interval.exits and self.fate.exit == 0
        if self.interval is not None and self.interval.exits:
            outcome = "succeeded" if ended_well else "failed"
            self.record = self._exit_record(outcome, "")
        else:
            order = self._order or {}
            why = str(order.get("reason", ""))
            self.record = self._exit_record(str(order.get("outcome", "cancelled")), why)

    async def _listen(self) -> None:
        """Asks for orders now and then."""
        while self._order is None:
            await asyncio.sleep(0.5 + 3 * self._chance.random())
            if self.fate.deaf:
                continue
            try:
                for order in await self._cluster.calls.orders(self):
                    if order["kind"] == "end":
                        self._order = order
            except Fenced:
                self._order = {"kind": "end", "grace_ms": 0, "outcome": "lost"}
                self._note("fenced at its orders")
            except (Lost, WindlassError):
                continue
        self._done.set()

    async def _report(self, call: Callable[[int], Awaitable[Any]]) -> Any:
        """Repeats until the server takes it. Raises Fenced."""
        self._seq += 1
        seq, delay = self._seq, 0.2
        while True:
            try:
                return await call(seq)
            except Fenced:
                raise
            except (Lost, WindlassError):
                await asyncio.sleep(delay * (0.5 + self._chance.random()))
                delay = min(5.0, delay * 2)

    # Ranks

    def _start_ranks(self) -> None:
        members = self.launch["members"]
        gpus = tuple(gpu for member in members for gpu in member["gpu_ids"])
        self.interval = Interval(self.job_id, self.attempt, self.node, gpus, self._loop.time())
        self._cluster.evidence.intervals.append(self.interval)
        self._note("ranks start")
        self._timer = self._loop.call_later(self.fate.run, self._stop_ranks, "itself")
        if self.fate.saves is not None:
            self._saving = outside(self._save(self.fate.saves))

    def _stop_ranks(self, by: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.interval is not None and self.interval.ended is None:
            self.interval.ended = self._loop.time()
            if by == "itself":
                self.interval.exits = tuple(self.fate.exit for _ in self._ranks())
            self._note(f"ranks end by {by}")
        self._done.set()

    async def _save(self, every: float) -> None:
        """User code: it lives as long as the ranks, whatever becomes of the worker."""
        step = 0
        while True:
            await asyncio.sleep(every)
            if not self.running:
                return
            step += 10
            try:
                await self._cluster.calls.checkpoint(self, step)
            except (Lost, WindlassError):
                continue

    def _ranks(self) -> list[tuple[str, int, int]]:
        return [
            (member["role"], member["index"], local)
            for member in self.launch["members"]
            for local in range(member["nproc"])
        ]

    def _exit_record(self, outcome: str, reason: str) -> dict[str, Any]:
        began = self.interval.began if self.interval else 0.0
        itself = bool(self.interval and self.interval.exits)
        ranks = [
            {
                "role": role, "index": index, "local_rank": local, "rank": index,
                "exit": self.fate.exit if itself else None, "signal": None if itself else 15,
                "started_ms": int(began * 1000), "ended_ms": int(self._loop.time() * 1000),
                "ended_by": "itself" if itself else "worker",
            }
            for role, index, local in (self._ranks() if self.interval is not None else ())
        ]  # fmt: skip
        return {
            "api": 1, "attempt_id": self.attempt_id, "attempt": self.attempt, "node": self.node,
            "outcome": outcome, "reason": reason, "ranks": ranks, "survivors": [],
        }  # fmt: skip

    def _leave(self) -> None:
        self.gone, self.locked = True, False
        if self._death is not None:
            self._death.cancel()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        self._cluster.tell(self.attempt_id)

    def _note(self, what: str) -> None:
        self._cluster.evidence.note(
            f"worker {self.node}", f"{self.job_id[:4]}/{self.attempt} {what}"
        )


class Cluster:
    def __init__(
        self,
        nodes: dict[str, Resources],
        evidence: Evidence,
        chance: random.Random,
        fate: Callable[[dict[str, Any]], Fate],
        calls: Calls,
    ) -> None:
        self.evidence, self.chance, self.calls = evidence, chance, calls
        self.workers: dict[Place, FakeWorker] = {}
        self.launch_fails = 0.0
        self.end_fails = 0.0
        self._fate = fate
        self._boots = dict.fromkeys(nodes, 1)
        self._nodes = nodes
        self._watching: dict[Process, Callable[[str], None]] = {}

    def offers(self) -> list[Node]:
        return [
            Node(
                name=name, engine="local", capacity=capacity, boot_id=f"boot-{self._boots[name]}",
                gpu_ids=tuple(f"{name}-gpu{index}" for index in range(capacity.gpus)),
            )
            for name, capacity in self._nodes.items()
        ]  # fmt: skip

    def start(self, launch: dict[str, Any]) -> None:
        place = (str(launch["attempt_id"]), str(launch["node"]))
        if place not in self.workers:
            self.workers[place] = FakeWorker(self, launch, self._fate(launch))
            self.evidence.note(
                f"node {place[1]}", f"launch {launch['job_id'][:4]}/{launch['attempt']}"
            )

    def reboot(self, node: str) -> None:
        """Everything on it is gone at once, without a record."""
        self.evidence.note(f"node {node}", "reboots")
        self._boots[node] += 1
        for place, worker in self.workers.items():
            if place[1] == node and not (worker.gone and not worker.running):
                worker.die("reboot")
                worker._stop_ranks("worker")

    def watch(self, process: Process, hint: Callable[[str], None]) -> None:
        self._watching[process] = hint

    def tell(self, attempt_id: str) -> None:
        """Something about an attempt has changed: a hint, and hints get lost."""
        loop = asyncio.get_running_loop()
        for process, hint in list(self._watching.items()):
            if not process.alive:
                del self._watching[process]
            elif self.chance.random() < 0.9:
                process_hint = _while_alive(process, hint)
                loop.call_later(self.chance.random() * 0.1, process_hint, attempt_id)


def _while_alive(process: Process, hint: Callable[[str], None]) -> Callable[[str], None]:
    return lambda attempt_id: hint(attempt_id) if process.alive else None


class FakeEngine:
    """One server's engine. Before and after each effect is a point of that server."""

    name = "local"

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster = cluster
        self._process = process
        self._chance = cluster.chance

    async def start(self, hint: Callable[[str], None]) -> None:
        self._cluster.watch(self._process, hint)

    async def stop(self) -> None:
        """What runs goes on."""

    def facts(self) -> dict[str, Any]:
        return {}

    async def check(self) -> list[tuple[str, bool, str]]:
        return []

    async def nodes(self) -> list[Node]:
        return self._cluster.offers()

    async def launch(self, plan: LaunchPlan) -> None:
        for worker in plan.nodes:
            await self._process.point("before-launch")
            if self._chance.random() < self._cluster.launch_fails:
                raise LaunchFailed("no more processes", transient=True)
            self._cluster.start(worker.launch)
        await self._process.point("after-launch")

    async def observe(self, wanted: Sequence[Place]) -> list[Seen]:
        await self._process.point("read")
        return [self._see(place) for place in wanted]

    async def present(self) -> list[Place]:
        await self._process.point("read")
        return list(self._cluster.workers)

    async def end(self, attempt_id: str, node: str) -> Seen:
        await self._process.point("before-end")
        worker = self._cluster.workers.get((attempt_id, node))
        if worker is not None and self._chance.random() >= self._cluster.end_fails:
            worker.end_by_force()
        await self._process.point("after-end")
        return self._see((attempt_id, node))

    async def forget(self, attempt_id: str) -> None:
        await self._process.point("before-forget")
        for place in [place for place in self._cluster.workers if place[0] == attempt_id]:
            worker = self._cluster.workers[place]
            if not worker.gone or worker.running:
                raise Conflict(f"attempt {attempt_id} runs on {place[1]}")
            del self._cluster.workers[place]

    def _see(self, place: Place) -> Seen:
        worker = self._cluster.workers.get(place)
        if worker is None:
            return Seen(*place, Sight.ABSENT)
        if not worker.gone:
            return Seen(*place, Sight.ALIVE if worker.locked else Sight.STARTING)
        if worker.record is not None:
            return Seen(*place, Sight.ENDED, worker.record)
        return Seen(*place, Sight.DEAD, reason="its worker died and left no record")
