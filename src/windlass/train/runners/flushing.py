"""One worker of a pipeline with a flush: makes its stages, carries out a schedule, steps once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from windlass.train.cut.chain import Chain, chain_of
from windlass.train.cut.stage import release
from windlass.train.data import Batch
from windlass.train.policies.clock import clock
from windlass.train.policies.schedules import Schedule
from windlass.train.runners.base import Outcome, Runner
from windlass.train.runners.ends import Ends, cut_batch
from windlass.train.runners.mesh import Spot
from windlass.train.runners.parting import Parts, parts_of
from windlass.train.runners.post import Post
from windlass.train.runners.sharing import Sharing
from windlass.train.runners.slices import Slices
from windlass.train.runners.stages import Actor, StageWork
from windlass.train.runners.whole import Gathering, load_into
from windlass.train.seat import Seat
from windlass.train.state.portion import Portion
from windlass.train.task import Task

if TYPE_CHECKING:
    from windlass.train.runners.pipeline import Pipelined


class PipelineRunner(Runner):
    is_spread: ClassVar[bool] = True

    def __init__(self, task: Task, seat: Seat, strategy: Pipelined) -> None:
        super().__init__(task, seat)
        self.strategy = strategy
        self.mesh = strategy.mesh(seat.workers)
        self.spot = self.mesh.spot(seat.rank)
        self.stages = self.mesh.places * strategy.stages_each
        self.micro_batches = strategy.micro_batches or 4 * self.mesh.places
        chain = chain_of(task)
        self.parts = self._parts_of(chain)
        """Which blocks each stage has."""
        placing = strategy.schedule(self.stages, 1)
        self._rank_of = [ranks[0] for ranks in placing.rank_of]
        self._holder_names = [
            self.mesh.name(self.spot._replace(place=rank)) for rank in self._rank_of
        ]
        self.works = {
            number: StageWork(
                chain.stage(*self.parts[number]), recompute=strategy.recompute, in_place=True
            )
            for number in placing.stages_of(self.spot.place)
        }
        self._known = list(task.model.state_dict())
        layers = strategy.cut_layers(task)
        with ExitStack() as opened:
            self.post = Post(seat)
            opened.callback(self.post.close)
            firsts = [self.mesh.name(Spot(0, place, 0)) for place in range(self.mesh.places)]
            self._gathering = Gathering(task.model, seat, self.post, firsts)
            self.slices = Slices(self.post, self.mesh.alike(self.spot), layers)
            opened.callback(self.slices.close)
            self.parameters = self._take_parts(task, seat)
            holders = self._holders(chain)
            self.sharing = Sharing(seat, holders, self.parameters, self.mesh.per_replica)
            opened.callback(self.sharing.close)
            self._opened = opened.pop_all()
        self._actor = Actor(self.works, self.post, Ends(task, chain), self._holder)
        self._gathered: dict[str, Any] | None = None
        self._ended: dict[str, Any] | None = None
        """One's part at the end, when worker 0 has the whole in the model's own place."""
        self._is_gathered = False
        """Since the last step: all members agree on it, though only worker 0 has what came."""
        self._steps = 0
        self._schedules: dict[int, Schedule] = {}

    def _parts_of(self, chain: Chain) -> Parts:
        return parts_of(chain, self.task, self.seat, self.strategy, self.stages)

    def _take_parts(self, task: Task, seat: Seat) -> dict[str, Tensor]:
        """This member's stages to its device; the rest of the model is let go of."""
        stages = [work.stage for work in self.works.values()]
        mine = {id(each) for stage in stages for each in stage.parameters()}
        self.portion = Portion(task.optimizer, lambda each: id(each) in mine)
        release(task.model, stages)
        found: dict[str, Tensor] = {}
        for work in self.works.values():
            work.stage.place(seat.device)
            found.update(zip(work.names, work.parameters, strict=True))
        self.slices.cut(stages, task.model, task.optimizer)
        if self.mesh.slices > 1:  # all of a stage throw the same dice, but for what stands apart
            own = self.spot.replica * self.mesh.places + self.spot.place
            torch.manual_seed(seat.seed + 1000003 * (own + 1))
        return found

    def _holders(self, chain: Chain) -> dict[str, tuple[int, ...]]:
        """Of each parameter, or of this worker's slice of it: never those of another slice."""
        found: dict[str, set[int]] = {}
        for stage, (first, last) in enumerate(self.parts):
            for block in chain.blocks[first : last + 1]:
                for name in block.parameters:
                    found.setdefault(name, set()).add(self._rank_of[stage])
        replicas, slice_ = range(self.mesh.replicas), self.spot.slice
        return {
            name: tuple(
                sorted(
                    self.mesh.rank(Spot(replica, place, slice_))
                    for replica in replicas
                    for place in places
                )
            )
            for name, places in found.items()
        }

    def _holder(self, stage: int, batch: int) -> str:
        """What goes from stage to stage is alike on all slices, or of this very slice."""
        return self._holder_names[stage]

    # -- the loop ---------------------------------------------------------------------------

    def step(self, batch: Batch) -> Outcome:
        contents: Sequence[Any] = ()
        if batch.content is not None:
            contents = cut_batch(batch.content, self.micro_batches)
        for work in self.works.values():
            work.forget()
            work.statistics.drop()
        self.slices.begin(batch.cursor.steps)
        self._actor.begin(batch.cursor.steps, contents)
        if contents:
            self._actor.carry_out(self._schedule(len(contents)).ranks[self.spot.place])
        self._apply(batch.cursor.steps)
        if self.spot.slice:
            return Outcome(0.0, 0.0)  # the same samples as the first slice's
        return Outcome(self._actor.loss, self._actor.count)

    def _schedule(self, batches: int) -> Schedule:
        """Seen to run against the clock before anything waits for anything."""
        if batches not in self._schedules:
            found = self.strategy.schedule(self.stages, batches)
            clock(found)
            self._schedules[batches] = found
        return self._schedules[batches]

    def _apply(self, step: int) -> None:
        """All that can fail comes before the first change of a parameter."""
        gradients = self._gradients()
        count = next(iter(self.works.values())).count
        self.slices.compare(gradients, self._actor.loss, count)
        with self.post.awaiting("", "all-reduce over replicas", step):
            count = self.sharing.sum(gradients, count, step)
        self._steps += 1
        self._gathered, self._is_gathered = None, False
        if not count:
            return  # nobody had a sample: there is no gradient
        for name, parameter in self.parameters.items():
            gradient = gradients[name]
            parameter.grad = None if gradient is None else gradient.div_(count)
        self.task.optimizer.step()
        for work in self.works.values():
            work.statistics.commit()
        for parameter in self.parameters.values():
            parameter.grad = None

    def _gradients(self) -> dict[str, Tensor | None]:
        """Of one's own parameters, by name: where stages on one worker share one, of all."""
        return {
            name: gradient
            for work in self.works.values()
            for name, gradient in zip(work.names, work.gradients, strict=True)
        }

    def drain(self) -> None:
        """Worker 0 has the whole model from here on."""
        self.assemble()
        self._ended = self.shared_state()
        if self._gathered is not None:
            self.slices.fill(self._gathered)
            self._gathering.fill(self._gathered)
        self.post.settle("end of the training", self._steps)
        self.sharing.part()
        self.slices.part()

    def close(self) -> None:
        self._opened.close()

    # -- the whole model --------------------------------------------------------------------

    def assemble(self) -> None:
        if not self._is_gathered:
            model = self._state()
            if self.spot.replica == 0:
                model = self.slices.gathered(model)
            self._gathered = self._gathering.gather(model, self._steps)
            self._is_gathered = True

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for work in self.works.values():
            found.update(work.stage.state())
        return found

    @contextmanager
    def as_it_counts(self) -> Iterator[nn.Module]:
        assert self._gathered is not None, "assemble() comes before"
        with ExitStack() as stack:
            stack.enter_context(self.slices.whole(self._gathered))
            model = stack.enter_context(self._gathering.filled(self._gathered))
            stack.enter_context(self.post.at_work())
            yield model

    def shared_state(self) -> dict[str, Any] | None:
        """One's own stages, or slices of them; the first replica has all of it."""
        if self.spot.replica or self._ended is not None:
            return self._ended
        state = self.slices.parts_of_state(self.portion.state(), self.portion.kept)
        return {
            "model": self.slices.parts(self._state()),
            "optimizer": self.portion.whole([state]),
        }

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        load_into(self._state(), self.slices.pieces(state["model"]), self._known)
        optimizer = self.slices.pieces_of_state(state["optimizer"], self.portion.kept)
        self.portion.load(optimizer)
        self._gathered, self._is_gathered = None, False
