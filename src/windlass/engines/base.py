"""What an engine is: it starts, watches and ends the workers of an attempt. Nothing else.

An engine knows nothing of job states, retries or the database. The reconcile loop is its only
caller. Every call is idempotent by attempt id, may be repeated after a crash, and never waits
for a job to finish. `windlass.testing.engines` holds the suite that every engine passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from windlass.core.resources import Node


@dataclass(frozen=True)
class NodeLaunch:
    """One worker of an attempt: where, and the content of its `launch.json` and `token`."""

    node: str
    launch: dict[str, Any]
    token: str


@dataclass(frozen=True)
class LaunchPlan:
    job_id: str
    attempt_id: str
    attempt: int
    nodes: tuple[NodeLaunch, ...]


class Sight(StrEnum):
    ABSENT = "absent"  # never launched here, and nothing of it runs
    STARTING = "starting"  # launched, not yet seen alive
    ALIVE = "alive"  # its worker holds the lock
    ENDED = "ended"  # its exit record is there and its worker is gone
    DEAD = "dead"  # proof that the worker is gone, and no record: what it left must be ended


@dataclass(frozen=True)
class Seen:
    attempt_id: str
    node: str
    sight: Sight
    record: dict[str, Any] | None = None
    reason: str = ""


class LaunchFailed(Exception):
    """The engine could not start a worker. `transient`: worth another try elsewhere or later.
    `need`: what its nodes had too little left of (`engines/needs.py`), if that was why."""

    def __init__(self, message: str, *, transient: bool = True, need: str = "") -> None:
        super().__init__(message)
        self.transient = transient
        self.need = need


class Engine(Protocol):
    name: str

    async def start(self, hint: Callable[[str], None]) -> None:
        """Begin to watch; `hint(attempt_id)` is called from the event loop's thread when
        something about an attempt may have changed (`hint("")`: about the nodes)."""

    async def stop(self) -> None:
        """Stop watching. What runs goes on running."""

    def facts(self) -> dict[str, Any]:
        """What its workers' `launch.json` holds otherwise than a local worker's."""

    async def check(self) -> list[tuple[str, bool, str]]:
        """Try it on the real thing, within seconds: (what, whether it is well, in words)."""

    async def nodes(self) -> list[Node]:
        """What the engine offers now, net of each node's reserve."""

    async def launch(self, plan: LaunchPlan) -> None:
        """Start the worker on each node of the plan that was not started before.
        Raises LaunchFailed."""

    async def observe(self, wanted: Sequence[tuple[str, str]]) -> list[Seen]:
        """One `Seen` for each (attempt id, node), from evidence, never from memory alone."""

    async def present(self) -> list[tuple[str, str]]:
        """Every (attempt id, node) of which anything is left here, known to the caller or not."""

    async def end(self, attempt_id: str, node: str) -> Seen:
        """End by force: worker, ranks and whatever escaped. Returns what is seen afterwards:
        ENDED with a record (outcome `lost` if the worker left none; `survivors` in it if
        something cannot be killed)."""

    async def forget(self, attempt_id: str) -> None:
        """Remove the files of an attempt that has ended. Its logs go too."""


@runtime_checkable
class Roomy(Protocol):
    """An engine that can tell whether a node has room again to start something."""

    async def lacks(self, node: str) -> str:
        """Try what a start needs, on the real thing. Empty when all of it is there; else what is
        missing, in words."""


@runtime_checkable
class Removable(Protocol):
    """An engine that runs something for itself, such as a cluster of its own."""

    async def remove(self) -> None:
        """It was taken away for good, and nothing runs there: end that too. Called after `stop`,
        by each server, in any order."""
