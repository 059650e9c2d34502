"""An engine over Kubernetes: a gang is a pod for each of its nodes, made directly.

No operator and no resource of our own: pods go by names that follow from the attempt and the node,
so that making one twice makes one. The server's home lies on storage that pods see too, each its
own attempt's folder. What is known about a worker comes from that folder and from its pod, asked
anew each time; a watch only says when to ask.

    folder  exit.json  the pod                            verdict
    ------  ---------  ---------------------------------  -------------------------------
    none    –          none, or over                      ABSENT
    there   there      any, and its lock is free          ENDED
    there   none       runs                               ALIVE; STARTING before worker.json
    there   none       waits                              STARTING
    there   none       over                               DEAD
    there   none       runs, given up with its node       DEAD
    there   none       not there, though it was made      DEAD

A pod that was given up with its node may still run: nothing is said to have ended there before the
cluster saw it end on a node that answers, or before the worker's lease has run out. Pods are never
deleted without a grace: Kubernetes would forget them while their processes run on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from windlass.core.errors import Conflict, Unavailable
from windlass.core.resources import Node
from windlass.engines import directory as directories
from windlass.engines import mirroring
from windlass.engines.base import LaunchFailed, LaunchPlan, NodeLaunch, Seen, Sight
from windlass.engines.directory import Directory
from windlass.engines.fence import LEASE_SECONDS, end_by_fence
from windlass.engines.kubernetes import kubeconfig as kubeconfigs
from windlass.engines.kubernetes import states
from windlass.engines.kubernetes.api import Api, ApiFailed, Change, Listing, Object
from windlass.engines.kubernetes.bringing import Worker, packed
from windlass.engines.kubernetes.checking import look_at
from windlass.engines.kubernetes.evidence import Places
from windlass.engines.kubernetes.offers import gpu_resource, offers, refusal, silence
from windlass.engines.kubernetes.options import checked
from windlass.engines.kubernetes.pods import (
    CACHE,
    Ask,
    Setting,
    group_name,
    group_path,
    label,
    manifest,
    name_of,
    pod_group,
    renumbered,
    secret,
    selector,
)
from windlass.engines.kubernetes.states import Phase
from windlass.engines.kubernetes.watching import Watch
from windlass.engines.spawn import reap
from windlass.engines.turns import Turns

Place = tuple[str, str]
_Share = tuple[Directory, NodeLaunch, str]
"""A worker of a gang: where its files lie, what it is told, and the name of its node's GPUs."""

_END_SECONDS = 60.0
_END_GRACE = 1
"""The least that Kubernetes takes; who asks for force has given the job its own grace before."""
_BEGIN_SECONDS = 15.0
"""A pod that was deleted while it was being started may stay for minutes, and do nothing."""
_LOOK_SECONDS = 0.1
_REAP_SECONDS = 20.0
_AT_ONCE = 16
_FEW = 4


class KubernetesEngine:
    def __init__(
        self,
        home: Path,
        command: Sequence[str],
        *,
        name: str = "kubernetes",
        kubeconfig: str = "",
        context: str = "",
        ask: Ask = Ask(),  # noqa: B008 (frozen)
        url: str = "",
        own_url: str = "",
        poll_seconds: float = 10.0,
        starting_seconds: float = 60.0,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self.name = name
        self._home = Path(home).absolute().resolve()
        self._attempts = self._home / "attempts"
        self._command = list(command)
        self._ask = ask
        self._url, self._own_url = url, own_url
        self._lease_seconds = lease_seconds
        self._api = Api(lambda: kubeconfigs.load(kubeconfig, context))
        self._places = Places(self._attempts, name, starting_seconds)
        self._watch = Watch(poll_seconds)
        self._worker: Worker | None = None
        self._turns = Turns[str]()
        self._making = asyncio.Semaphore(_AT_ONCE)
        self._done: set[Place] = set()

    @staticmethod
    def options_of(given: Mapping[str, str]) -> dict[str, Any]:
        """What the operator may say. Raises InvalidInput."""
        return checked(given)

    def facts(self) -> dict[str, Any]:
        """A worker in a pod finds its own address, is limited by the pod itself, keeps its cache
        there, and ends its ranks when the server has not answered for the lease."""
        found: dict[str, Any] = {
            "host": "auto", "ifname": None, "lease_seconds": self._lease_seconds,
            "beat_seconds": min(10.0, self._lease_seconds / 4), "cgroups": False,
            "cache_dir": CACHE, "server_file": None,
        }  # fmt: skip
        if self._ask.share.is_none:
            found |= mirroring.facts()
        return found | ({"urls": [self._url]} if self._url else {})

    async def check(self) -> list[tuple[str, bool, str]]:
        try:
            setting = await self._setting()
        except ApiFailed as err:
            return [("API server", False, str(err))]
        except (OSError, ValueError) as err:
            return [("worker", False, str(err))]
        assert self._worker is not None
        return await look_at(
            self._api, await self._namespaced(), setting, self._worker, self._url or self._own_url
        )

    async def start(self, hint: Callable[[str], None]) -> None:
        self._attempts.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._watch.start(
            f"watch {self.name}", hint,
            pods=self._follow_pods, nodes=lambda: self._api.follow("/api/v1/nodes"),
            glance=self._glance, look=self._look_around,
        )  # fmt: skip

    async def stop(self) -> None:
        await self._watch.stop()
        await self._api.close()

    async def remove(self) -> None:
        """What it keeps in the cluster beside pods: the worker."""
        with contextlib.suppress(ApiFailed):
            base = f"/api/v1/namespaces/{(await self._namespaced()).namespace}/configmaps"
            chosen = selector(await asyncio.to_thread(self._server))
            for each in await self._api.items(base, labelSelector=chosen):
                await self._api.delete(f"{base}/{each['metadata']['name']}")
        await self._api.close()

    async def nodes(self) -> list[Node]:
        with _answering():
            return await self._offers()

    async def _offers(self) -> list[Node]:
        nodes = await self._api.items("/api/v1/nodes", trying=True)
        return offers(
            nodes, await self._foreign(), self.name, self._ask.choice, self._ask.gpu_resource
        )

    async def _foreign(self) -> list[Object]:
        """The pods of others that hold something of a node; where we may not see them, the
        cluster's scheduler still does, and pods of ours wait for what they hold."""
        try:
            pods = await self._api.items(
                "/api/v1/pods", trying=True,
                fieldSelector="status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!=",
            )  # fmt: skip
        except ApiFailed as err:
            if err.status == 403:
                return []
            raise
        server = await asyncio.to_thread(self._server)
        return [each for each in pods if label(each, "server") != server]

    # what all pods have in common

    async def _setting(self) -> Setting:
        if self._worker is None:
            self._worker = await asyncio.to_thread(packed, Path(self._command[-1]))
        return Setting(
            server=await asyncio.to_thread(self._server),
            home=self._home,
            worker=self._worker.name,
            file=self._worker.file,
            arguments=tuple(self._command[1:-1]),
            lease_seconds=self._lease_seconds,
            user=os.geteuid(),
            group=os.getegid(),
        )

    def _server(self) -> str:
        """The name of this home (`server/app.py` gives it one before any engine starts)."""
        path = self._home / "id"
        with contextlib.suppress(FileExistsError):
            if not path.exists():
                with open(path, "x") as file:
                    file.write(os.urandom(8).hex())
        return path.read_text().strip()

    async def _namespaced(self) -> Ask:
        if not self._ask.namespace:
            access = await self._api.access()
            self._ask = replace(self._ask, namespace=access.namespace)
        return self._ask

    async def _path(self, attempt_id: str = "", node: str = "") -> str:
        base = f"/api/v1/namespaces/{(await self._namespaced()).namespace}/pods"
        return f"{base}/{name_of(attempt_id, node)}" if attempt_id else base

    # launch

    async def launch(self, plan: LaunchPlan) -> None:
        directories.check_attempt_id(plan.attempt_id)
        try:
            gpus, _ = await asyncio.gather(self._gpus_of(plan), self._bring_worker())
            places = [Directory(self._attempts, plan.attempt_id, each.node) for each in plan.nodes]
            whole = list(zip(places, map(renumbered, plan.nodes), gpus, strict=True))
            async with self._turns.of(plan.attempt_id):
                made = await self._made(places)
                missing = [each for each in whole if (plan.attempt_id, each[1].node) not in made]
                if missing:
                    await self._make_group(plan)
                    await self._make_all(plan, missing)
        except ApiFailed as err:
            raise LaunchFailed(str(err), transient=_passes(err)) from err
        except ValueError as err:
            raise LaunchFailed(str(err), transient=False) from err
        except OSError as err:
            raise LaunchFailed(f"{self._attempts / plan.attempt_id}: {err}") from err

    async def _gpus_of(self, plan: LaunchPlan) -> list[str]:
        """The name of the GPUs of each node. Raises LaunchFailed for a node that is not ours."""
        found = []
        there = await self._nodes_of([worker.node for worker in plan.nodes])
        for worker in plan.nodes:
            node = there.get(worker.node)
            if node is None:
                known = [each.name for each in await self._offers()]
                raise LaunchFailed(
                    f"the engine {self.name} has no node {worker.node!r}, only {', '.join(known)}",
                    transient=False,
                )
            if why := refusal(node, self._ask.choice):
                raise LaunchFailed(why, transient=True)
            found.append(gpu_resource(node, self._ask.gpu_resource))
            if not (worker.launch.get("image") or self._ask.image):
                raise LaunchFailed(
                    f"the job names no image, and the engine {self.name} has none for such jobs: "
                    "say environment.image, or the engine's option image",
                    transient=False,
                )
        return found

    async def _nodes_of(self, names: Sequence[str]) -> dict[str, Object]:
        """Those that the cluster has. One answer with all of them comes sooner than many."""
        if len(names) > _FEW:
            found = await self._api.items("/api/v1/nodes")
        else:
            asked = (self._api.find(f"/api/v1/nodes/{name}") for name in names)
            found = [each for each in await asyncio.gather(*asked) if each is not None]
        return {each["metadata"]["name"]: each for each in found}

    async def _bring_worker(self) -> None:
        """It is looked for each time, since somebody may have taken it away; not read, since it
        has half a megabyte."""
        setting = await self._setting()
        assert self._worker is not None
        base = f"/api/v1/namespaces/{(await self._namespaced()).namespace}/configmaps"
        if not await self._api.has(base, setting.worker):
            await self._api.create(base, self._worker.manifest(setting.server))

    async def _make_group(self, plan: LaunchPlan) -> None:
        ask = await self._namespaced()
        if path := group_path(ask):
            server = (await self._setting()).server
            group = pod_group(plan.attempt_id, server, ask, len(plan.nodes))
            await self._api.create(path, group)

    async def _make_all(self, plan: LaunchPlan, missing: Sequence[_Share]) -> None:
        """The files of the next few are laid down while the pods of those before are made."""
        setting, ask, path = await self._setting(), await self._namespaced(), await self._path()
        made: list[Directory] = []
        making: list[asyncio.Task[None]] = []

        def ready(shares: Sequence[_Share]) -> list[tuple[Directory, NodeLaunch, Object]]:
            self._places.lay_down(
                [place for place, _, _ in shares], [each for _, each, _ in shares]
            )
            return [
                (place, worker, manifest(
                    plan.job_id, plan.attempt_id, worker, setting, ask, gpu, len(plan.nodes)
                ))
                for place, worker, gpu in shares
            ]  # fmt: skip

        async def make(place: Directory, worker: NodeLaunch, pod: Object) -> None:
            async with self._making:
                if ask.share.is_none:
                    told = secret(plan.job_id, plan.attempt_id, worker, setting.server)
                    await self._api.create(_secrets(path), told)
                await self._api.create(path, pod)
            made.append(place)

        try:
            for at in range(0, len(missing), _FEW):
                for share in await asyncio.to_thread(ready, missing[at : at + _FEW]):
                    making.append(asyncio.create_task(make(*share)))
        except asyncio.CancelledError:
            for each in making:
                each.cancel()
            raise
        finally:
            failures = await asyncio.gather(*making, return_exceptions=True)
            if made:
                await asyncio.to_thread(self._places.remember, made)
        for failure in failures:
            if failure is not None:
                raise failure

    # watch

    async def _follow_pods(self) -> AsyncGenerator[Listing | Change, None]:
        path = await self._path()
        server = await asyncio.to_thread(self._server)
        following = self._api.follow(path, labelSelector=selector(server))
        async with contextlib.aclosing(following) as stream:
            async for each in stream:
                yield each

    async def _glance(self, pod: Object) -> Seen | None:
        """What a pod's own change says; None: it may be lost with its node."""
        key = (label(pod, "attempt"), label(pod, "node"))
        state = states.read(pod)
        if state.phase is Phase.WAITS and not state.leaving:
            return Seen(*key, Sight.STARTING)  # most changes; no file says more
        if not await asyncio.to_thread(self._is_ours, key):
            return Seen(*key, Sight.ABSENT)
        if state.leaving and state.phase is not Phase.OVER:
            return None
        place = Directory(self._attempts, *key)
        return await asyncio.to_thread(self._places.see, place, pod, {})

    async def _look_around(self) -> tuple[object, list[Seen]]:
        """What the nodes offer, and what is seen of all that is here. What is over and told goes
        out of the cluster."""
        nodes = await self._offers()
        found = await asyncio.to_thread(self._places.every)
        places = [Directory(self._attempts, *key) for key in found if key not in self._done]
        made = await self._made(places)
        pods = await self._pods()
        seen = await self._see_all(places, pods, made)
        for each in seen:
            key = (each.attempt_id, each.node)
            if each.sight is Sight.ENDED and not await self._remove(key, pods):
                self._done.add(key)
        self._done &= set(found)
        for key in pods.keys() - set(found):
            if not (self._attempts / key[0]).exists():
                await self._remove(key, pods)
        return nodes, seen

    async def _remove(self, key: Place, pods: Mapping[Place, Object]) -> bool:
        """Whether there was a pod. One that still runs is not touched here."""
        pod = pods.get(key)
        if pod is None:
            return False
        state = states.read(pod)
        if state.phase is Phase.OVER and not state.leaving:
            await self._delete(await self._path(*key))
        return True

    # look

    async def observe(self, wanted: Sequence[Place]) -> list[Seen]:
        places = [Directory(self._attempts, *place) for place in wanted]
        made = await self._made(places)
        with _answering():
            if len(wanted) > _FEW:
                return await self._see_all(places, await self._pods(), made)
            found = await asyncio.gather(*(self._pod(*place) for place in wanted))
            pods = {
                place: pod for place, pod in zip(wanted, found, strict=True) if pod is not None
            }
            return await self._see_all(places, pods, made)

    async def _made(self, places: Sequence[Directory]) -> set[Place]:
        return await asyncio.to_thread(self._places.launched, places)

    async def present(self) -> list[Place]:
        with _answering():
            pods = await self._pods()
        found = dict.fromkeys(await asyncio.to_thread(self._places.every))
        for key, pod in pods.items():
            if not states.read(pod).is_nothing and self._is_ours(key):
                found.setdefault(key)
        return list(found)

    def _is_ours(self, key: Place) -> bool:
        """Not another engine's of the same server, in the same namespace."""
        if not (all(key) and directories.is_attempt_id(key[0])):
            return False
        known = (self._attempts / key[0]).exists()
        return not known or directories.owner(self._attempts, key[0]) == self.name

    async def _pod(self, attempt_id: str, node: str) -> Object | None:
        return await self._api.find(await self._path(attempt_id, node))

    async def _pods(self) -> dict[Place, Object]:
        server = await asyncio.to_thread(self._server)
        found = await self._api.items(await self._path(), labelSelector=selector(server))
        return {
            (label(each, "attempt"), label(each, "node")): each
            for each in found
            if label(each, "attempt") and label(each, "node")
        }

    async def _see_all(
        self, places: Sequence[Directory], pods: Mapping[Place, Object], made: set[Place]
    ) -> list[Seen]:
        """Of nodes only those are asked for whose pods were told to end: they may be lost."""
        told = {
            place.node
            for place in places
            if (pod := pods.get((place.attempt_id, place.node))) is not None
            and states.read(pod).leaving
        }
        silent = {node: await self._silence(node) for node in told}
        return await asyncio.to_thread(
            lambda: [
                self._places.see(place, pods.get((place.attempt_id, place.node)), silent, made)
                for place in places
            ]
        )

    async def _delete(self, path: str, grace_seconds: int | None = None) -> None:
        """A pod, and what its worker was told."""
        await self._api.delete(path, grace_seconds)
        if self._ask.share.is_none:
            await self._api.delete(_secrets(path))

    async def _silence(self, node: str) -> str:
        return silence(await self._api.find(f"/api/v1/nodes/{node}"))

    # end

    async def end(self, attempt_id: str, node: str) -> Seen:
        place = Directory(self._attempts, attempt_id, node)
        async with self._turns.of(attempt_id):
            with _answering():
                return await asyncio.shield(self._end(place))

    async def _end(self, place: Directory) -> Seen:
        key = (place.attempt_id, place.node)
        path = await self._path(*key)
        made = await self._made([place])
        pod = await self._pod(*key)
        [seen] = await self._see_all([place], {key: pod} if pod else {}, made)
        if pod is not None:
            await self._delete(path, _END_GRACE)
        if seen.sight in (Sight.ABSENT, Sight.ENDED):
            return seen
        why = seen.reason
        begun = time.monotonic()
        while pod is not None and states.read(pod).phase is not Phase.OVER:
            if silent := await self._silence(place.node):
                return await self._fenced(place, silent)
            waited = time.monotonic() - begun
            if states.read(pod).phase is not Phase.RUNS and waited > _BEGIN_SECONDS:
                break  # nothing of it began; what still comes finds the record, and leaves
            if waited > _END_SECONDS:
                told = "the cluster does not end its pod"
                return Seen(place.attempt_id, place.node, Sight.ALIVE, None, told)
            await asyncio.sleep(_LOOK_SECONDS)
            pod = await self._pod(*key)
        if pod is None and (silent := await self._silence(place.node)):
            return await self._fenced(place, silent)  # it is forgotten, not seen to end
        if not place.exists():
            return Seen(place.attempt_id, place.node, Sight.ABSENT)
        return await asyncio.to_thread(self._close, place, why)

    async def _fenced(self, place: Directory, why: str) -> Seen:
        """Nobody can look there."""
        if not place.exists():
            return Seen(place.attempt_id, place.node, Sight.ALIVE, None, why)
        self._places.forget_numbers(place)
        seen = await end_by_fence(place, why, self._lease_seconds, self._command)
        if seen.sight is not Sight.ENDED:
            return seen
        self._places.explain(place, f"its node was lost: {why}")
        return replace(seen, record=place.record())

    def _close(self, place: Directory, why: str) -> Seen:
        """Its processes are gone with its pod. What escaped one, or was started by hand with its
        mark, is looked for on this machine alone."""
        place.put_aside_broken_record()
        told = place.record()
        if told is None:
            self._places.forget_numbers(place)
            failure = reap(self._command, place, _REAP_SECONDS)
            if place.record() is None:
                return Seen(place.attempt_id, place.node, Sight.DEAD, None, failure)
            self._places.explain(place, why)
        return Seen(place.attempt_id, place.node, Sight.ENDED, place.record())

    # forget

    async def forget(self, attempt_id: str) -> None:
        directories.check_attempt_id(attempt_id)
        async with self._turns.of(attempt_id):
            places = list(directories.of_attempt(self._attempts, attempt_id))
            if not places or directories.owner(self._attempts, attempt_id) != self.name:
                return
            with _answering():
                for place in places:
                    made = await self._made([place])
                    pod = await self._pod(attempt_id, place.node)
                    key = (attempt_id, place.node)
                    [seen] = await self._see_all([place], {key: pod} if pod else {}, made)
                    if seen.sight not in (Sight.ENDED, Sight.ABSENT):
                        raise Conflict(
                            f"attempt {attempt_id} on {place.node} is {seen.sight}",
                            hint="end it first",
                        )
                    if pod is not None:
                        await self._delete(await self._path(*key))
                if path := group_path(await self._namespaced()):
                    await self._api.delete(f"{path}/{group_name(attempt_id)}")
            await asyncio.to_thread(directories.remove_attempt, self._attempts, attempt_id)


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """Raises Unavailable where the cluster does not answer: then nothing is known, nothing
    judged."""
    try:
        yield
    except ApiFailed as err:
        raise Unavailable(f"Kubernetes: {err}") from err


def _secrets(path: str) -> str:
    """Beside the pods, and of the same name."""
    base, _, name = path.partition("/pods")
    return f"{base}/secrets{name}"


def _passes(failure: ApiFailed) -> bool:
    """Whether it may go well later: the cluster is silent or busy, or a quota is used up."""
    return failure.unreachable or (failure.status == 403 and "exceeded quota" in str(failure))
