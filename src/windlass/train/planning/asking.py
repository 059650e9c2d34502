"""A plan for a model: its blocks are measured here, then everything is as with a saved profile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from windlass.core.errors import InvalidInput
from windlass.core.strict import parse_bytes
from windlass.train import registry
from windlass.train.cut.probe import example_of
from windlass.train.data import to_device
from windlass.train.gang import choose_device
from windlass.train.planning.choosing import KNOWN, answer
from windlass.train.planning.links import Link, parse_link
from windlass.train.planning.measuring import measure, optimiser_factor
from windlass.train.planning.plan import Plan
from windlass.train.planning.probes import HIDDEN, measure_link, measure_overlap
from windlass.train.planning.profile import BlockCost, Profile
from windlass.train.planning.question import Question
from windlass.train.task import Task

_SHARE_OF_DEVICE = 0.9
_LOAD_SECONDS = 0.1


def plan(
    make: Callable[[], Task],
    workers: int | None = None,
    *,
    link: str | None = None,
    overlap: bool | None = None,
    memory: str | int | None = None,
    per_node: int = 1,
    node_link: str | None = None,
    batch: int | None = None,
    device: str | None = None,
    strategies: Iterable[str] | None = None,
) -> Plan:
    """Which strategy, cut where, on how many workers, for what `make()` makes.

    `link` and `node_link` are rates such as "10Gbit"; left out, a link of this machine is
    measured. `memory` is what a worker can hold ("16G"); left out, nine tenths of a GPU, or no
    limit. `strategies` are those to choose from; left out, all that are installed here and that
    the planner knows. Raises InvalidInput, and NeverFits when nothing fits.
    """
    question = question_of(
        make, workers or max(2, torch.cuda.device_count()),
        link=parse_link(link) if link is not None else None, overlap=overlap,
        names=frozenset(strategies) if strategies is not None else None,
        device=device, batch=batch, per_machine=per_node if link is not None else None,
    )  # fmt: skip
    limit = parse_bytes(memory) if memory is not None else question.memory_bytes
    question = replace(
        question,
        memory_bytes=limit,
        per_node=per_node,
        node_link=parse_link(node_link, "node_link") if node_link is not None else None,
    )
    return Plan.of(question, answer(question))


def question_of(
    make: Callable[[], Task],
    workers: int,
    *,
    link: Link | None = None,
    overlap: bool | None = None,
    names: frozenset[str] | None = None,
    device: str | None = None,
    batch: int | None = None,
    per_machine: int | None = None,
    said: Callable[[str], None] = lambda words: None,
) -> Question:
    """Measures what is not given. `per_machine` workers share the cores of one; None: all."""
    task = make()
    if not isinstance(task, Task):
        raise InvalidInput(f"make: it gives a windlass.train.Task (found {type(task).__name__})")
    task.check()
    where = choose_device(device, 0)
    said("measuring the blocks …")
    with _threads_of_one(per_machine or workers):
        profile = profile_of(task, where, said)
    if batch is not None and batch != profile.batch:
        profile = profile.at(batch)
    if link is None:
        said("measuring a link of this machine …")
        link = measure_link()
    if overlap is None:
        hidden = measure_overlap(_load(where)) if workers > 1 else 1.0
        overlap = hidden >= HIDDEN
        said(f"{hidden:.0%} of a transfer hides behind compute")
    memory = None
    if where.type == "cuda":
        total = torch.cuda.get_device_properties(where).total_memory
        memory = int(total * _SHARE_OF_DEVICE)
    known = frozenset(KNOWN) & frozenset(registry.known())
    return Question(
        profile, workers, link, overlap, memory_bytes=memory, shared=True, in_order=True,
        names=names if names is not None else known, by_clock=True,
    )  # fmt: skip


@contextmanager
def _threads_of_one(sharing: int) -> Iterator[None]:
    """As many threads as a worker has where so many share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // sharing))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def profile_of(
    task: Task, device: torch.device, said: Callable[[str], None] = lambda words: None
) -> Profile:
    """Of its blocks; of the whole model as one block where it cannot be cut."""
    try:
        return measure(task, device)
    except InvalidInput as err:
        said(f"the model cannot be cut, so there is no pipeline of it: {err.message}")
        return _whole(task, device)


def _whole(task: Task, device: torch.device) -> Profile:
    size = min(task.data.global_batch, task.data.size)
    model = task.model.to(device)
    content = to_device(example_of(task, size), device)
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor.detach()  # an output that its own node kept would never be freed

    times: list[tuple[float, float]] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each):
        for _ in range(4):
            started = _now(device)
            total, _count = task.loss_of(content)
            middle = _now(device)
            torch.autograd.backward(total)
            times.append((middle - started, _now(device) - middle))
    model.zero_grad(set_to_none=True)
    parameters = sum(each.numel() * each.element_size() for each in model.parameters())
    forward, backward = (1000 * min(each[at] for each in times[1:]) for at in (0, 1))
    block = BlockCost(
        "the whole model",
        forward,
        backward,
        0,
        parameters,
        max(0, sum(saved.values()) - parameters),
    )
    return Profile(size, (block,), (), optimiser_factor(task.optimizer))


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _load(device: torch.device) -> Callable[[], Any]:
    """Some compute of about a tenth of a second, as a backward would do it."""
    matrix = torch.rand(512, 512, device=device)

    def once(count: int) -> None:
        for _ in range(count):
            torch.mm(matrix, matrix)
        _now(device)

    once(3)
    started = time.perf_counter()
    once(10)
    count = max(10, int(10 * _LOAD_SECONDS / max(time.perf_counter() - started, 1e-6)))
    return lambda: once(min(count, 100_000))
