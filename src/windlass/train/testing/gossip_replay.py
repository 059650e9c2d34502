"""The traces of gossiping workers, played again in one process: the same bits must come out.

A worker's trace is its own order of events; what one needs of another (an offer, a share, a
difference) names it. Any order that keeps both gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from windlass.train.policies import threshold
from windlass.train.runners.vectors import Flattened, Vectors, parameters_of
from windlass.train.task import Task

Trace = Sequence[tuple[Any, ...]]


class Player:
    """One worker: its model and optimiser, its vectors, how far its trace is."""

    def __init__(self, rank: int, task: Task, trace: Trace, workers: int) -> None:
        self.rank = rank
        self.task = task
        self.trace = trace
        self.workers = workers
        self.next = 0
        self.parameters: Flattened = parameters_of(task.model)
        self.x: Vectors = self.parameters.read()
        self.w = 1.0
        self.residual: Vectors = [each.new_zeros(each.shape) for each in self.x]
        self.number = 0

    def gradient(self, steps: int) -> bool:
        """At the model as it is, of the batch after so many steps. False: an empty share."""
        batch = self.task.data.batch(self.task.data.at(steps), self.rank, self.workers)
        self.task.optimizer.zero_grad()
        if batch.content is None:
            return False
        total, count = self.task.loss_of(batch.content)
        total.backward()  # type: ignore[no-untyped-call]
        for each in self.task.model.parameters():
            if each.grad is not None:
                each.grad.div_(count)
        return True


Play = Callable[[Player, tuple[Any, ...], dict[Any, Vectors]], bool]
"""One event of a player; False when what it needs of another is not there yet."""


def replay(
    make: Callable[[], Task], traces: Mapping[int, Trace], workers: int, play: Play
) -> dict[int, Vectors]:
    """Each worker's vectors at the end. Raises AssertionError on traces that do not fit."""
    players = [Player(rank, make(), trace, workers) for rank, trace in sorted(traces.items())]
    messages: dict[Any, Vectors] = {}
    moved = True
    while moved:
        moved = False
        for each in players:
            while each.next < len(each.trace) and play(each, each.trace[each.next], messages):
                each.next += 1
                moved = True
    stuck = {each.rank: each.trace[each.next] for each in players if each.next < len(each.trace)}
    assert not stuck, f"these wait for what nobody sent: {stuck}"
    return {each.rank: each.x for each in players}


def play_pair(player: Player, event: tuple[Any, ...], messages: dict[Any, Vectors]) -> bool:
    """AD-PSGD."""
    match event:
        case ("snapshot", _):
            player.parameters.write(player.x)
        case ("update", _, steps):
            some = player.gradient(steps)
            player.parameters.write(player.x)
            if some:
                player.task.optimizer.step()
                player.x = player.parameters.read()
        case ("offer", ticket):
            messages["offer", ticket] = player.x
        case ("settle", ticket):
            if ("offer", ticket) not in messages:
                return False
            halves = [(a - b) / 2 for a, b in _pairs(messages["offer", ticket], player.x)]
            messages["commit", ticket] = halves
            player.x = [a + b for a, b in _pairs(player.x, halves)]
        case ("subtract", ticket):
            if ("commit", ticket) not in messages:
                return False
            player.x = [a - b for a, b in _pairs(player.x, messages["commit", ticket])]
        case _:
            raise AssertionError(f"no event of AD-PSGD: {event}")
    return True


def play_mix(player: Player, event: tuple[Any, ...], messages: dict[Any, Vectors]) -> bool:
    """D-PSGD."""
    match event:
        case ("sent", turn):
            messages[player.rank, turn] = player.x
        case ("mix", turn, used):
            if any((rank, turn) not in messages for rank, _ in used):
                return False
            mixed = [each.clone() for each in player.x]
            for rank, share in used:
                for at, (theirs, mine) in enumerate(_pairs(messages[rank, turn], player.x)):
                    mixed[at] += share * (theirs - mine)
            player.x = mixed
        case ("update", _, steps):
            some = player.gradient(steps)  # at the model as it was before it was mixed
            player.parameters.write(player.x)
            if some:
                player.task.optimizer.step()
            player.x = player.parameters.read()
        case _:
            raise AssertionError(f"no event of D-PSGD: {event}")
    return True


def play_push(player: Player, event: tuple[Any, ...], messages: dict[Any, Vectors]) -> bool:
    """SGP."""
    match event:
        case ("update", _, steps):
            if player.gradient(steps):
                player.parameters.write(player.x)
                player.task.optimizer.step()
                player.x = player.parameters.read()
        case ("push", turn, targets):
            part = 1.0 / (1 + len(targets))
            player.x, player.w = [each * part for each in player.x], player.w * part
            share = [*player.x, torch.tensor(player.w, dtype=torch.float64)]
            messages.update({(player.rank, to, turn): share for to in targets})
        case ("add", _, taken, back):
            keys = [(rank, player.rank, turn) for rank, turn in taken]
            if any(key not in messages for key in keys):
                return False
            for key in [*keys, *((player.rank, to, turn) for to, turn in back)]:
                *share, w = messages[key]
                player.x = [a + b for a, b in _pairs(player.x, share)]
                player.w += float(w)
            player.parameters.write([each / player.w for each in player.x])
        case _:
            raise AssertionError(f"no event of SGP: {event}")
    return True


def play_signs(player: Player, event: tuple[Any, ...], messages: dict[Any, Vectors]) -> bool:
    """Strom's."""
    match event:
        case ("snapshot", _):
            player.parameters.write(player.x)
        case ("update", _, steps, held, tau):
            if player.gradient(steps):
                player.parameters.write(player.x)
                player.task.optimizer.step()
                after = player.parameters.read()
                for at, (new, old) in enumerate(_pairs(after, player.x)):
                    player.residual[at] += new - old
                player.x = after
            packed = [] if held else [threshold.take(each, tau) for each in player.residual]
            if sum(each.numel() for each in packed):
                player.number += 1
                messages[player.rank, player.number] = [torch.tensor(tau), *packed]
        case ("apply", rank, number):
            if (rank, number) not in messages:
                return False
            tau, *packed = messages[rank, number]
            for each, target in _pairs(packed, player.x):
                threshold.add(each, float(tau), target)
        case _:
            raise AssertionError(f"no event of Strom's: {event}")
    return True


def _pairs(first: Vectors, second: Vectors) -> list[tuple[Tensor, Tensor]]:
    return list(zip(first, second, strict=True))
