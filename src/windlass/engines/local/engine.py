"""Workers as processes of this machine. They outlive the server; a new one adopts them.

    launch ──► attempts/<attempt id>/<node>/ laid down whole ──► process ──► pidfd watched
    start  ──► every directory read ──► live processes watched (adopted)
    death  ──► pidfd readable ──► hint(attempt id) ──► the caller observes ──► record, or DEAD
    end    ──► SIGKILL by pidfd ──► the worker's own `reap` ──► record

Nothing is remembered that the directories do not say, but which process is being watched.
Blocking work runs on two small pools, so that slow ends never hold up a look or a launch.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from windlass.core.errors import Conflict, InvalidInput, Unavailable
from windlass.core.resources import Node, Resources
from windlass.engines import directory as directories
from windlass.engines import needs, spawn
from windlass.engines.base import LaunchFailed, LaunchPlan, NodeLaunch, Seen, Sight
from windlass.engines.directory import Directory
from windlass.engines.local import gpus, inventory, room
from windlass.engines.local import isolation as isolations
from windlass.engines.local.evidence import Evidence, gather, running, see
from windlass.engines.local.watch import Watch
from windlass.engines.processes import Identity, holders, kill
from windlass.engines.turns import Turns

Result = TypeVar("Result")
Place = tuple[str, str]  # (attempt id, node)

_LOOK_AGAIN_SECONDS = 0.25


class LocalEngine:
    """`Engine` on one machine. All calls from one event loop; one instance per home at a time.

    `command` starts a worker when `run` and its directory are appended to it, and cleans up after
    one with `reap` and the directory (`spawn.worker_command` gives it for the zipapp).
    """

    def __init__(
        self,
        home: Path,
        command: Sequence[str],
        *,
        name: str = "local",
        fake_nodes: int = 0,
        fake_gpus: int = 0,
        isolation: str = "auto",
        uids: tuple[int, int] = isolations.UIDS,
        reserve: Resources | None = None,
        starting_seconds: float = 30,
        end_seconds: float = 20,
    ) -> None:
        self.name = name
        # Resolved now, once: the folder may be a link to a larger disk, nothing in it may be one.
        self._attempts = (Path(home).absolute() / "attempts").resolve()
        self._command = list(command)
        self._fake_nodes = fake_nodes
        self._fake_gpus = fake_gpus
        self._home = Path(home).absolute().resolve()
        self._policy = isolations.Policy(isolation, uids)
        self._able = isolations.Able()
        self._reserve = reserve
        self._starting_seconds = starting_seconds
        self._end_seconds = end_seconds
        self._machine: inventory.Machine | None = None
        self._quick = ThreadPoolExecutor(4, thread_name_prefix=f"engine-{name}")
        self._slow = ThreadPoolExecutor(4, thread_name_prefix=f"engine-{name}-end")
        self._turns = Turns[Place]()
        self._hint: Callable[[str], None] | None = None
        self._watch: Watch[Place] | None = None
        self._looking: set[asyncio.Task[Any]] = set()
        self._in_hand: set[asyncio.Task[Any]] = set()

    async def start(self, hint: Callable[[str], None]) -> None:
        """Adopt what runs, then watch. Returns when every live worker is watched. Raises
        InvalidInput when jobs are to be kept apart further than this machine can."""
        await self._look()
        self._policy.check(self._able)
        self._hint = hint
        self._watch = Watch(self._gone)
        for found, evidence in await self._in(self._quick, self._scan):
            self._adopt(found, evidence)

    async def stop(self) -> None:
        """What is in hand (a launch, an end: bounded) is finished first."""
        await asyncio.gather(*self._in_hand, return_exceptions=True)
        for task in self._looking:
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)
        if self._watch is not None:
            self._watch.close()
        self._watch = self._hint = None
        self._quick.shutdown(wait=False)
        self._slow.shutdown(wait=False)

    def facts(self) -> dict[str, Any]:
        return {}

    async def check(self) -> list[tuple[str, bool, str]]:
        """That a process can be started where the attempts lie, and which nodes there are."""
        said = await self._in(self._quick, lambda: spawn.try_out(self._command, self._attempts))
        nodes = ", ".join(node.name for node in await self.nodes())
        return [("worker", not said, said or "starts"), ("nodes", bool(nodes), nodes or "none")]

    async def nodes(self) -> list[Node]:
        machine = await self._look()
        return inventory.nodes_of(
            machine,
            engine=self.name,
            reserve=self._reserve,
            fake_nodes=self._fake_nodes,
            fake_gpus=self._fake_gpus,
            able=self._able,
        )

    async def _look(self) -> inventory.Machine:
        if self._machine is None:
            self._able = await self._in(self._quick, isolations.look)
            self._machine = await self._in(self._quick, inventory.look)
        return self._machine

    async def launch(self, plan: LaunchPlan) -> None:
        known = [node.name for node in await self.nodes()]
        for worker in plan.nodes:
            if worker.node not in known:
                raise LaunchFailed(
                    f"the engine {self.name} has no node {worker.node!r}, only {', '.join(known)}",
                    transient=False,
                )
        try:
            places = [
                (Directory(self._attempts, plan.attempt_id, worker.node), self._isolated(worker))
                for worker in plan.nodes
            ]
        except InvalidInput as err:
            raise LaunchFailed(str(err), transient=False) from err
        # Each is tried, so that the failure of one leaves the others in a known state.
        tried = await asyncio.gather(
            *(self._whole(self._launch_one(*place)) for place in places), return_exceptions=True
        )
        for result in tried:
            if isinstance(result, (OSError, MemoryError)) and (need := needs.of(result)):
                raise LaunchFailed(needs.sentence(need, result), need=need)
            if isinstance(result, BaseException):
                raise result

    async def observe(self, wanted: Sequence[Place]) -> list[Seen]:
        places = [Directory(self._attempts, *place) for place in wanted]
        try:
            return await self._in(
                self._quick, lambda: [see(place, self._starting_seconds)[0] for place in places]
            )
        except OSError as err:  # what cannot be looked at is not judged
            raise Unavailable(f"engine {self.name} cannot look at its workers: {err}") from err

    async def present(self) -> list[Place]:
        found = await self._in(
            self._quick, lambda: list(directories.every(self._attempts, self.name))
        )
        return [(place.attempt_id, place.node) for place in found]

    async def end(self, attempt_id: str, node: str) -> Seen:
        """As the protocol says. When the worker cannot be killed the answer is ALIVE, with a
        record that names it among the survivors: it must not be waited for, nor its node used."""
        try:
            return await self._whole(self._end_one(Directory(self._attempts, attempt_id, node)))
        except OSError as err:
            raise Unavailable(f"engine {self.name} cannot end a worker now: {err}") from err

    async def lacks(self, node: str) -> str:
        """Of the whole machine, which its nodes share."""
        try:
            return await self._in(self._quick, lambda: room.lacks(self._command, self._attempts))
        except OSError as err:
            return needs.sentence(needs.of(err) or "room", err)

    async def forget(self, attempt_id: str) -> None:
        """Raises Conflict while anything of it may run."""
        directories.check_attempt_id(attempt_id)
        await self._whole(self._forget_all(attempt_id))

    # launch

    def _isolated(self, worker: NodeLaunch) -> NodeLaunch:
        """The same with what only this machine knows of keeping the job apart."""
        devices: list[str] = []
        if self._machine is not None and not (self._fake_nodes or self._fake_gpus):
            ids = [each for m in worker.launch.get("members", ()) for each in m.get("gpu_ids", ())]
            devices = isolations.device_nodes(ids, gpus.minors(self._machine.gpus))
        asked = worker.launch.get("isolation") or {}
        told = self._policy.told(asked, self._able, self._home, devices)
        return replace(worker, launch={**worker.launch, "isolation": told})

    async def _launch_one(self, place: Directory, worker: NodeLaunch) -> None:
        async with self._turns.of((place.attempt_id, place.node)):
            started = await self._in(self._quick, lambda: self._start_once(place, worker))
            if started is None:
                return self._adopt(place, await self._in(self._quick, lambda: gather(place)))
            self._add_watch(place, started)
            # Only now: the intent stands in the database, the process exists, and a power cut
            # takes both the files and the process. The start need not wait for the disk.
            try:
                await self._in(self._quick, place.sync)
            except OSError as err:
                raise spawn.launch_failed(f"{place.path} cannot be synced", err) from err

    def _start_once(self, place: Directory, worker: NodeLaunch) -> Identity | None:
        """Start the worker unless it was started before. None: it was."""
        try:
            need, words = room.lacking(self._attempts)
            if need and not place.exists():
                raise LaunchFailed(needs.sentence(need, words), need=need)
            fresh = place.create(worker)
            if not fresh:
                if _was_started(gather(place)):
                    return None
                place.renew(worker)
            try:
                identity = spawn.spawn(self._command, place)
            except (LaunchFailed, OSError):
                if fresh:  # there never was a process, so nothing may look as if there were one
                    directories.remove_worker(place)
                raise
            place.mark_spawned(identity)
            return identity
        except OSError as err:
            raise spawn.launch_failed(f"{place.path} cannot be written", err) from err

    # watch

    def _scan(self) -> list[tuple[Directory, Evidence]]:
        self._attempts.mkdir(mode=0o700, parents=True, exist_ok=True)
        directories.sweep(self._attempts)
        return [(found, gather(found)) for found in directories.every(self._attempts, self.name)]

    def _adopt(self, place: Directory, evidence: Evidence) -> None:
        """Watch the process that the evidence names, or look again soon if it names none yet."""
        process = running(evidence)
        if process is not None:
            self._add_watch(place, process)
        elif evidence.locked or (evidence.record is None and not evidence.worker_file):
            self._keep(self._looking, self._look_again(place))

    async def _look_again(self, place: Directory) -> None:
        """For what no pidfd can tell: a start cut short by a crash, or a lock held by a process
        that cannot be named. Rare, and rarer with each turn."""
        for turn in itertools.count():
            await asyncio.sleep(min(_LOOK_AGAIN_SECONDS * 2 ** min(turn, 10), 5))
            try:
                seen, evidence = await self._in(
                    self._quick, lambda: see(place, self._starting_seconds)
                )
            except OSError:
                continue  # we could not look
            process = running(evidence)
            if process is not None:
                return self._add_watch(place, process)
            if seen.sight not in (Sight.STARTING, Sight.ALIVE):
                return self._tell(place.attempt_id)

    def _add_watch(self, place: Directory, process: Identity) -> None:
        if self._watch is not None:
            self._watch.add((place.attempt_id, place.node), process)

    def _gone(self, key: Place) -> None:
        self._tell(key[0])
        self._keep(self._looking, self._after(Directory(self._attempts, *key)))

    async def _after(self, place: Directory) -> None:
        """The process that died may have been a second start that left at once: then the true
        worker is watched instead."""
        with contextlib.suppress(OSError):  # we could not look: the next sweep does
            evidence = await self._in(self._quick, lambda: gather(place))
            if running(evidence) is not None:
                self._adopt(place, evidence)

    def _tell(self, attempt_id: str) -> None:
        if self._hint is not None:
            self._hint(attempt_id)

    # end

    async def _end_one(self, place: Directory) -> Seen:
        async with self._turns.of((place.attempt_id, place.node)):
            return await self._in(self._slow, lambda: self._end(place))

    def _end(self, place: Directory) -> Seen:
        seen, evidence = see(place, self._starting_seconds)
        if seen.sight is Sight.ABSENT:
            return seen
        if seen.sight is Sight.ENDED and not (seen.record or {}).get("survivors"):
            return seen
        deadline = time.monotonic() + self._end_seconds
        while True:
            survivor = self._kill_worker(place, evidence, deadline)
            if survivor is not None:
                return _unkillable(place, survivor)
            place.put_aside_broken_record()
            failure = spawn.reap(self._command, place, max(1.0, deadline - time.monotonic()))
            seen, evidence = see(place, self._starting_seconds)
            if seen.sight is Sight.ENDED:
                return seen
            # Somebody else had the lock for a moment: a look, an earlier reap, what was left.
            if time.monotonic() >= deadline:
                return replace(seen, reason=failure or seen.reason)
            time.sleep(0.05)

    def _kill_worker(
        self, place: Directory, evidence: Evidence, deadline: float
    ) -> Identity | None:
        """Kill the worker and whoever else keeps its lock. The one that does not die, if any."""
        victims = {evidence.worker, evidence.spawned} - {None}
        while True:
            for victim in victims:
                if victim and not kill(victim, max(0.1, deadline - time.monotonic())):
                    return victim
            if not place.is_locked():
                return None
            # A reap of a server that is gone may be at work: let it, for half of our time.
            if time.monotonic() < deadline - self._end_seconds / 2:
                time.sleep(0.05)
                victims = {place.worker()} - {None}
                continue
            victims = set(holders(place.lock))
            if not victims or time.monotonic() >= deadline:
                return Identity(0, 0, "")

    # forget

    async def _forget_all(self, attempt_id: str) -> None:
        found = await self._in(
            self._quick, lambda: list(directories.of_attempt(self._attempts, attempt_id))
        )
        async with contextlib.AsyncExitStack() as turns:
            for place in sorted(found, key=lambda place: place.node):
                await turns.enter_async_context(self._turns.of((place.attempt_id, place.node)))
            await self._in(self._slow, lambda: self._forget(attempt_id, found))

    def _forget(self, attempt_id: str, found: list[Directory]) -> None:
        if directories.owner(self._attempts, attempt_id) != self.name:
            return  # another engine's
        for place in found:
            seen, _ = see(place, self._starting_seconds)
            if seen.sight not in (Sight.ENDED, Sight.ABSENT):
                raise Conflict(
                    f"attempt {attempt_id} on {place.node} is {seen.sight}", hint="end it first"
                )
        directories.remove_attempt(self._attempts, attempt_id)

    # turns and threads

    def _whole(self, work: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
        """To its end, also when the caller is cancelled: a thread cannot be called back, and
        must not work on while another has the turn."""
        return asyncio.shield(self._keep(self._in_hand, work))

    def _keep(
        self, tasks: set[asyncio.Task[Any]], work: Coroutine[Any, Any, Result]
    ) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
        try:
            found = asyncio.get_running_loop().run_in_executor(pool, work)
        except RuntimeError as err:
            if not needs.of(err):
                raise
            raise OSError(errno.EAGAIN, str(err)) from err  # no process is left for a thread
        return await found


def _was_started(evidence: Evidence) -> bool:
    """Anything but a start that a crash cut short before there was a process."""
    return (
        evidence.locked
        or evidence.worker_file
        or evidence.record is not None
        or evidence.spawned is not None
        or evidence.spawn_boot_id != evidence.boot_id
    )


def _unkillable(place: Directory, survivor: Identity) -> Seen:
    pids = [survivor.pid] if survivor.pid else []
    record: dict[str, Any] = {
        "attempt_id": place.attempt_id,
        "node": place.node,
        "outcome": "lost",
        "survivors": pids,
    }
    who = f"pid {survivor.pid}" if survivor.pid else "a process that cannot be seen from here"
    return Seen(
        place.attempt_id, place.node, Sight.ALIVE, record, f"{who} does not die: kernel wait?"
    )
