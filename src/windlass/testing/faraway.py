"""An engine whose workers run on this machine and see nothing of the server's home: the smallest
one that mirrors, for tests of `worker/mirror` and `server/mirror`.

A local engine over another folder stands for the cluster: it starts workers, and tells which
live. What a worker left is known by what was mirrored to the home alone, never from there.

    windlass engine add far faraway -o folder=/somewhere/else
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from windlass.core.errors import InvalidInput
from windlass.core.resources import Node
from windlass.engines import directory as directories
from windlass.engines import mirroring
from windlass.engines.base import LaunchPlan, Seen, Sight
from windlass.engines.directory import Directory
from windlass.engines.local.engine import LocalEngine

Place = tuple[str, str]
ENTRY_POINT = "faraway = windlass.testing.faraway:FarawayEngine"


class FarawayEngine:
    def __init__(
        self,
        home: Path,
        command: Sequence[str],
        *,
        name: str = "faraway",
        own_url: str = "",
        folder: str = "",
        nodes: int = 1,
    ) -> None:
        self.name = name
        self._attempts = (Path(home).absolute() / "attempts").resolve()
        self._nodes = {f"{name}-{number}": f"fake-{number}" for number in range(nodes)}
        self._there = LocalEngine(Path(folder), command, fake_nodes=nodes)

    @staticmethod
    def options_of(given: Mapping[str, str]) -> dict[str, Any]:
        unknown = set(given) - {"folder", "nodes"}
        if unknown or "folder" not in given:
            raise InvalidInput(f"options: folder, nodes (found {sorted(given)})")
        return {**given, "nodes": int(given.get("nodes", "1"))}

    async def start(self, hint: Callable[[str], None]) -> None:
        await self._there.start(hint)

    async def stop(self) -> None:
        await self._there.stop()

    def facts(self) -> dict[str, Any]:
        return {**mirroring.facts(), "lease_seconds": 600.0, "beat_seconds": 1.0}

    async def check(self) -> list[tuple[str, bool, str]]:
        return await self._there.check()

    async def nodes(self) -> list[Node]:
        theirs = {node.name: node for node in await self._there.nodes()}
        return [
            theirs[inner].model_copy(update={"name": name, "engine": self.name})
            for name, inner in self._nodes.items()
        ]

    async def launch(self, plan: LaunchPlan) -> None:
        for worker in plan.nodes:
            directories.claim(self._attempts, plan.attempt_id, self.name)
            Directory(self._attempts, plan.attempt_id, worker.node).create(worker)
        # The directory there has the cluster's name for the node, the launch has ours.
        theirs = tuple(replace(each, node=self._nodes[each.node]) for each in plan.nodes)
        await self._there.launch(replace(plan, nodes=theirs))

    async def observe(self, wanted: Sequence[Place]) -> list[Seen]:
        seen = await self._there.observe([self._inner(place) for place in wanted])
        pairs = zip(wanted, seen, strict=True)
        return [await asyncio.to_thread(self._see, place, each) for place, each in pairs]

    async def present(self) -> list[Place]:
        found = await asyncio.to_thread(lambda: list(directories.every(self._attempts, self.name)))
        return [(place.attempt_id, place.node) for place in found]

    async def end(self, attempt_id: str, node: str) -> Seen:
        place = Directory(self._attempts, attempt_id, node)
        seen = await self._there.end(*self._inner((attempt_id, node)))
        if not place.exists() or seen.sight is Sight.ALIVE:
            return replace(seen, node=node)
        record = await asyncio.to_thread(
            mirroring.lose, place, seen.reason or "its worker was ended"
        )
        return Seen(attempt_id, node, Sight.ENDED, record)

    async def forget(self, attempt_id: str) -> None:
        await self._there.forget(attempt_id)
        await asyncio.to_thread(directories.remove_attempt, self._attempts, attempt_id)

    def _inner(self, place: Place) -> Place:
        return place[0], self._nodes[place[1]]

    def _see(self, place: Place, seen: Seen) -> Seen:
        """Of what lies there only whether it lives is believed."""
        home = Directory(self._attempts, *place)
        if not home.exists():
            return Seen(*place, Sight.ABSENT)
        if seen.sight not in (Sight.ENDED, Sight.DEAD, Sight.ABSENT):
            return Seen(*place, seen.sight)
        record = home.record()
        if record is not None:
            return Seen(*place, Sight.ENDED, record)
        if seen.sight is Sight.ABSENT:
            return Seen(*place, Sight.ABSENT)  # laid down here, not started there yet
        return Seen(*place, Sight.DEAD, None, home.last_words() or "its worker left no record")
