"""The log of a training with servers, done again in one process: the same bits come out.

A line of the log says which worker's push was applied to which version of a range, at which rate,
and what that worker had read before each of its steps. So each worker is played by a model of its
own, each range by an optimiser of its own, and a line is done as soon as what it needs is there.
Nothing of a server's code decides here: only the log does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from windlass.train.counters import Counters
from windlass.train.runners.filtering import Decoder, Outbox
from windlass.train.runners.server import gradients_added
from windlass.train.runners.serverstrategies import (
    ElasticStrategy,
    GradientStrategy,
    ServerStrategy,
)
from windlass.train.runners.shard import Recipe, Row
from windlass.train.state.flat import Layout, Part, Range, Staging
from windlass.train.task import Task

Values = list[Tensor]


class _Range:
    """One range: what it was at each version, and what makes the next of it."""

    def __init__(self, parts: Sequence[Part], first: Values, recipe: Recipe | None) -> None:
        self.values = [each.clone().requires_grad_() for each in first]
        self.history: list[Values] = [[each.clone() for each in first]]
        groups = [part.group for part in parts]
        self.groups = sorted(set(groups))
        self.optimizer = None if recipe is None else recipe.make(self.values, groups)

    def apply(self, rows: Sequence[Row], pushed: Sequence[Values]) -> None:
        full = [(row, each) for row, each in zip(rows, pushed, strict=True) if each]
        with torch.no_grad():
            if self.optimizer is None:
                for _, deltas in full:
                    for value, delta in zip(self.values, deltas, strict=True):
                        value.add_(delta)
            elif sum(row.count for row, _ in full):
                self._step([each for _, each in full], sum(row.count for row, _ in full), rows[-1])
        self.history.append([each.detach().clone() for each in self.values])

    def _step(self, gradients: Sequence[Values], count: float, last: Row) -> None:
        assert self.optimizer is not None
        for at, value in enumerate(self.values):
            total = gradients[0][at].clone()
            for more in gradients[1:]:
                total.add_(more[at])
            value.grad = total.div_(count)
        for group, number in zip(self.optimizer.param_groups, self.groups, strict=True):
            group["lr"] = last.rates[number] * last.factor
        self.optimizer.step()


class _Player:
    """One worker: it computes its pushes in their order."""

    def __init__(self, task: Task, rank: int, workers: int, strategy: ServerStrategy) -> None:
        self.task = task
        self.place = (rank, workers)
        self.strategy = strategy
        self.layout = Layout(task.optimizer)
        self.stagings: list[Staging] = []
        self.outbox: Outbox | None = None
        self.decoders: list[Decoder] = []

    def sit(self, cut: Sequence[Range]) -> None:
        self.stagings = [Staging(self.layout, each) for each in cut]
        filter = self.strategy.filter
        if filter is not None:
            parts = [each.parts for each in self.stagings]
            self.outbox = Outbox(filter, self.layout, parts, Counters())
            self.decoders = [Decoder(filter, self.layout, each) for each in parts]

    def push(self, row: Row, ranges: Sequence[_Range]) -> list[Values]:
        """What it pushed to each range."""
        if isinstance(self.strategy, ElasticStrategy):
            found = self._exchange(row, ranges, self.strategy.alpha)
        else:
            assert isinstance(self.strategy, GradientStrategy)
            found = self._gradient(row, ranges, self.strategy.fetch_every > 1)
        if found is None:
            return [[] for _ in self.stagings]
        shares = [[each.clone() for each in staging.gather(found)] for staging in self.stagings]
        return shares if self.outbox is None else self._filtered(self.outbox, shares, row.count)

    def _filtered(self, outbox: Outbox, shares: list[Values], count: float) -> list[Values]:
        coded, scale = outbox.code(shares, count)
        outbox.commit()
        if scale is None:
            return coded
        return [decode(each, scale) for decode, each in zip(self.decoders, coded, strict=True)]

    def _read(self, versions: dict[str, int], ranges: Sequence[_Range], into: Values) -> None:
        for index, staging in enumerate(self.stagings):
            for buffer, value in zip(
                staging.buffers, ranges[index].history[versions[str(index)]], strict=True
            ):
                buffer.copy_(value)
            staging.scatter(into)

    def _parameters(self) -> Values:
        return [each.detach() for each in self.layout.parameters]

    def _gradient(
        self, row: Row, ranges: Sequence[_Range], alone: bool
    ) -> list[Tensor | None] | None:
        sums: list[Tensor | None] | None = None
        self.task.optimizer.zero_grad(set_to_none=True)
        for at, read in enumerate(row.reads):
            if read is not None:
                self._read(read, ranges, self._parameters())
            if alone:
                self.task.optimizer.zero_grad(set_to_none=True)
            count = self._backward(row, at)
            gradients = [each.grad for each in self.layout.parameters]
            if not alone:
                sums = gradients
                continue
            sums = gradients_added(sums, gradients)
            self._step(count)
        return sums if row.count else None

    def _exchange(
        self, row: Row, ranges: Sequence[_Range], alpha: float
    ) -> list[Tensor | None] | None:
        mine = self._parameters()
        began, read = row.reads
        if began is not None:  # each begins at the centre as it was then
            self._read(began, ranges, mine)
        for at in range(len(row.steps)):
            self.task.optimizer.zero_grad(set_to_none=True)
            self._step(self._backward(row, at))
        centre = [each.clone() for each in mine]
        assert read is not None
        self._read(read, ranges, centre)
        found = [(own - there).mul_(alpha) for own, there in zip(mine, centre, strict=True)]
        for own, each in zip(mine, found, strict=True):
            own.sub_(each)
        return list(found)

    def _backward(self, row: Row, at: int) -> float:
        place = (row.shares[at] if row.shares else None) or self.place
        batch = self.task.data.batch(self.task.data.at(row.steps[at]), *place)
        if batch.content is None:
            return 0.0
        total, count = self.task.loss_of(batch.content)
        total.backward()  # type: ignore[no-untyped-call]
        return count

    def _step(self, count: float) -> None:
        if count:
            for each in self.layout.parameters:
                if each.grad is not None:
                    each.grad.div_(count)
            self.task.optimizer.step()


def replay(
    make: Callable[[], Task], strategy: ServerStrategy, workers: int, servers: int,
    rows: Sequence[Row],
) -> Tensor:  # fmt: skip
    """The parameters that the log leads to, as one vector. Raises AssertionError on a log that
    contradicts itself: a version that is missing, or applied twice, or read before it was."""
    first = make()
    layout = Layout(first.optimizer)
    cut = layout.cut(strategy.range_count(servers))
    recipe = None if strategy.adds else Recipe(first.optimizer)
    initial = [each.detach() for each in layout.parameters]
    ranges = []
    for staging in (Staging(layout, each) for each in cut):
        ranges.append(_Range(staging.parts, staging.gather(initial), recipe))
    players: dict[int, _Player] = {}
    for rank in range(workers):
        players[rank] = _Player(make(), rank, workers, strategy)
        players[rank].sit(cut)
    pushes, groups = _sorted(rows)
    computed: dict[tuple[int, int], list[Values]] = {}
    while pushes or any(groups.values()):
        moved = False
        for worker, waiting in list(pushes.items()):
            row = waiting[0]
            if all(_there(read, ranges) for read in row.reads):
                computed[worker, row.number] = players[worker].push(row, ranges)
                waiting.pop(0)
                moved = True
                if not waiting:
                    del pushes[worker]
        for index, todo in groups.items():
            version = len(ranges[index].history) - 1
            group = todo.get(version)
            if group and all((row.worker, row.number) in computed for row in group):
                ranges[index].apply(
                    group, [computed[row.worker, row.number][index] for row in group]
                )
                del todo[version]
                moved = True
        assert moved, f"the log contradicts itself: {dict(pushes)} {dict(groups)}"
    return torch.cat([each.reshape(-1) for one in ranges for each in one.history[-1]])


def _sorted(
    rows: Sequence[Row],
) -> tuple[dict[int, list[Row]], dict[int, dict[int, list[Row]]]]:
    """Each worker's pushes in its order; each range's steps by what they were applied to."""
    pushes: dict[int, dict[int, Row]] = defaultdict(dict)
    groups: dict[int, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        pushes[row.worker][row.number] = row
        if row.applied:
            groups[row.range][row.version].append(row)
            assert row.version >= row.read, "applied to what was before it read"
    ordered = {worker: [found[n] for n in sorted(found)] for worker, found in pushes.items()}
    return ordered, {index: dict(found) for index, found in groups.items()}


def _there(read: dict[str, int] | None, ranges: Sequence[_Range]) -> bool:
    return read is None or all(
        version < len(ranges[int(index)].history) for index, version in read.items()
    )
