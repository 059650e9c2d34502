"""Gradients gathered into flat buckets, each handed on as soon as backward has filled it.

    backward:   last layer ───────────────────────► first layer
    buckets:    [ 1 MiB ][      25 MiB      ][      25 MiB     ]
                    └ exchanged while backward goes on

Not torch's DistributedDataParallel: that wraps the model, so the user's loss would be given
something else than the user's model, it must be called once per step, and a worker with an empty
share has nothing to call. Here hooks on the parameters see every gradient, wherever it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from windlass.core.errors import InvalidInput, TrainingFailed

FIRST_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


class Bucket:
    """Parameters of one dtype whose gradients travel as one flat tensor."""

    def __init__(self, index: int, members: Sequence[int], parameters: Sequence[nn.Parameter]):
        self.index = index
        self.members = tuple(members)
        """Their numbers among all parameters."""
        self.parameters = tuple(parameters)
        first = self.parameters[0]
        self.flat = torch.zeros(
            sum(each.numel() for each in parameters), dtype=first.dtype, device=first.device
        )
        self.views: list[Tensor] = []
        offset = 0
        for each in self.parameters:
            self.views.append(self.flat[offset : offset + each.numel()].view(each.shape))
            offset += each.numel()
        self.waiting = len(self.parameters)

    def fill(self) -> None:
        """The gradients into the flat tensor; those that are not there are zero."""
        there, grads = [], []
        for view, parameter in zip(self.views, self.parameters, strict=True):
            if parameter.grad is None:
                view.zero_()
            else:
                there.append(view)
                grads.append(parameter.grad)
                parameter.grad = None
        if there:
            torch._foreach_copy_(there, grads)

    def give(self, unused: frozenset[int] = frozenset()) -> None:
        """The flat tensor's parts as the gradients. Those that nobody used stay None, as they
        would in one process: weight decay and momentum then leave them alone."""
        for number, view, parameter in zip(self.members, self.views, self.parameters, strict=True):
            parameter.grad = None if number in unused else view


class Buckets:
    """All parameters that want a gradient, in buckets in reverse order. `ready` is called with
    each bucket in the same order on every worker, from within backward."""

    def __init__(
        self,
        model: nn.Module,
        ready: Callable[[Bucket], None],
        *,
        first_bytes: int = FIRST_BYTES,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        if not named:
            raise InvalidInput("task.model: no parameter of it wants a gradient")
        self.names = [name for name, _ in named]
        self.parameters = [each for _, each in named]
        self.buckets = list(_cut(self.parameters, first_bytes, bucket_bytes))
        self._home = {
            number: bucket for bucket in self.buckets for number in bucket.members
        }  # fmt: skip
        self._ready = ready
        self._armed = False
        self._next = 0
        self.seen = bytearray(len(named))
        """1 for each parameter whose gradient backward has made in this step."""
        self._hooks = [
            each.register_post_accumulate_grad_hook(self._hook(number))  # type: ignore[no-untyped-call]  # torch has no types here
            for number, each in enumerate(self.parameters)
        ]

    def begin(self) -> None:
        """Before backward."""
        self.seen = bytearray(len(self.parameters))
        for bucket in self.buckets:
            bucket.waiting = len(bucket.parameters)
        self._next = 0
        self._armed = True

    def end(self) -> None:
        """After backward (or in place of one): what it did not reach is zero."""
        self._armed = False
        while self._next < len(self.buckets):
            self._hand_on()

    def forget(self) -> None:
        """Before a step: gradients of the last one are not added to."""
        for each in self.parameters:
            each.grad = None

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _hook(self, number: int) -> Callable[[Tensor], None]:
        bucket = self._home[number]

        def made(_: Tensor) -> None:
            if not self._armed:
                return
            if self.seen[number]:
                if bucket.index < self._next:
                    raise TrainingFailed(
                        f"{self.names[number]}: its gradient came twice in one backward",
                        hint="checkpoint(…, use_reentrant=False) where activations are recomputed",
                    )
                return
            self.seen[number] = 1
            bucket.waiting -= 1
            while self._next < len(self.buckets) and not self.buckets[self._next].waiting:
                self._hand_on()

        return made

    def _hand_on(self) -> None:
        bucket = self.buckets[self._next]
        for number, parameter in zip(bucket.members, bucket.parameters, strict=True):
            if parameter.grad is not None and parameter.grad.is_sparse:
                raise InvalidInput(
                    f"{self.names[number]}: its gradient is sparse, buckets are dense",
                    hint="make that layer with sparse=False",
                )
        bucket.fill()
        self._next += 1
        self._ready(bucket)


def _cut(parameters: Sequence[nn.Parameter], first_bytes: int, bucket_bytes: int) -> list[Bucket]:
    found: list[Bucket] = []
    members: list[int] = []
    size = 0

    def close() -> None:
        if members:
            found.append(Bucket(len(found), members, [parameters[n] for n in members]))
            members.clear()

    for number in reversed(range(len(parameters))):
        each = parameters[number]
        cap = bucket_bytes if found else first_bytes
        alike = not members or (
            parameters[members[0]].dtype == each.dtype
            and parameters[members[0]].device == each.device
        )
        if members and (not alike or size >= cap):
            close()
            size = 0
        members.append(number)
        size += each.numel() * each.element_size()
    close()
    return found
