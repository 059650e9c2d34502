"""What a strategy is: a frozen, checked set of options that makes a runner for each member.

    class LocalSgd(Strategy):
        \"\"\"Each worker steps alone; parameters are averaged every N steps.\"\"\"  ← its line
        name: ClassVar[str] = "local_sgd"
        every: int = Field(10, ge=1, description="steps between two averagings")

`fit(strategy="local_sgd", every=20)` and `fit(strategy=LocalSgd(every=20))` are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import field_validator

from windlass.core.errors import InvalidInput
from windlass.core.strict import Strict

if TYPE_CHECKING:
    from windlass.train.runners.base import Runner, Serving
    from windlass.train.seat import Seat
    from windlass.train.task import Task


class Strategy(Strict):
    """The base. The first sentence of a class's docstring is what `strategies()` prints."""

    name: ClassVar[str] = ""
    on_loss: ClassVar[Literal["abort", "shrink", "rejoin"]] = "abort"
    """When a member dies: all end with its name; the others go on; the others go on and it may
    come back."""
    not_elastic: ClassVar[str] = ""
    """Why its workers do not form anew when one is lost or comes, where they do not."""
    has_servers: ClassVar[bool] = False
    places_model: ClassVar[bool] = False
    """Whether the runner itself moves the model (or its part of it) to the device."""

    @field_validator("*", mode="before")
    @classmethod
    def _as_written(cls, given: Any) -> Any:
        """`replicas=[3, 1]`, as people and command lines write it; what is kept cannot change."""
        return tuple(given) if isinstance(given, list) else given

    def check(self, task: Task, workers: int, servers: int) -> list[str]:
        """Raises InvalidInput on options that cannot work with this task or these numbers; gives
        warnings worth a line (momentum with stale gradients …)."""
        if servers and not self.has_servers:
            raise InvalidInput(f"servers: {self.name} has none (found {servers})")
        return []

    def takes(self, workers: int) -> bool:
        """Whether its options leave it so many: of those who are here an elastic training takes as
        many as it can."""
        return True

    def seed_of(self, seat: Seat) -> int:
        """What torch is seeded with before `make()`: the same on all, so that they begin alike."""
        return seat.seed

    def share_of(self, seat: Seat) -> tuple[int, int]:
        """(index, of how many): the share of each step's samples that this worker takes."""
        return seat.rank, seat.workers

    def tells(self, seat: Seat) -> bool:
        """Whether this worker shows how far the training is: it knows the loss."""
        return seat.rank == 0

    @property
    def together(self) -> int:
        """Workers that hold one model together: they are lost as one, and others go on."""
        return 1

    def runner(self, task: Task, seat: Seat) -> Runner:
        """The worker's side."""
        raise NotImplementedError

    def serving(self, task: Task, seat: Seat) -> Serving:
        """The server's side, of those that have servers."""
        raise NotImplementedError
