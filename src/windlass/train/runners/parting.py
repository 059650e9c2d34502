"""Where a model is cut into stages: as it was told, or where worker 0 finds them most alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field

from windlass.core.errors import InvalidInput
from windlass.train.cut.balance import balance
from windlass.train.cut.chain import Chain
from windlass.train.seat import Seat
from windlass.train.task import Task

Parts = tuple[tuple[int, int], ...]
"""First and last block of each stage."""
Balance = Annotated[
    Literal["time", "parameters", "blocks"],
    Field(
        description="what is made alike over the stages: measured time, parameters, or the number "
        "of blocks"
    ),
]
Cuts = Annotated[
    tuple[int | str, ...] | None,
    Field(
        description="the block (number or name) with which each stage but the first begins; "
        "default: where `balance` puts them"
    ),
]
_SECONDS = 600.0
"""The longest wait for worker 0 to have measured the blocks."""


class Cutting(Protocol):
    """What a strategy says of it."""

    name: ClassVar[str]

    @property
    def cuts(self) -> Cuts: ...
    @property
    def balance(self) -> Balance: ...


def parts_of(chain: Chain, task: Task, seat: Seat, strategy: Cutting, stages: int) -> Parts:
    """Where the model is cut: as it was told, or as worker 0 finds best."""
    blocks = len(chain.blocks)
    if stages > blocks:
        raise InvalidInput(
            f"workers: {strategy.name} needs a block for each of {stages} stages, and the model "
            f"has {blocks}",
            hint="fewer workers, or a model cut into more blocks: Task(…, blocks=…)",
        )
    if strategy.cuts is not None:
        return _told(chain, strategy.cuts)
    if seat.workers == 1:
        return balance([1.0] * blocks, stages)
    key = "pipeline/parts"
    came_back = seat.name in seat.meeting.roster.fell
    if seat.rank == 0 and not came_back:  # else as it was: the others hold theirs
        found = balance(_costs(chain, task, seat, strategy.balance), stages)
        seat.meeting.put(key, json.dumps(found).encode())
        return found
    told = seat.meeting.get(
        key, owner="worker 0", operation="measuring the blocks",
        deadline_seconds=max(_SECONDS, seat.deadline_seconds),
    )  # fmt: skip
    return tuple((first, last) for first, last in json.loads(told))


def _costs(chain: Chain, task: Task, seat: Seat, how: Balance) -> list[float]:
    if how == "blocks":
        return [1.0] * len(chain.blocks)
    if how == "parameters":
        sizes = {name: each.numel() for name, each in task.model.named_parameters()}
        return [
            float(sum(sizes.get(name, 0) for name in block.parameters)) for block in chain.blocks
        ]
    # A second of import that nobody else needs.
    from windlass.train.planning.measuring import measure

    batch = max(1, task.data.global_batch // 4)
    profile = measure(task, seat.device, batches=(batch,), chain=chain)
    return [each.forward_ms + each.backward_ms for each in profile.blocks]


def _told(chain: Chain, cuts: Sequence[int | str]) -> Parts:
    names = [block.name for block in chain.blocks]
    starts = [0]
    for cut in cuts:
        if isinstance(cut, str) and cut not in names:
            raise InvalidInput(
                f"cuts: there is no block {cut!r}", hint=f"blocks: {', '.join(names[:40])}"
            )
        start = names.index(cut) if isinstance(cut, str) else cut
        if not starts[-1] < start < len(names):
            raise InvalidInput(
                f"cuts: from 1 to {len(names) - 1}, each behind the one before (found "
                f"{list(cuts)})"
            )
        starts.append(start)
    ends = [*(start - 1 for start in starts[1:]), len(names) - 1]
    return tuple(zip(starts, ends, strict=True))
