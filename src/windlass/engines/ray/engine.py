"""An engine over Ray: a gang is one placement group, with an actor for each of its nodes.

The server reaches the cluster through the bridge, and its home lies on a file system that the
nodes share. Ray gives the group its room whole; the actor starts our worker and leaves when that
has ended; the last one takes the group away. What is known about a worker comes from its
directory and from Ray, asked anew each time:

    directory  exit.json  ray.exit  the actor      verdict
    ---------  ---------  --------  -------------  ------------------------------------------
    none       –          –         –              ABSENT
    there      there      there     any            ENDED
    there      there      none      there          ALIVE: the worker is just leaving
    there      there      none      gone           ENDED
    there      none       there     any            DEAD
    there      none       none      there          ALIVE; STARTING before worker.json
    there      none       none      gone           DEAD; STARTING while its launch is under way

`ray.exit` says that the worker has ended: written by the actor, or by who ended both. An actor
that is there may wait for room: Ray waits for ever and says nothing, so after `wait` seconds we
give the gang up ourselves.

A node that Ray gives up may still run what it ran: its raylet died, the worker did not. Nothing
is said to have ended there before it was seen to, or before the worker's lease has run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windlass.core.errors import Conflict, Unavailable
from windlass.core.resources import Node
from windlass.engines import directory as directories
from windlass.engines.base import LaunchFailed, LaunchPlan, NodeLaunch, Seen, Sight
from windlass.engines.directory import Directory
from windlass.engines.fence import LEASE_SECONDS, end_by_fence, is_shared
from windlass.engines.ray.checking import look_at
from windlass.engines.ray.cluster import Cluster, RayFailed
from windlass.engines.ray.offers import bundle, by_name, lacking, node_of
from windlass.engines.ray.options import LOCAL, checked
from windlass.engines.ray.own import OwnCluster
from windlass.engines.spawn import minimal_environment
from windlass.engines.turns import Turns

Place = tuple[str, str]

_REAP_SECONDS = 20.0
_ENDING = 4
"""So many are cleaned up at once, as many as the bridge takes."""
_OVER = (Sight.ENDED, Sight.DEAD)
_FRESH_SECONDS = 60.0
"""So long after its directory was laid down a launch may be under way in another server."""


@dataclass(frozen=True)
class _Look:
    """What Ray says at one moment."""

    actors: frozenset[str]
    groups: Mapping[str, str]
    nodes: Sequence[Mapping[str, Any]]

    def has(self, place: Directory) -> bool:
        return _actor(place) in self.actors

    def lives(self, node_id: str) -> bool:
        return any(each["id"] == node_id and each["alive"] for each in self.nodes)


class RayEngine:
    def __init__(
        self,
        home: Path,
        command: Sequence[str],
        *,
        address: str,
        name: str = "ray",
        python: str = sys.executable,
        token_file: str = "",
        url: str = "",
        own_url: str = "",
        together: bool = False,
        poll_seconds: float = 1.0,
        wait_seconds: float = 300.0,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self.name = name
        self._attempts = (Path(home).absolute() / "attempts").resolve()
        self._command = list(command)
        self._url, self._own_url = url, own_url
        self._together = together
        self._address = address
        self._own = OwnCluster(home, name, python) if address == LOCAL else None
        self._cluster = Cluster(
            self._where, python, token_file if self._own is None else str(self._own.token_file)
        )
        self._poll_seconds = poll_seconds
        self._wait_seconds = wait_seconds
        self._lease_seconds = lease_seconds
        self._turns = Turns[str]()
        self._ending = asyncio.Semaphore(_ENDING)
        self._hint: Callable[[str], None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._known: Mapping[str, Mapping[str, Any]] = {}
        """The cluster's nodes by name, as they were when it was last looked at."""

    @staticmethod
    def options_of(given: Mapping[str, str]) -> dict[str, Any]:
        """What the operator may say. Raises InvalidInput."""
        return checked(given)

    def facts(self) -> dict[str, Any]:
        """A worker on another machine finds its own address, takes the devices that Ray gave it,
        and ends its ranks when the server has not answered for the lease."""
        found: dict[str, Any] = {
            "host": "auto", "ifname": None, "lease_seconds": self._lease_seconds,
            "beat_seconds": min(10.0, self._lease_seconds / 4), "granted_gpus": True,
        }  # fmt: skip
        if self._url:
            found |= {"urls": [self._url], "server_file": None}
        return found

    async def check(self) -> list[tuple[str, bool, str]]:
        return await look_at(
            self._cluster, self._attempts, self._command, self._url or self._own_url
        )

    async def start(self, hint: Callable[[str], None]) -> None:
        self._attempts.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._hint = hint
        self._watching = asyncio.create_task(self._watch(), name=f"watch {self.name}")

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._watching = self._hint = None
        await self._cluster.close()

    async def remove(self) -> None:
        """Taken away for good: a cluster of its own ends."""
        if self._own is not None:
            await self._own.end()

    async def _where(self) -> str:
        return self._address if self._own is None else await self._own.address()

    async def nodes(self) -> list[Node]:
        with _answering():
            found = by_name((await self._cluster.look([]))["nodes"])
        return [node_of(name, each, self.name) for name, each in found.items()]

    # launch

    async def launch(self, plan: LaunchPlan) -> None:
        directories.check_attempt_id(plan.attempt_id)
        known = self._known
        if any(each.node not in known for each in plan.nodes):
            try:
                known = by_name((await self._cluster.look([]))["nodes"])
            except RayFailed as err:
                raise LaunchFailed(str(err), transient=err.unreachable) from err
        for worker in plan.nodes:
            self._refuse_what_cannot_be(worker, known)
        places = [Directory(self._attempts, plan.attempt_id, each.node) for each in plan.nodes]
        shares = [
            {
                "node": worker.node, "node_id": known[worker.node]["id"],
                "folder": str(place.path), "bundle": bundle(worker, known[worker.node]),
            }
            for worker, place in zip(plan.nodes, places, strict=True)
        ]  # fmt: skip
        async with self._turns.of(plan.attempt_id):
            try:
                await asyncio.to_thread(self._lay_down, places, plan.nodes)
                if self._was_launched(places):
                    return
                # First where: an answer that is lost must not leave a gang that nobody finds.
                await asyncio.to_thread(self._remember, plan.attempt_id, shares)
                await self._cluster.ask(
                    "launch", attempt=plan.attempt_id, shares=shares, command=self._command,
                    env=minimal_environment(),
                )  # fmt: skip
                await asyncio.to_thread(self._mark_launched, plan.attempt_id)
            except RayFailed as err:
                raise LaunchFailed(str(err), transient=err.unreachable) from err
            except OSError as err:
                raise LaunchFailed(f"{places[0].path.parent} cannot be written: {err}") from err

    def _refuse_what_cannot_be(
        self, worker: NodeLaunch, known: Mapping[str, Mapping[str, Any]]
    ) -> None:
        if worker.node not in known:
            raise LaunchFailed(
                f"the engine {self.name} has no node {worker.node!r}, only {', '.join(known)}",
                transient=False,
            )
        if not self._together and is_shared(worker):
            raise LaunchFailed(
                "several people share this server, and on Ray every job runs as the cluster's one "
                "user: an administrator may allow that with the engine's option together=yes",
                transient=False,
            )
        node = known[worker.node]
        if short := lacking(bundle(worker, node), node):
            raise LaunchFailed(
                f"node {worker.node} never has {', '.join(short)} that Ray knows", transient=True
            )

    def _lay_down(self, places: Sequence[Directory], workers: Sequence[NodeLaunch]) -> None:
        for place, worker in zip(places, workers, strict=True):
            directories.claim(self._attempts, place.attempt_id, self.name)
            place.create(worker)

    def _was_launched(self, places: Sequence[Directory]) -> bool:
        if any(each.record() is not None or each.has_worker_file() for each in places):
            return True
        return (places[0].path.parent / "ray.launched").exists()

    def _mark_launched(self, attempt_id: str) -> None:
        (self._attempts / attempt_id / "ray.launched").touch()

    def _remember(self, attempt_id: str, shares: Sequence[Mapping[str, Any]]) -> None:
        """Which of Ray's nodes each worker is on: names come again, ids do not."""
        path = self._attempts / attempt_id / "ray.json"
        fresh = path.with_name(".ray.json")
        fresh.write_text(json.dumps({each["node"]: each["node_id"] for each in shares}))
        fresh.rename(path)

    def _node_id(self, place: Directory) -> str:
        try:
            return str(json.loads((place.path.parent / "ray.json").read_text())[place.node])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    # watch

    async def _watch(self) -> None:
        """Ray is asked, one question for all; what a worker does it tells the server itself."""
        before: dict[Place, Sight] = {}
        over: set[str] = set()
        offered: object = None
        while True:
            with contextlib.suppress(RayFailed, Unavailable, OSError):
                places = await asyncio.to_thread(self._unfinished, over)
                look = await self._look(await asyncio.to_thread(self._waiting, places), True)
                self._known = by_name(look.nodes)
                nodes = [(name, each["id"]) for name, each in self._known.items()]
                if offered is not None and offered != nodes:
                    self._tell("")
                offered = nodes
                seen = await self._see_all(places, look)
                now = {(each.attempt_id, each.node): each.sight for each in seen}
                for place, sight in now.items():
                    if sight in _OVER and before.get(place) is not sight:
                        self._tell(place[0])
                over |= await self._tidy(now)
                before = now
            await asyncio.sleep(self._poll_seconds)

    def _tell(self, attempt_id: str) -> None:
        if self._hint is not None:
            self._hint(attempt_id)

    async def _tidy(self, now: Mapping[Place, Sight]) -> set[str]:
        """The attempts that have ended on all their nodes: nothing of them stays in Ray."""
        still = {place[0] for place, sight in now.items() if sight is not Sight.ENDED}
        over = {place[0] for place in now} - still
        if over:
            await self._cluster.ask("remove", attempts=sorted(over))
        return over

    def _unfinished(self, over: set[str]) -> list[Place]:
        found = directories.unfinished(self._attempts, self.name, over)
        return [(place.attempt_id, place.node) for place in found]

    # look

    async def observe(self, wanted: Sequence[Place]) -> list[Seen]:
        waiting = await asyncio.to_thread(self._waiting, wanted)
        with _answering():
            look = await self._look(waiting)
        return await self._see_all(wanted, look)

    async def present(self) -> list[Place]:
        found = await asyncio.to_thread(lambda: list(directories.every(self._attempts, self.name)))
        return [(place.attempt_id, place.node) for place in found]

    def _waiting(self, wanted: Sequence[Place]) -> list[str]:
        """The attempts of which no worker has begun yet on some node."""
        places = [Directory(self._attempts, *place) for place in wanted]
        return sorted(
            {
                each.attempt_id
                for each in places
                if each.exists() and not each.has_worker_file() and each.record() is None
            }
        )

    async def _look(self, attempts: list[str], trying: bool = False) -> _Look:
        found = await self._cluster.look(attempts, trying=trying)
        return _Look(frozenset(found["actors"]), found["groups"], found["nodes"])

    async def _see_all(self, wanted: Sequence[Place], look: _Look) -> list[Seen]:
        places = [Directory(self._attempts, *place) for place in wanted]
        return await asyncio.to_thread(lambda: [self._see(place, look) for place in places])

    def _see(self, place: Directory, look: _Look) -> Seen:
        sight, reason = self._judge(place, look)
        record = place.record() if sight is Sight.ENDED else None
        return Seen(place.attempt_id, place.node, sight, record, reason)

    def _judge(self, place: Directory, look: _Look) -> tuple[Sight, str]:
        if not place.exists():
            return Sight.ABSENT, ""
        left = (place.path / "ray.exit").exists()
        there = look.has(place) and not left
        if place.record() is not None:
            return (Sight.ALIVE if there else Sight.ENDED), ""
        if left:
            if place.has_worker_file():
                return Sight.DEAD, "its worker died and left no record"
            words = place.last_words()
            return Sight.DEAD, "its worker died before it took its lock" + (
                f": {words}" if words else ""
            )
        if there and place.has_worker_file():
            return Sight.ALIVE, ""
        if there:
            return self._starting(place, look)
        if not look.lives(self._node_id(place)) and self._node_id(place):
            return Sight.DEAD, f"Ray lost node {place.node}"
        if place.has_worker_file():
            return Sight.DEAD, "Ray ended its actor"
        if (
            not (place.path.parent / "ray.launched").exists()
            and place.laid_seconds() < _FRESH_SECONDS
        ):
            return Sight.STARTING, ""
        return Sight.DEAD, "Ray knows nothing of it"

    def _starting(self, place: Directory, look: _Look) -> tuple[Sight, str]:
        if look.groups.get(place.attempt_id) == "CREATED":
            return Sight.STARTING, ""
        waited = place.laid_seconds()
        if waited < self._wait_seconds:
            return Sight.STARTING, "waits in Ray: others hold what the gang needs on its nodes"
        return Sight.DEAD, f"Ray found no room for the gang on its nodes within {waited:.0f} s"

    # end

    async def end(self, attempt_id: str, node: str) -> Seen:
        place = Directory(self._attempts, attempt_id, node)
        async with self._turns.of(attempt_id):
            with _answering():
                return await asyncio.shield(self._end(place))

    async def _end(self, place: Directory) -> Seen:
        look = await self._look([place.attempt_id])
        seen = self._see(place, look)
        if seen.sight is not Sight.ABSENT and seen.sight is not Sight.ENDED:
            seen = _because(seen, await self._end_by_force(place, look))
        if seen.sight is Sight.ENDED:
            await self._take_away(place.attempt_id)
        return seen

    async def _end_by_force(self, place: Directory, look: _Look) -> Seen:
        node_id = self._node_id(place)
        await self._cluster.ask("kill", actor=_actor(place))
        if not look.lives(node_id):
            return await self._fenced(place, f"Ray does not reach node {place.node}")
        place.put_aside_broken_record()
        try:
            async with self._ending:
                failure = await self._cluster.ask(
                    "end", node_id=node_id, folder=str(place.path), command=self._command,
                    env=minimal_environment(), seconds=_REAP_SECONDS, waits=4 * _REAP_SECONDS,
                )  # fmt: skip
        except RayFailed as err:
            if err.unreachable:
                raise
            failure = str(err)
        record = place.record()
        if not failure and record is not None:
            # The actor was killed before it could say so, and Ray may list it for a moment.
            (place.path / "ray.exit").touch(0o600)
            return Seen(place.attempt_id, place.node, Sight.ENDED, record)
        return await self._fenced(
            place, f"clean-up on {place.node} failed: {failure or 'it left no record'}"
        )

    async def _fenced(self, place: Directory, why: str) -> Seen:
        return await end_by_fence(place, why, self._lease_seconds, self._command)

    async def _take_away(self, attempt_id: str) -> None:
        """The group, when the gang has ended on all its nodes."""
        places = directories.of_attempt(self._attempts, attempt_id)
        if all(place.record() is not None for place in places):
            await self._cluster.ask("remove", attempts=[attempt_id])

    # forget

    async def forget(self, attempt_id: str) -> None:
        directories.check_attempt_id(attempt_id)
        async with self._turns.of(attempt_id):
            places = list(directories.of_attempt(self._attempts, attempt_id))
            if not places or directories.owner(self._attempts, attempt_id) != self.name:
                return
            with _answering():
                look = await self._look([attempt_id])
            for place in places:
                seen = self._see(place, look)
                if seen.sight not in (Sight.ENDED, Sight.ABSENT):
                    raise Conflict(
                        f"attempt {attempt_id} on {place.node} is {seen.sight}",
                        hint="end it first",
                    )
            with _answering():
                await self._cluster.ask("remove", attempts=[attempt_id])
            await asyncio.to_thread(directories.remove_attempt, self._attempts, attempt_id)


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """Raises Unavailable where Ray does not answer: then nothing is known, nothing judged."""
    try:
        yield
    except RayFailed as err:
        raise Unavailable(f"Ray: {err}") from err


def _because(before: Seen, after: Seen) -> Seen:
    """Who cleans up knows only that the worker is gone; we knew why."""
    record = after.record
    if before.sight is not Sight.DEAD or record is None or record.get("outcome") != "lost":
        return after
    return replace(after, record={**record, "reason": before.reason})


def _actor(place: Directory) -> str:
    return f"wl-{place.attempt_id}-{place.node}"
