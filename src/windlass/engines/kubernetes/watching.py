"""When to look: at each change of a pod of ours or of a node, and at all every few seconds.

The cluster tells of changes; a look at everything now and then is for what others' pods hold, for
files that say more than pods, and for a watch that silently stood still.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from windlass.core.errors import Unavailable
from windlass.engines.base import Seen, Sight
from windlass.engines.kubernetes.api import ApiFailed, Change, Listing, Object

log = logging.getLogger("windlass.engines.kubernetes")

Place = tuple[str, str]
Following = Callable[[], AsyncGenerator[Listing | Change, None]]
_OVER = (Sight.ENDED, Sight.DEAD)
_AGAIN_SECONDS = 5.0


class Watch:
    def __init__(self, poll_seconds: float) -> None:
        self._poll_seconds = poll_seconds
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._hint: Callable[[str], None] = lambda attempt_id: None
        self._seen: dict[Place, Sight] = {}

    def start(
        self,
        name: str,
        hint: Callable[[str], None],
        *,
        pods: Following,
        nodes: Following,
        glance: Callable[[Object], Awaitable[Seen | None]],
        look: Callable[[], Awaitable[tuple[object, list[Seen]]]],
    ) -> None:
        """`glance` gives what is seen of one pod's worker, None where that takes a look; `look`
        gives what the nodes offer and what is seen of every worker."""
        self._hint = hint
        self._seen = {}
        self._tasks = [
            asyncio.create_task(
                self._follow(pods, partial(self._pod, glance)), name=f"{name}: pods"
            ),
            asyncio.create_task(self._follow(nodes, self._node()), name=f"{name}: nodes"),
            asyncio.create_task(self._look(look), name=name),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._hint = lambda attempt_id: None

    async def _follow(
        self, following: Following, heard: Callable[[Listing | Change], Awaitable[None]]
    ) -> None:
        while True:
            try:
                async with aclosing(following()) as stream:
                    async for each in stream:
                        await heard(each)
            except ApiFailed as err:
                log.debug("not followed: %s", err)
            except Exception:
                log.exception("not followed")
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _pod(
        self, glance: Callable[[Object], Awaitable[Seen | None]], each: Listing | Change
    ) -> None:
        seen = None
        if isinstance(each, Change) and each.kind != "DELETED":
            seen = await glance(each.item)
        if seen is None:
            self._news.set()
        else:
            self._tell(seen)

    def _node(self) -> Callable[[Listing | Change], Awaitable[None]]:
        """Wakes at a change that means something: nodes tell that they live all the time."""
        known: dict[str, object] = {}

        async def heard(each: Listing | Change) -> None:
            items = each.items if isinstance(each, Listing) else [each.item]
            for item in items:
                gone = isinstance(each, Change) and each.kind == "DELETED"
                found = None if gone else _node_key(item)
                if known.get(item["metadata"]["uid"]) != found:
                    known[item["metadata"]["uid"]] = found
                    self._news.set()

        return heard

    async def _look(self, look: Callable[[], Awaitable[tuple[object, list[Seen]]]]) -> None:
        offered: object = None
        while True:
            self._news.clear()
            try:
                offers, seen = await look()
                if offered is not None and offered != offers:
                    self._hint("")
                offered = offers
                for each in seen:
                    self._tell(each)
                there = {(each.attempt_id, each.node) for each in seen}
                for place in self._seen.keys() - there:
                    del self._seen[place]
            except (ApiFailed, Unavailable) as err:
                log.debug("not looked at: %s", err)
            except Exception:
                log.exception("not looked at")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_seconds):
                    await self._news.wait()

    def _tell(self, seen: Seen) -> None:
        place = (seen.attempt_id, seen.node)
        before = self._seen.get(place)
        self._seen[place] = seen.sight
        if seen.sight in _OVER and before is not seen.sight:
            self._hint(seen.attempt_id)  # that it lives its worker tells the server


def _node_key(node: Object) -> object:
    status, spec = node.get("status") or {}, node.get("spec") or {}
    ready: Any = next(
        (each.get("status") for each in status.get("conditions") or () if each["type"] == "Ready"),
        None,
    )
    return (
        ready,
        spec.get("unschedulable"),
        str(spec.get("taints")),
        str(status.get("allocatable")),
        str(node["metadata"].get("labels")),
    )
