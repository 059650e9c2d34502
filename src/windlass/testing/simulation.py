"""The whole control plane in one process, in virtual time, from one seed.

The real admit, reconcile, leases, feed and the transactions of the API run over an SQLite
database in memory; engines, workers, users and the network between them are ours. A server may
die at every point where it waits for the world (before and after each commit, around each effect
on an engine) and comes back over what was committed; the cluster and the users go on meanwhile.

    simulate(plan)                    one run; its violations, its points, its history
    simulate(plan, crash_at=k)        the same run, the server killed at point k

    python -m windlass.testing.simulation storm --seed 17          replays a failing seed
    python -m windlass.testing.simulation gang --crash-at 41       replays a crash

It cannot show what real processes, disks, kernels or PostgreSQL do: `tests/faults` is for those.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch
from uuid import UUID

from windlass.core.errors import Conflict, NotFound, WindlassError
from windlass.core.jobs import TERMINAL
from windlass.server.jobs import service
from windlass.testing.simulated import loop as loops
from windlass.testing.simulated.checkers import AT_THE_END, Capacity
from windlass.testing.simulated.cluster import Cluster, FakeWorker
from windlass.testing.simulated.disk import Disk, ProcessStore
from windlass.testing.simulated.evidence import Evidence
from windlass.testing.simulated.metering import Books
from windlass.testing.simulated.network import LATEST, Lost, Network
from windlass.testing.simulated.plans import SCENARIOS, JobPlan, Plan, storm
from windlass.testing.simulated.process import Points, Process, belonging
from windlass.testing.simulated.server import Server

SETTLE = 11.0
"""Seconds after the last job's end: then nothing of any job may be left."""


@dataclass(frozen=True)
class Result:
    plan: Plan
    crash_at: int | None
    violations: list[str]
    points: list[str]
    evidence: Evidence
    final: dict[str, str]
    """Each job's name and the state it ended in; a removed job is not there."""
    ledger: list[dict[str, Any]]

    @property
    def command(self) -> str:
        words = [f"python -m windlass.testing.simulation {self.plan.name}"]
        if self.plan.name == "storm":
            words.append(f"--seed {self.plan.seed} --servers {self.plan.servers}")
        if self.crash_at is not None:
            words.append(f"--crash-at {self.crash_at}")
        return " ".join(words)

    def explain(self, last: int = 200) -> str:
        return "\n".join(
            [*self.violations[:20], "", f"replay: {self.command}", "", self.evidence.story(last)]
        )


def simulate(plan: Plan, *, crash_at: int | None = None) -> Result:
    """One run, from an empty database to rest."""
    loop = loops.VirtualLoop()
    loop.set_task_factory(belonging)  # type: ignore[arg-type]  # typeshed wants Future-like
    evidence = Evidence(at=loop.time)
    collecting = gc.isenabled()
    gc.disable()  # a run is short and makes much garbage: collected once, after it
    try:
        return _simulate(plan, loop, evidence, crash_at)
    finally:
        if collecting:
            gc.enable()


def _simulate(
    plan: Plan, loop: loops.VirtualLoop, evidence: Evidence, crash_at: int | None
) -> Result:
    with _determined(plan.seed), _errors_noted(evidence):
        world = _World(plan, loop, evidence)
        world.points.crash_at = crash_at
        loops.run(world.live(), loop)
    violations = [*evidence.problems]
    for checker in AT_THE_END:
        violations += checker(world.disk, evidence, world.cluster)
    violations += world.books.wrong()
    final = {row["name"]: row["state"] for row in world.disk.rows("SELECT name, state FROM jobs")}
    ledger = world.disk.rows("SELECT * FROM ledger ORDER BY id")
    return Result(plan, crash_at, violations, world.points.kinds, evidence, final, ledger)


class _World:
    def __init__(self, plan: Plan, loop: loops.VirtualLoop, evidence: Evidence) -> None:
        self.plan, self.evidence = plan, evidence
        self.points = Points()
        self.disk = _disk()
        self.clock = loops.VirtualClock(loop)
        self.disk.fresh(self.clock)
        self._loop = loop
        self._chance = random.Random(f"world {plan.name} {plan.seed}")
        self._healed = False
        self._weather = replace(plan.weather)
        self._servers: list[Server] = []
        self._generation = 0
        self._capacity = Capacity(self.disk, plan.nodes)
        self.books = Books(self.disk)
        self._attempts = 0
        self._network: Network[Server] = Network(
            lambda: self._servers,
            self._weather,
            random.Random(f"network {plan.name} {plan.seed}"),
            self._broken,
        )
        self.cluster = Cluster(
            plan.nodes,
            evidence,
            random.Random(f"cluster {plan.name} {plan.seed}"),
            plan.fate,
            _Calls(self._network),
        )
        self.cluster.launch_fails, self.cluster.end_fails = plan.launch_fails, plan.end_fails

    async def live(self) -> None:
        for _ in range(self.plan.servers):
            self._start_server()
        users = [self._loop.create_task(self._user(job)) for job in self.plan.jobs]
        others = [self._loop.create_task(self._follow()), self._loop.create_task(self._operate())]
        for at, node in self.plan.reboots:
            self._loop.call_later(at, self.cluster.reboot, node)
        if self.plan.crash_every is not None:
            others.append(self._loop.create_task(self._crash(self.plan.crash_every)))
        if self.plan.stop_every is not None and self.plan.servers > 1:
            others.append(self._loop.create_task(self._stop(self.plan.stop_every)))
        await asyncio.sleep(self.plan.heals_at)
        self._heal()
        end = self._loop.time() + self.plan.patience
        while self._loop.time() < end:
            if all(user.done() for user in users) and not self._unfinished() and self._quiet():
                break
            await asyncio.sleep(1)
        await asyncio.sleep(SETTLE)
        for user in users:
            if not user.done():
                self.evidence.problems.append("R-I7 a user never got an answer")
                user.cancel()
            elif user.exception() is not None:
                raise user.exception() or AssertionError
        for other in others:
            other.cancel()

    def _heal(self) -> None:
        """From here on nothing fails any more."""
        self.evidence.note("world", "heals")
        self._healed = True
        self._weather.calm()
        self.cluster.launch_fails = self.cluster.end_fails = 0.0
        for server in self._servers:
            server.process.go_on()

    def _unfinished(self) -> bool:
        return any(
            row["state"] not in TERMINAL for row in self.disk.rows("SELECT state FROM jobs")
        )

    def _quiet(self) -> bool:
        """A key lives as long as its job: a submit that was on its way for longer than its job
        makes it anew. So where jobs were removed, the last message is waited for."""
        return not self.evidence.removed or self._loop.time() > self.plan.heals_at + LATEST + 1

    # Servers

    def _start_server(self) -> None:
        self._generation += 1
        process = Process(
            f"server-{self._generation}",
            self.points,
            self._chance,
            slow=self.plan.slow,
            died=self._server_died,
        )
        store = ProcessStore(
            self.disk,
            process,
            self._chance,
            away=lambda: 0.0 if self._healed else self.plan.away,
            committed=self._committed,
        )
        server = Server(
            process,
            self.disk,
            store,
            self.cluster,
            self.clock,
            self.evidence,
            self._chance,
            alone=self.plan.servers == 1,
            new_attempt=self._new_attempt,
        )
        self._servers.append(server)
        self.evidence.note(process.name, "starts")
        server.start()

    def _server_died(self, process: Process, where: str) -> None:
        self.evidence.note(process.name, f"killed {where}")
        self._servers = [server for server in self._servers if server.process is not process]
        self._loop.call_later(0.2 + self._chance.random() * 2, self._start_server)

    async def _crash(self, every: float) -> None:
        while not self._healed:
            await asyncio.sleep(self._chance.expovariate(1 / every))
            if self._servers and not self._healed:
                self._chance.choice(self._servers).process.crash("by chance")

    async def _stop(self, every: float) -> None:
        """The leader most of all: it wakes up believing that it still leads."""
        while not self._healed:
            await asyncio.sleep(self._chance.expovariate(1 / every))
            leading = [server for server in self._servers if server.leadership.epoch is not None]
            if leading and not self._healed:
                process = self._chance.choice(leading).process
                self.evidence.note(process.name, "stopped")
                process.stop()
                await asyncio.sleep(self._chance.uniform(1, 40))
                self.evidence.note(process.name, "wakes up")
                process.go_on()

    def _committed(self, process: Process) -> None:
        self.books.look()
        for problem in self._capacity.exceeded():
            self.evidence.note(process.name, problem)
            self.evidence.problems.append(problem)

    def _new_attempt(self) -> dict[str, Any]:
        self._attempts += 1
        name = f"{self._attempts:032x}"
        return {
            "id": name,
            "worker_hash": "w" + name,
            "run_hash": "r" + name,
            "tokens": b"",
            "kek": "",
        }

    def _broken(self, error: BaseException) -> None:
        self.evidence.problems.append(f"R-I0 a handler failed: {error!r}")

    # Users

    async def _user(self, plan: JobPlan) -> None:
        await asyncio.sleep(plan.at)
        self.evidence.keys.add(plan.key)
        while True:
            try:
                job_id = await self._network.call(
                    lambda server: server.submit(plan.spec, plan.key)
                )
                break
            except (Lost, WindlassError) as err:
                self.evidence.note(f"user {plan.key}", f"submits again: {err!r}")
                await asyncio.sleep(self._chance.random() * 2)
        self.evidence.submits.append((plan.key, job_id))
        self.evidence.note(f"user {plan.key}", f"has {job_id[:4]}")
        accepted = self._loop.time()
        for wish in sorted(plan.wishes, key=lambda wish: wish.after):
            await asyncio.sleep(max(0.0, accepted + wish.after - self._loop.time()))
            if wish.what == "remove":
                return await self._remove(plan.key, job_id)
            await self._wish(plan.key, job_id, wish.what, wish.at_once)

    async def _wish(self, who: str, job_id: str, what: str, at_once: bool) -> None:
        self.evidence.note(f"user {who}", what + (" now" if at_once else ""))
        while True:
            try:
                return await self._network.call(lambda server: server.wish(job_id, what, at_once))
            except (Conflict, NotFound):
                return
            except (Lost, WindlassError):
                await asyncio.sleep(1)

    async def _remove(self, who: str, job_id: str) -> None:
        while True:
            try:
                self.evidence.removed.add(job_id)  # from now on it may be gone
                await self._network.call(lambda server: server.remove(job_id))
                self.evidence.note(f"user {who}", "removed it")
                return
            except NotFound:
                return
            except (Lost, WindlassError):
                await asyncio.sleep(0.5)

    async def _operate(self) -> None:
        """The operator releases what was quarantined, once things are well again."""
        while True:
            await asyncio.sleep(10)
            if self._healed:
                for row in self.disk.rows("SELECT id, name FROM jobs WHERE state = 'held'"):
                    await self._wish(row["name"], row["id"], "release", False)

    async def _follow(self) -> None:
        """A dashboard: follows the feed over connections that break, with its own cursor."""
        cursor = 0
        while True:
            await asyncio.sleep(0.1)
            up = [server for server in self._servers if server.up]
            if not up:
                continue
            connection = _Connection(self.evidence, cursor)
            stream = self._chance.choice(up)
            task = stream.process.spawn(stream.follow(cursor, connection.got))
            try:
                limit = 3600.0 if self._healed else self._chance.uniform(1, 20)
                await asyncio.wait((task,), timeout=limit)
            finally:
                connection.open = False
                task.cancel()
            cursor = connection.cursor


class _Connection:
    def __init__(self, evidence: Evidence, cursor: int) -> None:
        self._evidence = evidence
        self.cursor = cursor
        self.open = True

    def got(self, row: Any) -> None:
        if self.open:
            self._evidence.followed.append((row.position, row.job_id, row.seq))
            what = f"{(row.job_id or 'node')[:4]} {row.seq} {row.kind} {row.data} {row.reason}"
            self._evidence.note("feed", what)
            self.cursor = row.position


class _Calls:
    """A worker's calls, over the network."""

    def __init__(self, network: Network[Server]) -> None:
        self._network = network

    async def register(self, who: FakeWorker, seq: int) -> bool:
        return await self._network.call(lambda server: server.register(who, seq))

    async def rendezvous(self, who: FakeWorker) -> bool:
        return await self._network.call(lambda server: server.rendezvous(who))

    async def started(self, who: FakeWorker, seq: int) -> None:
        return await self._network.call(lambda server: server.started(who, seq))

    async def beat(self, who: FakeWorker, seq: int) -> None:
        return await self._network.call(lambda server: server.beat(who, seq))

    async def orders(self, who: FakeWorker) -> list[dict[str, Any]]:
        return await self._network.call(lambda server: server.orders(who))

    async def ended(self, who: FakeWorker, seq: int, record: dict[str, Any]) -> None:
        return await self._network.call(lambda server: server.ended(who, seq, record))

    async def checkpoint(self, who: FakeWorker, step: int) -> None:
        return await self._network.call(lambda server: server.checkpoint(who, step))


@lru_cache(maxsize=1)
def _disk() -> Disk:
    return Disk()


@contextmanager
def _determined(seed: int) -> Iterator[None]:
    """Ids that would be random come from the seed."""
    draw = random.Random(f"ids {seed}")
    with patch.object(service, "uuid4", lambda: UUID(int=draw.getrandbits(128), version=4)):
        yield


@contextmanager
def _errors_noted(evidence: Evidence) -> Iterator[None]:
    """An error that a loop logs and survives is a violation here: nothing of ours may raise it."""

    class Noted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            evidence.note(record.name, record.getMessage())
            if record.exc_info:
                text = logging.Formatter().formatException(record.exc_info)
                evidence.problems.append(f"R-I0 {record.getMessage()}\n{text}")

    logger, handler = logging.getLogger("windlass"), Noted()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m windlass.testing.simulation")
    parser.add_argument("plan", choices=["storm", *SCENARIOS])
    parser.add_argument("--seed", type=int, default=0, help="of the (first) storm")
    parser.add_argument("--count", type=int, default=1, help="storms, one after the other")
    parser.add_argument("--servers", type=int, help="replicas; else drawn from the seed")
    parser.add_argument("--crash-at", type=int, help="kill the server at this point")
    parser.add_argument("--last", type=int, default=400, help="lines of history to show")
    asked = parser.parse_args(arguments)
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.count):
        plan = (
            storm(seed, servers=asked.servers)
            if asked.plan == "storm"
            else SCENARIOS[asked.plan]()
        )
        result = simulate(plan, crash_at=asked.crash_at)
        if result.violations or asked.count == 1:
            print(result.explain(asked.last))
        failed += bool(result.violations)
    print(f"{failed} of {asked.count} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
