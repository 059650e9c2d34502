"""What a task's blocks cost on a device: each is run alone, forward and backward, and timed.

One block at a time is on the device, so a model can be measured that does not fit there whole. The
loss belongs to the last block, as it does in a pipeline. Nothing is changed by it: parameters,
gradients, running statistics and dice are as before.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from windlass.core.errors import InvalidInput
from windlass.train.cut import Chain, Stage, chain_of
from windlass.train.cut.packing import is_shaped
from windlass.train.cut.pairs import Layers, check_layers, chosen, cut_along, cut_of
from windlass.train.cut.probe import example_of, inputs_of, loss_given
from windlass.train.data import to_device
from windlass.train.planning.profile import BatchTimes, BlockCost, Profile
from windlass.train.task import Task

_WARM_UP = 2
_LEAST, _MOST = 3, 15
_SECONDS = 0.2
"""Of each block: as many repeats as fit, at least and at most those above."""


def measure(
    task: Task,
    device: torch.device | str = "cpu",
    *,
    batches: Sequence[int] | None = None,
    chain: Chain | None = None,
) -> Profile:
    """The profile at the first of `batches`, with the times at the others (default: the task's
    global batch and a quarter of it). No batch is larger than the data set. Raises InvalidInput
    where the model cannot be cut."""
    where = torch.device(device)
    chain = chain or chain_of(task)
    most = task.data.global_batch
    wanted = batches if batches is not None else (most, max(1, most // 4))
    if not wanted or any(each < 1 for each in wanted):
        raise InvalidInput(f"batches: 1 or more (found {list(wanted)})")
    sizes = list(dict.fromkeys(min(each, task.data.size) for each in wanted))
    layers, slices = cut_layers(task)
    with _as_before(task.model, where):
        taken = [_at(task, chain, where, size, layers) for size in sizes]
    first, *others = taken
    return Profile(
        batch=sizes[0],
        blocks=tuple(
            BlockCost(
                block.name, found.forward_ms, found.backward_ms, found.activation_bytes,
                found.parameter_bytes, found.saved_bytes, found.sliced.ms, found.sliced.bytes,
                found.sliced.summed_bytes, found.sliced.sums,
            )
            for block, found in zip(chain.blocks, first, strict=True)
        ),
        edges=chain.edges,
        optimiser_factor=optimiser_factor(task.optimizer),
        others=tuple(
            BatchTimes(
                size,
                tuple(each.forward_ms for each in costs),
                tuple(each.backward_ms for each in costs),
            )
            for size, costs in zip(sizes[1:], others, strict=True)
        ),
        input_bytes=_bytes(_inputs(task, chain, example_of(task, sizes[0]))),
        slices=slices,
    )  # fmt: skip


def cut_layers(task: Task) -> tuple[Layers, int]:
    """The layers that tensor parallelism would cut, and into how many equal slices they can be; 0
    where it would refuse."""
    try:
        layers = chosen(task.model, None)
        check_layers(task.model, layers, 1)
    except InvalidInput:
        return {}, 0
    found = [(task.model.get_submodule(name), how) for name, how in layers.items()]
    linear = [(module, how) for module, how in found if isinstance(module, nn.Linear)]
    return layers, math.gcd(*(module.weight.shape[cut_along(module, h)] for module, h in linear))


def optimiser_factor(optimizer: torch.optim.Optimizer) -> float:
    """Bytes that it keeps for each byte of parameters: found by one step of another of its kind on
    one small parameter; where it cannot be made, from what it holds already, else 2 (Adam's)."""
    small = nn.Parameter(torch.zeros(64, 64))
    small.grad = torch.zeros_like(small)
    size = _bytes([small])
    options = {
        name: value for name, value in optimizer.param_groups[0].items()
        if name in optimizer.defaults and not isinstance(value, Tensor)
    }  # fmt: skip
    try:
        other: Any = type(optimizer)([small], **options)
        other.step()
        return round(_bytes(other.state[small].values()) / size, 2)
    except Exception:  # a class of the user's own, with arguments that nobody knows
        held = sum(_bytes(state.values()) for state in optimizer.state.values())
        stepped = _bytes(list(optimizer.state))
        return round(held / stepped, 2) if stepped else 2.0


@dataclass(frozen=True)
class _Cost:
    forward_ms: float
    backward_ms: float
    activation_bytes: int
    parameter_bytes: int
    saved_bytes: int
    sliced: _Sliced


@dataclass(frozen=True)
class _Sliced:
    """What tensor parallelism would cut of a block."""

    ms: float = 0.0
    bytes: int = 0
    summed_bytes: int = 0
    sums: int = 0


def _at(task: Task, chain: Chain, device: torch.device, size: int, layers: Layers) -> list[_Cost]:
    batch = to_device(example_of(task, size), device)
    values = _inputs(task, chain, batch)
    costs = []
    for number in range(len(chain)):
        stage = chain.stage(number, number)
        home = stage.device
        stage.place(device)
        try:
            found, values = _block(task, chain, stage, values, batch, layers)
        finally:
            if home is not None and home != device:
                stage.place(home)
        costs.append(found)
    return costs


def _block(
    task: Task, chain: Chain, stage: Stage, values: tuple[Any, ...], batch: Any, layers: Layers
) -> tuple[_Cost, tuple[Any, ...]]:
    """Its cost, and what it hands on."""

    def forward() -> tuple[list[Tensor], list[Tensor], tuple[Any, ...]]:
        taken = tuple(_fresh(each) for each in values)
        given = stage(*taken)
        ends = given
        if stage.is_last:
            ends = (loss_given(task, batch, chain.result(given))[0],)
        reached = [each for each in ends if isinstance(each, Tensor) and each.requires_grad]
        wanted = [each for each in taken if isinstance(each, Tensor) and each.requires_grad]
        wanted += [each for each in stage.parameters() if each.requires_grad]
        return reached, wanted, given

    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        # An output that its own node keeps as it is would be a ring that nothing frees.
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each):
        held = forward()
    for own in (*stage.parameters(), *stage.buffers()):
        kept.pop(own.untyped_storage().data_ptr(), None)
    given = held[2]
    made = given if stage.is_last else [given[n] for n in _made(chain, stage.last, given)]
    del held
    device = next((each.device for each in values if isinstance(each, Tensor)), None)
    forwards, backwards = _timed(forward, device or torch.device("cpu"))
    cost = _Cost(
        forwards, backwards, _bytes(made), _bytes(list(stage.parameters())), sum(kept.values()),
        _sliced(stage, layers, forward, forwards + backwards),
    )  # fmt: skip
    return cost, tuple(each.detach() if isinstance(each, Tensor) else each for each in given)


def _sliced(stage: Stage, layers: Layers, forward: Callable[[], Any], time_ms: float) -> _Sliced:
    """Their share of a forward is taken for their share of both."""
    inside = dict(stage.named_modules(remove_duplicate=False))
    cut = {
        module: how for name, how in layers.items()
        if how != "apart" and isinstance(module := inside.get(name), nn.Linear)
    }  # fmt: skip
    if not cut:
        return _Sliced()
    began, spent, summed = [0.0], [0.0], [0, 0]

    def now() -> float:
        device = stage.device
        if device is not None and device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    def before(*_: Any) -> None:
        began[0] = now()

    def after(module: nn.Module, given: Any, found: Tensor) -> None:
        spent[0] += now() - began[0]
        # A sum in backward before one by columns, unless nothing before it learns.
        is_row = cut[module] == "row"  # type: ignore[index]
        if is_row or not stage.is_first:
            summed[0] += 1
            summed[1] += _bytes([found if is_row else given[0]])

    handles = [module.register_forward_pre_hook(before) for module in cut]
    handles += [module.register_forward_hook(after) for module in cut]
    shares = []
    try:
        for _ in range(_LEAST):
            spent[0], summed[0], summed[1] = 0.0, 0, 0
            started = now()
            forward()
            shares.append(spent[0] / max(1e-9, now() - started))
    finally:
        for handle in handles:
            handle.remove()
    share = min(1.0, statistics.median(shares))
    mine = {id(p): p for module, how in cut.items() for p, _ in cut_of(module, how)}
    return _Sliced(share * time_ms, _bytes(list(mine.values())), summed[1], summed[0])


def _made(chain: Chain, block: int, given: tuple[Any, ...]) -> tuple[int, ...]:
    """The places of what this block made; all of them where values are tuples, whose parts are
    not told apart."""
    if is_shaped(given):
        return tuple(range(len(given)))
    return chain.made_by(block)


def _timed(forward: Callable[[], Any], device: torch.device) -> tuple[float, float]:
    """Medians in milliseconds."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    forwards: list[float] = []
    backwards: list[float] = []
    began = now()
    for turn in range(_WARM_UP + _MOST):
        start = now()
        reached, wanted, _ = forward()
        middle = now()
        if reached and wanted:
            seeds = [torch.ones_like(each) for each in reached]
            torch.autograd.grad(reached, wanted, seeds, allow_unused=True)
        end = now()
        if turn >= _WARM_UP:
            forwards.append((middle - start) * 1000)
            backwards.append((end - middle) * 1000 if reached else 0.0)
        if len(forwards) >= _LEAST and end - began > _SECONDS:
            break
    return statistics.median(forwards), statistics.median(backwards)


def _inputs(task: Task, chain: Chain, batch: Any) -> tuple[Any, ...]:
    args, kwargs = inputs_of(task, batch)
    return chain.enter(*args, **kwargs)


def _fresh(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().requires_grad_(value.is_floating_point() or value.is_complex())


def _bytes(values: Any) -> int:
    return sum(
        each.numel() * each.element_size()
        for each in values
        if isinstance(each, Tensor) and each.dim() > 0
    )


@contextmanager
def _as_before(model: nn.Module, device: torch.device) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    kept = [(name, each.detach().clone()) for name, each in model.named_buffers()]
    devices = [device] if device.type == "cuda" else []
    model.train()
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            own = dict(model.named_buffers())
            with torch.no_grad():
                for name, before in kept:
                    own[name].copy_(before)
