"""An engine over Slurm: a gang is one batch job with a step for each node.

The server runs on a machine where Slurm's commands work (a login node), as an ordinary user, and
its home lies on a file system that the nodes share. Slurm itself starts the gang whole. What is
known about a worker comes from its directory and from Slurm, asked anew each time:

    directory  exit.json  the step     the Slurm job            verdict
    ---------  ---------  -----------  ----------------------   -------------------------------
    none       –          –            –                        ABSENT
    there      –          –            waits                    STARTING
    there      any        runs         runs                     ALIVE; STARTING before worker.json
    there      there      does not     any                      ENDED
    there      none       has ended    runs                     DEAD
    there      none       not begun    runs                     STARTING
    there      none       –            over, or not known       DEAD

A node that Slurm gives up may still run what it ran: Slurm requeues such jobs, and the old
processes go on. Ours are never requeued, and nothing is said to have ended there before it was
seen to, or before the worker's lease has run out, after which it has killed its ranks itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.core.errors import Conflict, Unavailable
from windlass.core.resources import Node, Resources
from windlass.engines import directory as directories
from windlass.engines.base import LaunchFailed, LaunchPlan, NodeLaunch, Seen, Sight
from windlass.engines.directory import Directory
from windlass.engines.fence import LEASE_SECONDS, end_by_fence, is_shared
from windlass.engines.slurm.checking import look_at
from windlass.engines.slurm.commands import Job, Slurm, SlurmFailed, Step
from windlass.engines.slurm.offers import node_of, usable
from windlass.engines.slurm.options import checked
from windlass.engines.slurm.script import Ask, batch
from windlass.engines.spawn import minimal_environment
from windlass.engines.turns import Turns

Place = tuple[str, str]

_END_SECONDS = 60.0
_REAP_SECONDS = 20.0
_RESERVE = Resources()
_OVER = (Sight.ENDED, Sight.DEAD)
_SILENT = "node {} does not answer Slurm"


@dataclass(frozen=True)
class _Look:
    """What Slurm says at one moment: the jobs by attempt, newest last, and the steps that run."""

    jobs: Mapping[str, list[Job]]
    steps: Mapping[tuple[str, str], Step]

    def job(self, attempt_id: str) -> Job | None:
        """The one that counts: a second one, of a launch whose answer was lost, has only workers
        that left at once."""
        found = self.jobs.get(attempt_id, [])
        return next((each for each in found if each.runs), None) or (found[0] if found else None)

    def step(self, attempt_id: str, node: str) -> Step | None:
        for job in self.jobs.get(attempt_id, []):
            if (found := self.steps.get((job.number, node))) is not None:
                return found
        return None


class SlurmEngine:
    def __init__(
        self,
        home: Path,
        command: Sequence[str],
        *,
        name: str = "slurm",
        partition: str = "",
        account: str = "",
        qos: str = "",
        url: str = "",
        own_url: str = "",
        together: bool = False,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        poll_seconds: float = 2.0,
        starting_seconds: float = 60.0,
        lease_seconds: float = LEASE_SECONDS,
        reserve: Resources = _RESERVE,
    ) -> None:
        self.name = name
        self._attempts = (Path(home).absolute() / "attempts").resolve()
        self._command = list(command)
        self._ask = Ask(partition, account, qos, tuple(options))
        self._url, self._own_url = url, own_url
        self._together = together
        self._slurm = Slurm(environment)
        self._poll_seconds = poll_seconds
        self._starting_seconds = starting_seconds
        self._lease_seconds = lease_seconds
        self._reserve = reserve
        self._turns = Turns[str]()
        self._hint: Callable[[str], None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._offered: frozenset[str] = frozenset()
        """The names of the nodes when Slurm was last asked for them."""

    @staticmethod
    def options_of(given: Mapping[str, str]) -> dict[str, Any]:
        """What the operator may say. Raises InvalidInput."""
        return checked(given)

    def facts(self) -> dict[str, Any]:
        """A worker on another machine finds its own address, takes the devices that Slurm gave
        it, and ends its ranks when the server has not answered for the lease."""
        found: dict[str, Any] = {
            "host": "auto", "ifname": None, "lease_seconds": self._lease_seconds,
            "beat_seconds": min(10.0, self._lease_seconds / 4), "granted_gpus": True,
        }  # fmt: skip
        if self._url:
            found |= {"urls": [self._url], "server_file": None}
        return found

    async def check(self) -> list[tuple[str, bool, str]]:
        return await look_at(
            self._slurm, self._attempts, self._command, self._ask, self._url or self._own_url
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

    async def nodes(self) -> list[Node]:
        with _answering():
            return await self._offers()

    async def _offers(self) -> list[Node]:
        found = self._usable(await self._slurm.nodes())
        return [node_of(each, self.name, self._reserve) for each in found]

    def _usable(self, nodes: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
        wanted = self._ask.partition
        found = [
            each
            for each in nodes
            if usable(each) and (not wanted or wanted in each.get("Partitions", "").split(","))
        ]
        self._offered = frozenset(each["NodeName"] for each in found)
        return found

    # launch

    async def launch(self, plan: LaunchPlan) -> None:
        directories.check_attempt_id(plan.attempt_id)
        await self._refuse_unknown(plan)
        if not self._together and any(is_shared(each) for each in plan.nodes):
            raise LaunchFailed(
                "several people share this server, and on Slurm every job runs as its one user: "
                "an administrator may allow that with the engine's option together=yes",
                transient=False,
            )
        places = [Directory(self._attempts, plan.attempt_id, each.node) for each in plan.nodes]
        async with self._turns.of(plan.attempt_id):
            try:
                is_first = await asyncio.to_thread(self._lay_down, places, plan.nodes)
                if not is_first and await self._was_launched(plan.attempt_id, places):
                    return
                ready = batch(
                    plan, self._job_name(plan.attempt_id),
                    {place.node: str(place.path) for place in places},
                    self._command, self._ask, minimal_environment(),
                )  # fmt: skip
                number = await self._slurm.submit(ready.script, ready.options, str(self._attempts))
                await asyncio.to_thread(self._remember, plan.attempt_id, number)
            except SlurmFailed as err:
                raise LaunchFailed(str(err), transient=err.unreachable) from err
            except OSError as err:
                raise LaunchFailed(f"{places[0].path.parent} cannot be written: {err}") from err

    async def _refuse_unknown(self, plan: LaunchPlan) -> None:
        """Slurm is asked only when a node was not there the last time; one that went meanwhile
        it refuses itself."""
        wanted = [each.node for each in plan.nodes]
        if self._offered.issuperset(wanted):
            return
        try:
            known = [node.name for node in await self._offers()]
        except SlurmFailed as err:
            raise LaunchFailed(str(err), transient=err.unreachable) from err
        for node in wanted:
            if node not in known:
                raise LaunchFailed(
                    f"the engine {self.name} has no node {node!r}, only {', '.join(known)}",
                    transient=False,
                )

    def _lay_down(self, places: Sequence[Directory], workers: Sequence[NodeLaunch]) -> bool:
        """Whether nobody did so before: then Slurm cannot know of it either."""
        directories.claim(self._attempts, places[0].attempt_id, self.name)
        made = [place.create(worker) for place, worker in zip(places, workers, strict=True)]
        return all(made)

    async def _was_launched(self, attempt_id: str, places: Sequence[Directory]) -> bool:
        if any(each.record() is not None or each.has_worker_file() for each in places):
            return True
        if self._remembered(attempt_id):
            return True
        look = await self._look()
        return look.job(attempt_id) is not None  # its answer was lost

    def _job_name(self, attempt_id: str) -> str:
        return f"wl-{attempt_id}"

    def _remember(self, attempt_id: str, number: str) -> None:
        path = self._attempts / attempt_id / "slurm.json"
        fresh = path.with_name(".slurm.json")
        fresh.write_text(json.dumps({"job": number}))
        fresh.rename(path)

    def _remembered(self, attempt_id: str) -> str | None:
        try:
            return str(json.loads((self._attempts / attempt_id / "slurm.json").read_text())["job"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    # watch

    async def _watch(self) -> None:
        """Slurm tells nobody of anything, so it is asked: one question for all, and none while
        nothing of ours is there."""
        before: dict[Place, Sight] = {}
        offered: object = None
        while True:
            with contextlib.suppress(SlurmFailed, Unavailable, OSError):
                found = await self._slurm.nodes(trying=True)  # first: it says whether to go on
                self._usable(found)
                nodes = [(each["NodeName"], each.get("BootTime"), usable(each)) for each in found]
                if offered is not None and offered != nodes:
                    self._tell("")
                offered = nodes
                places = await self.present()
                if places:
                    seen = await self.observe(places)
                    now = {(each.attempt_id, each.node): each.sight for each in seen}
                    for place, sight in now.items():
                        if sight in _OVER and before.get(place) is not sight:
                            self._tell(place[0])  # that it lives its worker tells the server
                    before = now
            await asyncio.sleep(self._poll_seconds)

    def _tell(self, attempt_id: str) -> None:
        if self._hint is not None:
            self._hint(attempt_id)

    # look

    async def observe(self, wanted: Sequence[Place]) -> list[Seen]:
        places = [Directory(self._attempts, *place) for place in wanted]
        with _answering():
            look = await self._look()
        return await asyncio.to_thread(lambda: [self._see(place, look) for place in places])

    async def present(self) -> list[Place]:
        found = await asyncio.to_thread(lambda: list(directories.every(self._attempts, self.name)))
        return [(place.attempt_id, place.node) for place in found]

    async def _look(self) -> _Look:
        """The steps first: one that is not there any more leaves the job where it was, or over."""
        steps = await self._slurm.steps()
        jobs: dict[str, list[Job]] = {}
        for job in sorted(await self._slurm.jobs("wl-"), key=lambda each: int(each.number)):
            jobs.setdefault(job.name[len("wl-") :], []).append(job)
        return _Look(jobs, {(step.job, step.name): step for step in steps})

    def _see(self, place: Directory, look: _Look) -> Seen:
        sight, reason = self._judge(place, look)
        record = place.record() if sight is Sight.ENDED else None
        return Seen(place.attempt_id, place.node, sight, record, reason)

    def _judge(self, place: Directory, look: _Look) -> tuple[Sight, str]:
        if not place.exists():
            return Sight.ABSENT, ""
        if look.step(place.attempt_id, place.node) is not None:
            return (Sight.ALIVE if place.has_worker_file() else Sight.STARTING), ""
        if place.record() is not None:
            return Sight.ENDED, ""
        job = look.job(place.attempt_id)
        if job is not None and job.waits:
            return Sight.STARTING, f"waits in Slurm: {job.reason}"
        if place.has_worker_file():
            return Sight.DEAD, _end_of(job) or "its worker died and left no record"
        ended = (place.path / "srun.exit").exists()
        if job is not None and job.runs and not ended:
            return Sight.STARTING, ""
        if ended:
            words = place.last_words()
            return Sight.DEAD, "its worker died before it took its lock" + (
                f": {words}" if words else ""
            )
        if job is None and self._is_fresh(place):
            return Sight.STARTING, ""
        return Sight.DEAD, _end_of(job) or "Slurm knows nothing of it"

    def _is_fresh(self, place: Directory) -> bool:
        """Laid down a moment ago: it may be on its way to Slurm."""
        return place.laid_seconds() < self._starting_seconds

    # end

    async def end(self, attempt_id: str, node: str) -> Seen:
        place = Directory(self._attempts, attempt_id, node)
        async with self._turns.of(attempt_id):
            with _answering():
                return await asyncio.shield(self._end(place))

    async def _end(self, place: Directory) -> Seen:
        look = await self._look()
        seen = self._see(place, look)
        if seen.sight in (Sight.ABSENT, Sight.ENDED):
            return seen
        job = look.job(place.attempt_id)
        if job is not None and job.waits:
            await self._slurm.cancel(job.number)  # no worker of it has begun, on no node
        ends = time.monotonic() + _END_SECONDS
        while (step := look.step(place.attempt_id, place.node)) is not None:
            if time.monotonic() > ends:
                return Seen(
                    place.attempt_id, place.node, Sight.ALIVE, None,
                    f"Slurm does not end step {step.job}.{step.number}",
                )  # fmt: skip
            if not _answers(await self._node(place.node)):
                return await self._fenced(place, _SILENT.format(place.node))
            await self._slurm.kill(step)
            await asyncio.sleep(0.05)
            look = await self._look()
        if not _answers(await self._node(place.node)):
            return await self._fenced(place, _SILENT.format(place.node))
        place.put_aside_broken_record()
        failure = await self._reap(place, look.job(place.attempt_id))
        seen = self._see(place, await self._look())
        if failure and seen.sight is not Sight.ENDED:
            return await self._fenced(place, failure)
        return seen

    async def _reap(self, place: Directory, job: Job | None) -> str:
        """Clean up on the node itself: inside of the gang's job while that runs, else by a step
        that needs one CPU for a moment. Empty when it was done."""
        words = [*self._command, "reap", str(place.path)]
        common = ["srun", "--nodes=1", "--ntasks=1", f"--nodelist={place.node}", "--quiet",
                  "--mem=0" if job is not None and job.runs else "--mem=64M",
                  f"--chdir={self._attempts}"]  # fmt: skip
        ways = []
        if job is not None and job.runs and job.state != "COMPLETING":
            ways.append([*common, f"--jobid={job.number}", "--overlap"])
        if usable(await self._node(place.node)):
            ways.append([*common, "--job-name=wl-reap", f"--immediate={int(_REAP_SECONDS)}"])
        failure = f"node {place.node} takes no jobs for a clean-up"
        for way in ways:
            try:
                await self._slurm.run(*way, *words, seconds=2 * _REAP_SECONDS)
                return ""
            except SlurmFailed as err:
                failure = f"clean-up on {place.node} failed: {err}"
        return failure

    async def _node(self, name: str) -> dict[str, str]:
        """What Slurm says of the node; nothing when it knows none of that name."""
        return next((each for each in await self._slurm.nodes() if each["NodeName"] == name), {})

    async def _fenced(self, place: Directory, why: str) -> Seen:
        return await end_by_fence(place, why, self._lease_seconds, self._command)

    # forget

    async def forget(self, attempt_id: str) -> None:
        directories.check_attempt_id(attempt_id)
        async with self._turns.of(attempt_id):
            places = list(directories.of_attempt(self._attempts, attempt_id))
            if not places or directories.owner(self._attempts, attempt_id) != self.name:
                return
            with _answering():
                look = await self._look()
            for place in places:
                seen = self._see(place, look)
                if seen.sight not in (Sight.ENDED, Sight.ABSENT):
                    raise Conflict(
                        f"attempt {attempt_id} on {place.node} is {seen.sight}",
                        hint="end it first",
                    )
            await asyncio.to_thread(directories.remove_attempt, self._attempts, attempt_id)


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """Raises Unavailable where Slurm does not answer: then nothing is known, nothing judged."""
    try:
        yield
    except SlurmFailed as err:
        raise Unavailable(f"Slurm: {err}") from err


def _answers(node: Mapping[str, str]) -> bool:
    """Whether Slurm reaches the node."""
    state = node.get("State", "DOWN")
    return not any(word in state for word in ("*", "DOWN", "POWER"))


_ENDS = {
    "NODE_FAIL": "Slurm lost a node of the gang",
    "TIMEOUT": "Slurm's time limit ended it",
    "PREEMPTED": "Slurm preempted it",
    "OUT_OF_MEMORY": "Slurm ended it: out of memory",
    "BOOT_FAIL": "its node did not boot",
    "DEADLINE": "Slurm's deadline ended it",
    "CANCELLED": "it was cancelled in Slurm",
}


def _end_of(job: Job | None) -> str:
    return "" if job is None else _ENDS.get(job.state, "")
