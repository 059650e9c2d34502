"""Replicas of several workers around servers, on the seats of a town; and their logs done again in
one process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from windlass.train.registry import choose
from windlass.train.runners.ends import cut_batch
from windlass.train.runners.grouped import GroupStrategy
from windlass.train.runners.groupserving import GroupServing
from windlass.train.runners.parted import Outline, PartedLayout, Table
from windlass.train.runners.replica import ReplicaRunner
from windlass.train.runners.shard import Recipe, Row
from windlass.train.seat import Seat
from windlass.train.state.flat import Staging
from windlass.train.task import Task
from windlass.train.testing.tasks import flat
from windlass.train.testing.town import Town

Make = Callable[[], Task]
Pace = Callable[[Seat, int], None]


def chosen(name: str, **options: Any) -> GroupStrategy:
    if name == "ps:pipeline":
        options.setdefault("balance", "blocks")
    found = choose(name, options)
    assert isinstance(found, GroupStrategy)
    return found


@dataclass
class Ended:
    """One member, at the end. `model` is the whole one, where it leads."""

    table: Table
    held: int
    model: Tensor | None = None
    state: Any = None
    rows: Sequence[Row] = ()


def member(
    seat: Seat, strategy: GroupStrategy, tasks: dict[str, Task], steps: range,
    pace: Pace | None = None, state: Any = None, makes_up: bool = False,
) -> Ended:  # fmt: skip
    """`state`: to begin with. `makes_up`: for what lost replicas have left of the samples. Who
    came back goes on where the account has it."""
    task = tasks[seat.name]
    if seat.role == "server":
        with strategy.serving(task, seat) as serving:
            assert isinstance(serving, GroupServing)
            serving.run()
            return Ended([], 0, rows=serving.rows())
    strategy.check(task, seat.workers, seat.servers)
    runner = strategy.runner(task, seat)
    assert isinstance(runner, ReplicaRunner)
    try:
        if state is not None:
            runner.load_shared_state(state)
        for step in range(runner.row or steps.start, steps.stop):
            if pace is not None:
                pace(seat, step)
            runner.step(task.data.batch(task.data.at(step), *strategy.share_of(seat)))
        while makes_up and (shares := runner.rest(steps.stop, last=True)):
            for each in shares:
                runner.step(task.data.open_share(each))
        runner.assemble()
        found = runner.shared_state()
        runner.finish()
        runner.drain()
        held = sum(each.numel() for each in task.model.parameters() if not each.is_meta)
        ended = Ended(runner.replica.table(), held, state=found)
        if seat.leads:
            with runner.as_it_counts() as model:
                ended.model = flat(model)
        return ended
    finally:
        runner.close()


def tasks_for(town: Town, make: Make) -> dict[str, Task]:
    """Made here, one after another: torch's dice are the process's."""
    return {name: make() for name in town.seats}


def trained(
    strategy: GroupStrategy, make: Make, workers: int, servers: int, steps: int | range,
    *, pace: Pace | None = None, state: Any = None,
) -> tuple[Tensor, list[Row], dict[str, Ended], Town]:  # fmt: skip
    torch.set_num_threads(1)
    steps = range(steps) if isinstance(steps, int) else steps
    with Town(workers, servers) as town:
        found = town.call(member, strategy, tasks_for(town, make), steps, pace, state)
    rows = [row for n in range(servers) for row in found[f"server {n}"].rows]
    whole = found["worker 0"].model
    assert whole is not None
    return whole, rows, found, town


# -- the log, again in one process --------------------------------------------------------------


class _Range:
    """One range: what it was at each version, and what makes the next of it."""

    def __init__(self, staging: Staging, first: Sequence[Tensor], recipe: Recipe) -> None:
        self.staging = staging
        self.values = [each.clone().requires_grad_() for each in staging.gather(first)]
        self.history = [[each.detach().clone() for each in self.values]]
        groups = [part.group for part in staging.parts]
        self.numbers = sorted(set(groups))
        self.optimizer = recipe.make(self.values, groups)

    def apply(self, rows: Sequence[Row], pushed: Sequence[Sequence[Tensor]]) -> None:
        count = sum(row.count for row in rows)
        for at, value in enumerate(self.values):
            total = pushed[0][at].clone()
            for more in pushed[1:]:
                total.add_(more[at])
            value.grad = total.div_(count)
        for group, number in zip(self.optimizer.param_groups, self.numbers, strict=True):
            group["lr"] = rows[-1].rates[number] * rows[-1].factor
        self.optimizer.step()
        self.history.append([each.detach().clone() for each in self.values])


def replayed(
    make: Make, strategy: GroupStrategy, table: Table, replicas: int, servers: int,
    rows: Sequence[Row], micro_batches: int,
) -> Tensor:  # fmt: skip
    """The parameters that the log leads to, as one vector. Raises AssertionError on a log that
    contradicts itself. No server's code decides here, and no replica is cut: each plays its steps
    on a whole model, whose ranges it reads at the versions that its members did."""
    first = make()
    layout = PartedLayout(Outline.of(first.optimizer), table)
    initial = _entries(layout, first)
    recipe = Recipe(first.optimizer)
    ranges = [
        _Range(Staging(layout, each), initial, recipe)
        for each in layout.cut(strategy.range_count(servers))
    ]
    players = [make() for _ in range(replicas)]
    pushes: dict[tuple[int, int], list[Row]] = defaultdict(list)
    groups: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        pushes[row.worker, row.number].append(row)
        if row.applied:
            groups[row.range, row.version].append(row)
    computed: dict[tuple[int, int], list[list[Tensor]]] = {}
    while pushes or groups:
        moved = False
        for who in sorted(pushes):
            reads = {index: v for row in pushes[who] for index, v in (row.reads[0] or {}).items()}
            if all(v < len(ranges[int(index)].history) for index, v in reads.items()):
                assert len(reads) == len(ranges), "every part was read"
                task = players[who[0]]
                told = pushes[who][0].shares
                share = tuple(told[0]) if told else (who[0], replicas)
                found = _gradient(
                    task, layout, ranges, reads, pushes[who][0], share, micro_batches
                )
                computed[who] = found
                del pushes[who]
                moved = True
        for index, version in sorted(groups):
            group = groups[index, version]
            ready = all((row.worker, row.number) in computed for row in group)
            if ready and version == len(ranges[index].history) - 1:
                pushed = [computed[row.worker, row.number][index] for row in group]
                ranges[index].apply(group, pushed)
                del groups[index, version]
                moved = True
        assert moved, f"the log contradicts itself: {dict(pushes)} {dict(groups)}"
    values = [torch.empty(each.shape, dtype=each.dtype) for each in layout.parameters]
    for each in ranges:
        for buffer, value in zip(each.staging.buffers, each.history[-1], strict=True):
            buffer.copy_(value)
        each.staging.scatter(values)
    whole = layout.together(values)
    return torch.cat([whole[n].reshape(-1) for n in sorted(whole)])


def _gradient(
    task: Task, layout: PartedLayout, ranges: Sequence[_Range], reads: dict[str, int], row: Row,
    share: tuple[int, int], micro_batches: int,
) -> list[list[Tensor]]:  # fmt: skip
    values = [torch.empty(each.shape, dtype=each.dtype) for each in layout.parameters]
    for index, each in enumerate(ranges):
        kept = each.history[reads[str(index)]]
        for buffer, value in zip(each.staging.buffers, kept, strict=True):
            buffer.copy_(value)
        each.staging.scatter(values)
    parameters = [one for group in task.optimizer.param_groups for one in group["params"]]
    with torch.no_grad():
        for number, value in layout.together(values).items():
            parameters[number].copy_(value)
    batch = task.data.batch(task.data.at(row.steps[0]), *share)
    sums: list[Tensor] | None = None
    count = 0.0
    for content in cut_batch(batch.content, micro_batches):
        total, more = task.loss_of(content)
        found = torch.autograd.grad(total, parameters)
        sums = list(found) if sums is None else [a + b for a, b in zip(sums, found, strict=True)]
        count += more
    assert sums is not None and count == row.count
    entries = [each.of(sums[each.place]).contiguous() for each in layout.slices]
    return [[each.clone() for each in one.staging.gather(entries)] for one in ranges]


def _entries(layout: PartedLayout, task: Task) -> list[Tensor]:
    parameters = [one for group in task.optimizer.param_groups for one in group["params"]]
    return [each.of(parameters[each.place].detach()).contiguous() for each in layout.slices]
