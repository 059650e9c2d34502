"""One member's part of a pipeline: forward and backward of its stages, in a schedule's order.

    actor = Actor(works, post, ends, holder)         works: the StageWork of each stage held here
    actor.begin(step, content)                       content: the micro-batches, by number
    actor.carry_out(schedule.ranks[rank])            F, B, I, W; U calls `update`
    works[2].gradients                               sums over the micro-batches, by parameter

    stage s-1 ──(values)── forward ──> stage s ──(values)── forward ──> stage s+1
              <─ backward ──(gradients, count)──         <─ backward ──(gradients, count)──

The last stage knows of how many samples its loss is the sum; the count goes backward with the
gradients, so each stage can divide by it once, at its step.

What `Actor` leaves to be changed: `parameters_for` (a forward with other versions of the
parameters), `stamp` and `came` (what goes along with it), `took` (what becomes of a backward's
gradients) and `update`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from windlass.train.cut.normalise import Deferred
from windlass.train.cut.recompute import again
from windlass.train.policies.schedules import Action
from windlass.train.runners.ends import Ends
from windlass.train.runners.post import Key, Post
from windlass.train.runners.splitting import Split

if TYPE_CHECKING:
    from windlass.train.cut.stage import Stage

Gradients = tuple[Tensor | None, ...]
Loss = Callable[[tuple[Any, ...]], tuple[Tensor, float]]


@dataclass
class Kept:
    """What a forward leaves for its backward."""

    inputs: tuple[Any, ...]
    """Tensors that take a gradient are leaves that ask for one."""
    parameters: tuple[Tensor, ...]
    """Those it was computed with, in the order of the stage's own."""
    outputs: tuple[Any, ...] | None
    """None: they are computed again."""
    loss: Loss | None = None
    again: Callable[[], tuple[Any, ...]] | None = None
    total: Tensor | None = None
    count: float = 0.0
    split: Split | None = None


@dataclass
class Back:
    """What a backward gives. Gradients are of the sum of the losses, never scaled."""

    inputs: Gradients
    """For each of the stage's inputs its gradient, or None."""
    parameters: Gradients
    """For each of the stage's parameters, in their order. Empty after the first half, and where
    they are in `.grad` already."""
    count: float
    loss: Tensor | None = None
    """Of the last stage: the sum, detached."""


class StageWork:
    """One stage: computes, keeps what backward needs, adds up gradients. Knows no messages."""

    def __init__(self, stage: Stage, *, recompute: bool = False, in_place: bool = False) -> None:
        """`in_place`: forwards use the stage's own parameters, always, and sums of gradients are
        these parameters' `.grad`, where autograd itself adds while they are at hand: a tenth less
        to compute. A parameter that several stages have then has the sum over all of them."""
        self.stage = stage
        self.recompute = recompute
        self.in_place = in_place
        self.parameters: tuple[Tensor, ...] = tuple(stage.parameters())
        self.names: tuple[str, ...] = tuple(stage.parameter_names)
        self._sums: list[Tensor | None] = [None] * len(self.parameters)
        self.count = 0.0
        """Samples (or what the loss counts) in `gradients`."""
        self.kept: dict[int, Kept] = {}
        self.statistics = Deferred(stage)
        """Of batch normalisation: moved once a step, by who steps."""
        self.own_names = [name for name, _ in stage.named_parameters()]

    # -- forward ----------------------------------------------------------------------------

    def forward(
        self,
        batch: int,
        values: Sequence[Any],
        *,
        parameters: Sequence[Tensor] | None = None,
        loss: Loss | None = None,
    ) -> tuple[Any, ...]:
        """Keeps what the backward of this batch needs. `parameters`: other tensors in the place
        of the stage's own; the backward's gradients are then of these. `loss`: of the last stage,
        called with what it gives."""
        assert batch not in self.kept, f"batch {batch} is in flight already"
        assert parameters is None or not self.in_place
        inputs = tuple(_leaf(each) for each in values)
        given = None if parameters is None else tuple(parameters)
        run = _Run(self, inputs, given)
        used = self.parameters if given is None else given
        kept = Kept(inputs, used, None, loss)
        if self.recompute:
            # The last stage waits for its backward, which comes next or is as long as it anyhow.
            outputs = () if loss is not None else run.first()
            kept.again = run.again
        else:
            outputs = kept.outputs = run()
            self._take_loss(kept)
        self.kept[batch] = kept
        return outputs

    def _take_loss(self, kept: Kept) -> None:
        if kept.loss is not None:
            assert kept.outputs is not None
            kept.total, kept.count = kept.loss(kept.outputs)
            kept.outputs = (kept.total,)

    # -- backward ---------------------------------------------------------------------------

    def backward(self, batch: int, gradients: Sequence[Any] = (), count: float = 0.0) -> Back:
        """The whole. `gradients` of what the forward gave, and the count that came with them;
        both are the last stage's own to know."""
        kept, starts, seeds = self._begin(batch, gradients)
        del self.kept[batch]
        inputs = _asking(kept.inputs)
        found: Gradients = (None,) * len(inputs)
        parameters: Gradients = ()
        if self.in_place:
            if starts:
                torch.autograd.backward(starts, seeds)
            found = tuple(each.grad for each in inputs)
        else:
            asking = _asking(kept.parameters)
            every: Gradients = (None,) * (len(inputs) + len(asking))
            if starts and every:
                every = torch.autograd.grad(
                    starts, [*inputs, *asking], seeds, allow_unused=True
                )  # fmt: skip
            found = every[: len(inputs)]
            parameters = _among(kept.parameters, every[len(inputs) :])
        return Back(
            _among(kept.inputs, found),
            parameters,
            kept.count if kept.loss is not None else count,
            None if kept.total is None else kept.total.detach(),
        )

    def input_gradient(
        self, batch: int, gradients: Sequence[Any] = (), count: float = 0.0
    ) -> Back:
        """The first half: the inputs' only."""
        kept, starts, seeds = self._begin(batch, gradients)
        kept.count = kept.count if kept.loss is not None else count
        kept.split = Split(starts, seeds, _asking(kept.inputs), _asking(kept.parameters))
        found = kept.split.inputs()
        loss = None if kept.total is None else kept.total.detach()
        back = Back(_among(kept.inputs, found), (), kept.count, loss)
        kept.inputs, kept.outputs, kept.total = (), None, None
        return back

    def weight_gradient(self, batch: int) -> Back:
        """The second half: the parameters'."""
        kept = self.kept.pop(batch)
        assert kept.split is not None, f"no first half of batch {batch}"
        if self.in_place:
            kept.split.add_up()
            return Back((), (), kept.count)
        return Back((), _among(kept.parameters, kept.split.weights()), kept.count)

    def _begin(
        self, batch: int, gradients: Sequence[Any]
    ) -> tuple[Kept, list[Tensor], list[Tensor | None]]:
        """The outputs from which backward begins, and their gradients."""
        kept = self.kept[batch]
        if kept.again is not None:
            kept.outputs = kept.again()
            kept.again = None
            self._take_loss(kept)
        assert kept.outputs is not None
        if kept.loss is not None:
            total = kept.outputs[0]
            return kept, [total] if total.requires_grad else [], [None] * total.requires_grad
        pairs = [
            (output, gradient)
            for output, gradient in zip(kept.outputs, gradients, strict=True)
            if isinstance(output, Tensor) and output.requires_grad and gradient is not None
        ]
        return kept, [output for output, _ in pairs], [gradient for _, gradient in pairs]

    # -- sums -------------------------------------------------------------------------------

    @property
    def gradients(self) -> list[Tensor | None]:
        """Sums over the batches so far, in the order of the parameters."""
        return [each.grad for each in self.parameters] if self.in_place else self._sums

    def add(self, gradients: Gradients, count: float) -> None:
        """To the sums: of the samples so far."""
        self.count += count
        if not gradients:
            return
        sums = self.gradients
        with torch.no_grad():
            for place, gradient in enumerate(gradients):
                if gradient is None:
                    continue
                before = sums[place]
                if before is not None:
                    before.add_(gradient)
                    continue
                # Its own memory: autograd may give the same tensor in two places.
                first = gradient.detach().clone()
                if self.in_place:
                    self.parameters[place].grad = first
                else:
                    sums[place] = first

    def forget_sums(self) -> None:
        self._sums = [None] * len(self.parameters)
        self.count = 0.0
        if self.in_place:
            for each in self.parameters:
                each.grad = None

    def forget(self) -> None:
        """Sums and what is kept: the beginning of a step."""
        self.forget_sums()
        self.kept.clear()


class _Run:
    """A forward that can be done again as it was: with the same random numbers."""

    def __init__(
        self, work: StageWork, inputs: tuple[Any, ...], parameters: tuple[Tensor, ...] | None
    ) -> None:
        self._work = work
        self._inputs = inputs
        self._parameters = parameters
        self._dice: Dice | None = None

    def __call__(self) -> tuple[Any, ...]:
        if self._parameters is None:
            return tuple(self._work.stage(*self._inputs))
        given = dict(zip(self._work.own_names, self._parameters, strict=True))
        return tuple(torch.func.functional_call(self._work.stage, given, self._inputs))

    def first(self) -> tuple[Any, ...]:
        """Without a graph. What can take a gradient asks for one all the same: whether it will
        get any is known when it is done again."""
        self._dice = Dice.now(self._device())
        with torch.no_grad():
            found = self()
        return tuple(
            each.detach().requires_grad_()
            if isinstance(each, Tensor) and (each.is_floating_point() or each.is_complex())
            else each
            for each in found
        )

    def _device(self) -> torch.device | None:
        """Where it throws: a stage without parameters works where its inputs are."""
        tensors = (each.device for each in self._inputs if isinstance(each, Tensor))
        return self._work.stage.device or next(tensors, None)

    def again(self) -> tuple[Any, ...]:
        if self._dice is None:
            return self()
        with self._dice.replayed(), again(self._work.stage):
            return self()


@dataclass
class Dice:
    """The state of torch's random numbers here: this machine's, and the device's."""

    here: Tensor
    device: torch.device | None
    there: Tensor | None

    @classmethod
    def now(cls, device: torch.device | None) -> Dice:
        if device is None or device.type != "cuda":
            return cls(torch.get_rng_state(), None, None)
        return cls(torch.get_rng_state(), device, torch.cuda.get_rng_state(device))

    def restore(self) -> None:
        torch.set_rng_state(self.here)
        if self.there is not None and self.device is not None:
            torch.cuda.set_rng_state(self.there, self.device)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """These inside; after, those of before."""
        before = Dice.now(self.device)
        self.restore()
        try:
            yield
        finally:
            before.restore()


def _leaf(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    return value


def _asking(values: Sequence[Any]) -> list[Tensor]:
    return [each for each in values if isinstance(each, Tensor) and each.requires_grad]


def _among(values: Sequence[Any], gradients: Sequence[Tensor | None]) -> Gradients:
    """For each value its gradient, None where it asks for none."""
    left = iter(gradients)
    return tuple(
        next(left) if isinstance(each, Tensor) and each.requires_grad else None for each in values
    )


# -- the actor ------------------------------------------------------------------------------------


class Actor:
    """Carries out a rank's actions: takes what they need, does them, gives what they make."""

    def __init__(
        self,
        works: Mapping[int, StageWork],
        post: Post,
        ends: Ends,
        holder: Callable[[int, int], str],
    ) -> None:
        """`holder(stage, batch)`: the name of the member that has this batch at this stage."""
        self.works = works
        self.post = post
        self.ends = ends
        self.holder = holder
        self.step = 0
        self.content: Mapping[int, Any] | Sequence[Any] = {}
        """What is trained on, by the number of the batch."""
        self.loss: Tensor | float = 0.0
        """Sum over the step so far, where the last stage is here."""
        self.count = 0.0
        self._do: dict[str, Callable[[Action], None]] = {
            "F": self.forward, "B": self.backward, "I": self.input_gradient,
            "W": self.weight_gradient, "U": self.update,
        }  # fmt: skip

    def begin(self, step: int, content: Mapping[int, Any] | Sequence[Any]) -> None:
        """A step: keys of messages carry its number."""
        self.step, self.content = step, content
        self.loss, self.count = 0.0, 0.0

    def carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self._do[action.kind](action)
            self.post.done += 1

    # -- actions ----------------------------------------------------------------------------

    def forward(self, action: Action) -> None:
        stage, batch = action.stage, action.batch
        work = self.works[stage]
        loss: Loss | None = None
        if work.stage.is_first:
            values = self.ends.inputs(self.content[batch])
        else:
            key = Key("forward", stage, self.step, batch)
            parcel = self.post.take(key, self.holder(stage - 1, batch))
            values = parcel.values
            self.came(action, parcel.header)
        if work.stage.is_last:
            content = self.content[batch]
            loss = lambda found: self.ends.loss(found, content)  # noqa: E731
        found = work.forward(
            batch, values, parameters=self.parameters_for(stage, batch), loss=loss
        )
        if not work.stage.is_last:
            key = Key("forward", stage + 1, self.step, batch)
            self.post.give(
                self.holder(stage + 1, batch), key, found, self.stamp(action), kind="activation"
            )

    def backward(self, action: Action) -> None:
        gradients, count = self._arrived(action)
        back = self.works[action.stage].backward(action.batch, gradients, count)
        self._return(action, back)
        self.took(action, back)

    def input_gradient(self, action: Action) -> None:
        gradients, count = self._arrived(action)
        back = self.works[action.stage].input_gradient(action.batch, gradients, count)
        self._return(action, back)

    def weight_gradient(self, action: Action) -> None:
        self.took(action, self.works[action.stage].weight_gradient(action.batch))

    def _arrived(self, action: Action) -> tuple[tuple[Any, ...], float]:
        stage, batch = action.stage, action.batch
        if self.works[stage].stage.is_last:
            return (), 0.0
        key = Key("backward", stage, self.step, batch)
        parcel = self.post.take(key, self.holder(stage + 1, batch))
        return parcel.values, float(parcel.header["count"])

    def _return(self, action: Action, back: Back) -> None:
        stage, batch = action.stage, action.batch
        if back.loss is not None:
            self.loss = self.loss + back.loss
            self.count += back.count
        if not self.works[stage].stage.is_first:
            key = Key("backward", stage - 1, self.step, batch)
            self.post.give(
                self.holder(stage - 1, batch), key, back.inputs, {"count": back.count},
                kind="gradient",
            )  # fmt: skip

    # -- what may be done otherwise ---------------------------------------------------------

    def parameters_for(self, stage: int, batch: int) -> Sequence[Tensor] | None:
        """With which a batch goes forward; None: the stage's own."""
        return None

    def stamp(self, action: Action) -> dict[str, Any]:
        """What goes forward beside the values: plain values."""
        return {}

    def came(self, action: Action, stamp: dict[str, Any]) -> None:
        """The stamp of the stage before, just before the forward."""

    def took(self, action: Action, back: Back) -> None:
        """A backward (or its second half) is done: its gradients are added to the stage's."""
        self.works[action.stage].add(back.parameters, back.count)

    def update(self, action: Action) -> None:
        raise NotImplementedError("a schedule that flushes has no updates of its own")
