"""The seam between the server and its database: two verbs.

A function given to `write` runs in a transaction of its own (its effects are all there or not
at all) and is durable when `write` returns. It may run again after a serialisation failure, so
it must have no effects but those on `conn`. A function given to `read` sees one snapshot.

Both raise `Unavailable` when the database is away (nothing is judged by that), `StorageFull`
when its disk is, and `Unavailable(outcome="unknown")` when the connection broke in COMMIT.
Everything else that `fn` raises comes back as it is, its transaction undone.

A function may `touch(conn, topic)`; those who `listen` to the topic are called on their event
loop once the touch is committed. That is a hint, not a message: hints of a crashed or of
another process never come, so a listener reads the database to learn what happened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


class Store(Protocol):
    dialect: str
    """`sqlite` or `postgresql`: for the few places that must differ."""

    async def write(self, fn: Callable[[Connection], T]) -> T: ...

    async def read(self, fn: Callable[[Connection], T]) -> T: ...

    def listen(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back, on the running loop, after commits that touched the topic.

        Returns what ends it."""

    def quiet_seconds(self) -> float:
        """How long nobody has asked to write, where writes wait for each other: work that can
        wait is done in such gaps. Infinite where they do not."""

    async def close(self) -> None: ...


def deliverable(error: BaseException) -> BaseException:
    """A future refuses a StopIteration and would stay pending for ever; for stores."""
    if isinstance(error, StopIteration):
        return RuntimeError(f"the function raised {error!r}")
    return error
