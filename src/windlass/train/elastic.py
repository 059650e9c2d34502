"""Training that goes on with those who are here, also where a step needs them all.

    generation 1   trains … a worker is lost: what waits for it fails, within seconds
                   the rest agree on who is here, and form the next one
    generation 2   goes on from the newest state that somebody holds whole, else from the newest
                   checkpoint; its ranks share the rest of the samples
                   somebody comes back: all agree on a step, stop there, and form the next one
    generation 3   …

Where a step does not need them all (`Runner.merges`) those who are left first bring together what
each of them has, and an account of the batches that are in it; what a lost one had not delivered
is the first that the next generation does.

Each generation makes the task anew, for its number of workers: a pipeline is cut again, shards are
dealt again. `global_batch` is over all workers, so the arithmetic of a step is the same whatever
their number, and no learning rate changes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from windlass.core.errors import InvalidInput, MemberLost
from windlass.train.comm.transport import Endpoint, Request
from windlass.train.ledger import Position
from windlass.train.membership import Membership
from windlass.train.seat import Seat
from windlass.train.strategy import Strategy

if TYPE_CHECKING:
    from windlass.train.fitting import Plan, Told, Trained
    from windlass.train.trainer import Trainer

_KEY = "handover"


@dataclass
class Held:
    """A whole state in memory, and which samples are in it."""

    position: Position
    shared: Mapping[str, Any]


class Turn:
    """One worker's part in one generation: what it begins with, and what it leaves behind."""

    def __init__(
        self, membership: Membership, begins: Held | None, own: Held | None = None
    ) -> None:
        self.begins = begins
        self.own = own
        """What this worker itself held when the last generation ended."""
        self.began = False
        """Whether the state was loaded: what one held before is old then."""
        self.held: Held | None = None
        """What it holds when the generation is over."""
        self._membership = membership

    def waits(self) -> bool:
        """Whether somebody waits to be let in."""
        return self._membership.waits()

    def begin(self, trainer: Trainer) -> None:
        self.began = True
        runner = trainer.runner
        whole = runner.merges or (runner.applied is not None and not runner.is_spread)
        if not whole and not trainer.saves:
            raise InvalidInput(
                f"elastic: with {trainer.strategy.name} a part of the state is lost with each "
                "worker, so there must be a checkpoint to go on from",
                hint="checkpoint=, and save_every= for as much as may be done again",
            )

    def broke(self, trainer: Trainer) -> None:
        """Somebody was lost. State is before a step or after it; who has the whole keeps it."""
        runner = trainer.runner
        if runner.applied is not None and not runner.is_spread:
            shared = runner.shared_state()
            assert shared is not None, "each has the whole"
            self.held = Held(trainer.position(), shared)

    def is_settled(self, trainer: Trainer) -> bool:
        """Where workers merge, at the end of a generation: whether all samples are used. Else what
        came of it is held."""
        position = trainer.runner.stays()
        if trainer.is_all(position):
            return True
        self.held = Held(position, trainer.runner.merged_state())
        return False

    def stopped(self, trainer: Trainer) -> None:
        """At the step that all agreed on: worker 0 has the whole, or it is on the disk."""
        if trainer.runner.is_spread:
            trainer.save(wait=True)
        else:
            shared = trainer.runner.shared_state()
            if trainer.seat.rank == 0 and shared is not None:
                self.held = Held(trainer.position(), shared)


def check(strategy: Strategy, elastic: tuple[int, int], workers: int | None) -> None:
    """Raises InvalidInput on bounds or a strategy that it has no meaning for."""
    numbers = isinstance(elastic, tuple | list) and len(elastic) == 2
    if not numbers or not all(isinstance(n, int) for n in elastic):
        raise InvalidInput(f"elastic: (least, most) workers (found {elastic!r})")
    least, most = elastic
    if not 1 <= least <= most <= 1024:
        raise InvalidInput(f"elastic: 1 <= least <= most <= 1024 (found {elastic!r})")
    if workers is not None and not least <= workers <= most:
        raise InvalidInput(f"workers: from {least} to {most}, as elastic= says (found {workers})")
    if not any(strategy.takes(n) for n in range(least, most + 1)):
        raise InvalidInput(
            f"elastic: with these options {strategy.name} takes none of {least} to {most} workers"
        )
    if strategy.not_elastic:
        raise InvalidInput(
            f"elastic: {strategy.name}: {strategy.not_elastic}",
            hint="leave elastic= out; restarts= says how often one is started again",
        )


def train(seat: Seat, plan: Plan, told: Told | None) -> Trained | None:
    """One worker's whole training, through all generations. None: there is no place for it any
    more, the others tell what came of it."""
    from windlass.train.fitting import train_once

    assert plan.elastic is not None
    membership = Membership(seat, *plan.elastic, plan.strategy.takes)
    held: Held | None = None
    while True:
        try:
            generation, here = membership.next(None if held is None else held.position.steps)
        except MemberLost:
            if membership.is_over or seat.meeting.is_out:
                return None
            raise
        begins = held if generation.has_state and here.rank == 0 else None
        turn = Turn(membership, begins, held)
        try:
            found = train_once(here, plan, told, turn)
            if found is not None:
                membership.done()
                return found
        except MemberLost:
            if seat.meeting.is_out:
                return None
            if not here.meeting.roster.lost and not here.meeting.is_out:
                raise  # nobody is lost: going on without would be to go on without oneself
        finally:
            here.meeting.leave()
        held = turn.held if turn.began else held
        plan = replace(plan, resume=True)  # what lies there now is this run's


def hand_over(seat: Seat, held: Held | None) -> Held:
    """What worker 0 holds, on all. Raises MemberLost."""
    names = [f"worker {n}" for n in range(seat.workers)]
    operation, limit = "handing over the state", max(60.0, seat.deadline_seconds)
    endpoint = Endpoint(seat.name, seat.meeting.secret, host=seat.host, counters=seat.counters)
    try:
        if held is not None:
            packed = _packed(held)

            def give(request: Request) -> None:
                request.reply({}, [packed], kind="state")

            endpoint.on("handover", give)
            endpoint.publish(seat.meeting, _KEY)
        else:
            peer = endpoint.find(names[0], seat.meeting, deadline_seconds=limit, key=_KEY)
            answer = peer.call("handover", kind="state", step=None, deadline_seconds=limit)
            held = _unpacked(answer.tensors[0])
        seat.meeting.gather(
            "handed", b"1", names, operation=operation, deadline_seconds=limit
        )  # until all have it
        return held
    finally:
        endpoint.close()


def _packed(held: Held) -> torch.Tensor:
    file = io.BytesIO()
    torch.save({"position": held.position.to_json(), "shared": dict(held.shared)}, file)
    return torch.frombuffer(file.getbuffer(), dtype=torch.uint8)


def _unpacked(packed: torch.Tensor) -> Held:
    file = io.BytesIO(packed.numpy().tobytes())
    found = torch.load(file, map_location="cpu", weights_only=True)
    return Held(Position.from_json(found["position"]), found["shared"])
