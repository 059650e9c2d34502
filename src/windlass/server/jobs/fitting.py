"""Whether a gang could ever start, asked at submit: on idle nodes, with nobody else there.

The answer for equal wishes is remembered until the nodes change: a sweep of ten thousand jobs asks
once.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.jobs import JobSpec
from windlass.core.resources import Node
from windlass.scheduler.core import Core
from windlass.scheduler.events import Need, NodeUp, Submit
from windlass.server.jobs import asking
from windlass.server.nodes.service import ReadyNodes

_REMEMBERED = 10_000
_Wish = tuple[tuple[Need, ...], str, bool]


class Fitting:
    """What is known of one set of nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._core = Core()
        self._core.apply([NodeUp(asking.offer_of(node)) for node in nodes], 0)
        self._known: dict[_Wish, str | None] = {}

    def never(self, spec: JobSpec) -> str | None:
        """Why this gang could not start even on idle nodes; None when it could."""
        needs = asking.needs_of(spec)
        wish = (needs, *asking.topology_of(spec))
        if wish not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            job = Submit("", "", needs, 0, 0, level=wish[1], required=wish[2])
            self._known[wish] = self._core.never_fits(job)
        return self._known[wish]


class Fits:
    """The same for the nodes there are now."""

    def __init__(self, nodes: ReadyNodes) -> None:
        self._nodes = nodes
        self._known: list[Node] = []
        self._fitting: Fitting | None = None

    async def now(self) -> Fitting | None:
        """None while there is no node at all: then everything waits for one."""
        ready = await self._nodes.ready()
        if ready is not self._known:
            if ready != self._known or self._fitting is None:
                self._fitting = Fitting(ready) if ready else None
            self._known = ready
        return self._fitting
