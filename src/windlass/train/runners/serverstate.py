"""A server's ranges as the state_dicts that torch knows, and back: a checkpoint is not tied to the
number of servers, nor to there being any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from windlass.train.comm.transport import Answer
from windlass.train.ledger import Position
from windlass.train.state.flat import Part, gathered, write
from windlass.train.task import Task

if TYPE_CHECKING:
    from windlass.train.runners.routing import Servers

Slots = list[list[Any]]
"""(part, name, value) of what an optimiser keeps; None where a tensor has the value."""


def assemble(
    task: Task, servers: Servers, answers: Sequence[tuple[list[int], Answer]]
) -> dict[str, Any]:
    """Model and optimiser from what all servers answered to `state`."""
    layout = servers.layout
    values = [torch.empty(p.shape, dtype=p.dtype) for p in layout.parameters]
    values, kept = collected(servers, answers, values)
    model = {name: value.detach().clone() for name, value in task.model.state_dict().items()}
    places = {id(each): at for at, each in enumerate(layout.parameters)}
    for name, each in task.model.named_parameters(remove_duplicate=False):  # tied: both names
        if id(each) in places:
            model[name].copy_(values[places[id(each)]])
    return {
        "model": model,
        "optimizer": {
            "state": {p: k for p, k in zip(layout.places, kept, strict=True) if k}
            or task.optimizer.state_dict()["state"],
            "param_groups": task.optimizer.state_dict()["param_groups"],
        },
    }


def take_apart(
    task: Task, servers: Servers, with_state: bool
) -> tuple[list[list[Tensor]], list[Slots]]:
    """What each range gets of the task's model and optimiser: tensors, and what they are."""
    states: list[dict[str, Any]] = [
        dict(task.optimizer.state.get(each, {})) if with_state else {}
        for each in servers.layout.parameters
    ]
    return shared_out(servers, [each.detach() for each in servers.layout.parameters], states)


def stood(
    answers: Sequence[tuple[list[int], Answer]],
) -> tuple[Position | None, dict[str, Any]]:
    """Which samples are in what all servers answered to `state`, as range 0 has it; and for the
    checkpoint whether that holds for all ranges. Servers answer each for itself: where pushes
    arrive meanwhile, a range may have some that range 0 has not."""
    told = {
        index: each
        for ranges, answer in answers
        for index, each in zip(ranges, answer.header["ranges"], strict=True)
    }
    position = Position.from_json(told[0]["position"]) if 0 in told else None
    versions = [told[index]["version"] for index in sorted(told)]
    is_one = len({(each["version"], str(each["clocks"])) for each in told.values()}) == 1
    return position, {"cut": "one" if is_one else "by range", "versions": json.dumps(versions)}


def collected(
    servers: Servers, answers: Sequence[tuple[list[int], Answer]], values: list[Tensor]
) -> tuple[list[Tensor], list[dict[str, Any]]]:
    """What all servers answered to `state`, for each parameter of the layout: itself, into
    `values`, and what the optimiser keeps of it."""
    kept: list[dict[str, Any]] = [{} for _ in values]
    for ranges, answer in answers:
        rest = iter(answer.tensors)
        for index, told in zip(ranges, answer.header["ranges"], strict=True):
            parts = servers.staging[index].parts
            for part in parts:
                write(part, next(rest), values)
            for at, name, value in told["slots"]:
                _keep(parts[at], name, next(rest) if value is None else value, kept, values)
    return values, kept


def shared_out(
    servers: Servers, values: Sequence[Tensor], states: Sequence[Mapping[str, Any]]
) -> tuple[list[list[Tensor]], list[Slots]]:
    """The same back: what each range gets."""
    shares: list[list[Tensor]] = []
    slots: list[Slots] = []
    for staging in servers.staging:
        tensors = [each.clone() for each in staging.gather(values)]
        own: Slots = []
        for at, part in enumerate(staging.parts):
            for name in states[part.pieces[0].parameter]:
                value = _gathered(part, name, states)
                own.append([at, name, None if isinstance(value, Tensor) else value])
                if isinstance(value, Tensor):
                    tensors.append(value)
        shares.append(tensors)
        slots.append(own)
    return shares, slots


def _keep(
    part: Part, name: str, value: Any, kept: list[dict[str, Any]], like: Sequence[Tensor]
) -> None:
    by_element = isinstance(value, Tensor) and tuple(value.shape) == part.shape
    if by_element:
        for piece in part.pieces:
            state = kept[piece.parameter]
            if name not in state:
                state[name] = torch.zeros(like[piece.parameter].shape, dtype=value.dtype)
        write(part, value, [state.get(name, _NONE) for state in kept])
    else:
        for piece in part.pieces:
            same = value.clone() if isinstance(value, Tensor) else value
            kept[piece.parameter][name] = same


def _gathered(part: Part, name: str, states: Sequence[Mapping[str, Any]]) -> Any:
    first = states[part.pieces[0].parameter][name]
    if not isinstance(first, Tensor) or first.dim() == 0:
        return first
    return gathered(part, [state.get(name, _NONE) for state in states])


_NONE = torch.empty(0)
