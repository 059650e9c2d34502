"""The whole model on worker 0, of which each member holds a part.

gathering = Gathering(task.model, seat, post, sources)     before parts are let go of
found = gathering.gather(stage.state(), step)              all call it; None but on worker 0
with gathering.filled(found): evaluate(task.model)         others' parts are there, for a while
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.runners.post import Key, Post
from windlass.train.seat import Seat


class Gathering:
    def __init__(self, model: nn.Module, seat: Seat, post: Post, sources: Sequence[str]) -> None:
        """Made before the model's parts are let go of. `sources`: those who give worker 0 theirs
        (of a stage's replicas the first)."""
        self._model = model
        self._seat = seat
        self._post = post
        self._sources = [name for name in sources if name != "worker 0"]
        self._round = 0
        self._order = list(model.state_dict())
        # Buffers that no state_dict has: each member made them alike, so nobody sends them.
        self.made: dict[str, Tensor] = {}
        if seat.rank == 0:
            known = set(self._order)
            self.made = {
                name: each for name, each in model.named_buffers(remove_duplicate=False)
                if name not in known
            }  # fmt: skip

    def gather(self, mine: Mapping[str, Any], step: int) -> dict[str, Any] | None:
        """The whole model's `state_dict()`. All members call it at the same step. Those that are
        not worker 0 get None, once what they gave is there: it may be changed again."""
        self._round += 1
        seat = self._seat
        if seat.rank:
            if seat.name in self._sources:
                values, told = _told(mine)
                key = Key("gathering", seat.rank, step, self._round)
                self._post.give("worker 0", key, values, told, kind="parameters")
                self._post.settle("gathering the model", step, at_least_seconds=120)
            return None
        found = dict(mine)
        for name in self._sources:
            rank = int(name.removeprefix("worker "))
            key = Key("gathering", rank, step, self._round)
            # Not to the device: there may be no room for the whole.
            parcel = self._post.take(key, name, device=torch.device("cpu"))
            found.update(_heard(parcel.values, parcel.header))
        return {name: found[name] for name in self._order if name in found}

    @contextmanager
    def filled(self, gathered: Mapping[str, Any]) -> Iterator[nn.Module]:
        """The model with everybody's parts; without the others' again after."""
        undo = self.fill(gathered)
        try:
            yield self._model
        finally:
            undo()

    def fill(self, gathered: Mapping[str, Any]) -> Callable[[], None]:
        """Others' parts into the model, on this member's device. What is given back takes them
        out again."""
        values = {**self.made, **gathered}
        before: list[tuple[dict[str, Any], str, Any]] = []
        put: dict[int, Any] = {}
        for path, module in self._model.named_modules(remove_duplicate=False):
            for table in (module._parameters, module._buffers):
                for name, held in table.items():
                    if held is None or not held.is_meta:
                        continue
                    full = f"{path}.{name}" if path else name
                    if id(held) not in put:
                        there = values[full].detach().to(self._seat.device, copy=True)
                        wants = isinstance(held, nn.Parameter)
                        put[id(held)] = nn.Parameter(there, held.requires_grad) if wants else there
                    before.append((table, name, held))
                    table[name] = put[id(held)]

        def undo() -> None:
            for table, name, held in before:
                table[name] = held

        return undo


def load_into(own: Mapping[str, Any], saved: Mapping[str, Any], known: Sequence[str]) -> None:
    """One's own part of a saved `state_dict()` of the whole model, whose names are `known`.
    Raises ValueError where it is another model's."""
    missing = [name for name in known if name not in saved]
    surplus = [name for name in saved if name not in known]
    if missing or surplus:
        raise ValueError(f"missing: {missing}, unexpected: {surplus}")
    for name, value in own.items():
        if not isinstance(value, Tensor):
            continue
        found = saved[name]
        if value.shape != found.shape:
            raise ValueError(f"{name}: {tuple(found.shape)}, not {tuple(value.shape)}")
        value.detach().copy_(found)


def _told(mine: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    values: list[Any] = []

    def place(name: str, value: Any) -> Any:
        if isinstance(value, Tensor):
            values.append(value.detach())
            return {"at": len(values) - 1}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise InvalidInput(
            f"{name}: a {type(value).__name__} in its state cannot be sent to worker 0",
            hint="tensors, numbers and words can",
        )

    return values, {"model": {name: place(name, value) for name, value in mine.items()}}


def _heard(values: Sequence[Any], told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: values[value["at"]] if isinstance(value, dict) else value
        for name, value in told["model"].items()
    }
