"""One range of the parameters on a server: a state that changes by events, and by nothing else.

The same events in the same order give the same bits. So a second copy is kept by telling it the
events, and a log of what was applied can be replayed in one process.
"""

from __future__ import annotations

import inspect
import secrets
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor

from windlass.train.ledger import Ledger, Position, Share
from windlass.train.policies.consistency import Apply, Decision, Policy, Push
from windlass.train.state.flat import BY_ELEMENT, Part

Decode = Callable[[Sequence[Tensor], float], list[Tensor]]
"""Of what a filter made and its scale, a tensor for each part. Raises InvalidInput."""
_BEFORE = "the shard has no parameters yet"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the log: a push and what became of it. `version` is what it was applied to;
    pushes of one version were applied as one step, in the order of the rows."""

    range: int
    worker: int
    number: int
    steps: tuple[int, ...]
    """The global steps whose batches are in it."""
    read: int
    version: int
    factor: float
    rates: tuple[float, ...]
    count: float
    applied: bool
    reads: tuple[dict[str, int] | None, ...] = ()
    """For each of the steps: the version of each range that was pulled before it, if it was."""
    shares: tuple[Any, ...] = ()
    """For each of the steps: whose share of it, as (index, of), where it was another's."""

    @property
    def staleness(self) -> int:
        return self.version - self.read

    def to_json(self) -> list[Any]:
        return list(astuple(self))

    @classmethod
    def from_json(cls, told: list[Any]) -> Row:
        fields: list[Any] = [tuple(each) if isinstance(each, list) else each for each in told]
        return cls(*fields)


@dataclass
class _Gradient:
    event: dict[str, Any]
    tensors: list[Tensor]


class Recipe:
    """How to make an optimiser of the task's kind on other tensors."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.kind = type(optimizer)
        self.groups = [
            {name: value for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        known = inspect.signature(self.kind).parameters
        self.defaults = {k: v for k, v in optimizer.defaults.items() if k in known}

    def make(self, parameters: Sequence[Tensor], groups: Sequence[int]) -> torch.optim.Optimizer:
        """`groups` says whose options each parameter has."""
        mine = list(zip(parameters, groups, strict=True))
        made = [
            {**self.groups[number], "params": [each for each, group in mine if group == number]}
            for number in sorted(set(groups))
        ]
        makes: Callable[..., torch.optim.Optimizer] = self.kind
        return makes(made, **self.defaults)


class Shard:
    def __init__(
        self,
        index: int,
        parts: Sequence[Part],
        policy: Policy,
        recipe: Recipe | None,
        *,
        trace: bool = False,
        decode: Decode | None = None,
    ) -> None:
        """Without a recipe pushes are added to the parameters as they are."""
        self.index = index
        self.parts = list(parts)
        self.policy = policy
        self.version = 0
        self.order = 0
        """How many events it has taken."""
        self.ledger = Ledger.begin(len(policy.clocks))
        """Which samples are used. That of range 0 is the one that is asked."""
        self.numbers: dict[int, int] = {}
        """The last push of each worker that it has taken: what comes again is known by it."""
        self.rows: list[Row] = []
        self.staleness: Counter[int] = Counter()
        self.counts: Counter[str] = Counter()
        self.history = ""
        """The name of the line of versions that this one is in: the same for a second copy."""
        self.begin_history()
        self._trace = trace
        self._decode = decode
        self._recipe = recipe
        self._gradients: dict[tuple[int, int], _Gradient] = {}
        self._values: list[Tensor] | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._groups: list[int] = []
        self._readers: list[weakref.ref[Tensor]] = []
        self._spare: tuple[list[Tensor], list[weakref.ref[Tensor]]] | None = None
        self.release: Callable[[list[Tensor]], None] = lambda tensors: None
        """Told of what was pushed and is not needed any more: its memory may be used again."""

    # -- parameters -------------------------------------------------------------------------

    @property
    def is_begun(self) -> bool:
        return self._values is not None

    def begin(self, values: Sequence[Tensor]) -> None:
        """The parameters to start from; they are the shard's from now on."""
        self._values = [each.detach().requires_grad_() for each in values]
        self._readers, self._spare = [], None
        if self._recipe is not None:
            groups = [part.group for part in self.parts]
            self._optimizer = self._recipe.make(self._values, groups)
            self._groups = sorted(set(groups))

    def begin_history(self) -> None:
        """The parameters are not what the events so far have made of them."""
        self.history = secrets.token_hex(4)

    def read(self) -> list[Tensor]:
        """The parameters as they are now. They stay so for whoever holds what is given: a step
        that would change them moves to other memory first."""
        assert self._values is not None, _BEFORE
        found = [each.detach() for each in self._values]
        self._readers = [ref for ref in self._readers if ref() is not None]
        self._readers += [weakref.ref(each) for each in found]
        return found

    # -- events -----------------------------------------------------------------------------

    def knows(self, worker: int, number: int) -> bool:
        return number <= self.numbers.get(worker, 0)

    def take(self, event: dict[str, Any], tensors: Sequence[Tensor] = ()) -> None:
        """`what` is push, join, lose, take or finish. A push that is known is taken for nothing.
        Raises InvalidInput on one that cannot be decoded: nothing has changed then."""
        worker = int(event["worker"])
        known = event["what"] == "push" and self.knows(worker, int(event["number"]))
        if event.get("scale") is not None and not known:
            assert self._decode is not None, "coded, and without a filter"
            tensors = self._decode(tensors, float(event["scale"]))
        self.order += 1
        if known:
            return
        if event["what"] == "push":
            number = int(event["number"])
            self.numbers[worker] = number
            self.counts["pushed"] += 1
            for share in self._shares(event):
                self.ledger.used(worker, share) or self.counts.update(["used again"])
            self._gradients[worker, number] = _Gradient(event, list(tensors))
            push = Push(worker, number, int(event["version"]))
            self._act(self.policy.push(push, self.version))
        elif event["what"] == "join":
            self.policy.joins(worker)
            self.ledger.joins(worker)
        elif event["what"] == "take":
            self.ledger.take(worker, int(event["before"]), int(event["most"]))
        elif event["what"] == "lose":
            self.ledger.loses(worker)
            self._act(self.policy.loses(worker, self.version))
        else:
            self._act(self.policy.finishes(worker, self.version))

    def _act(self, decisions: Sequence[Decision]) -> None:
        for each in decisions:
            if isinstance(each, Apply):
                self._apply(each)
            else:
                gradient = self._gradients.pop((each.push.worker, each.push.number))
                self._note(each.push, gradient, 0.0, False)
                self._let_go(gradient)

    def _apply(self, decision: Apply) -> None:
        assert self._values is not None, _BEFORE
        found = [self._gradients.pop((p.worker, p.number)) for p in decision.pushes]
        self._make_room()
        if self._recipe is None:
            with torch.no_grad():
                for gradient in found:
                    for value, delta in zip(self._values, gradient.tensors, strict=False):
                        value.add_(delta)
        else:
            self._step(found, decision.factor)
        for push, gradient in zip(decision.pushes, found, strict=True):
            self._note(push, gradient, decision.factor, True)
            if self._recipe is None or self._recipe.kind.__name__ in BY_ELEMENT:
                self._let_go(gradient)  # another's optimiser may have kept the gradient
        self.version += 1

    def _let_go(self, gradient: _Gradient) -> None:
        if gradient.event.get("scale") is None:  # no push has the form of what was decoded
            self.release(gradient.tensors)

    def _step(self, found: Sequence[_Gradient], factor: float) -> None:
        """The optimiser's step with the mean over all samples; none, where there were none."""
        assert self._values is not None and self._optimizer is not None
        full = [each for each in found if each.tensors]
        count = sum(float(each.event["count"]) for each in full)
        if not full or count == 0:
            return
        total = full[0].tensors
        with torch.no_grad():
            for more in full[1:]:
                for sum_, each in zip(total, more.tensors, strict=True):
                    sum_.add_(each)
            for value, sum_ in zip(self._values, total, strict=True):
                value.grad = sum_.div_(count)
        rates = found[-1].event["rates"]
        for group, number in zip(self._optimizer.param_groups, self._groups, strict=True):
            group["lr"] = rates[number] * factor
        self._optimizer.step()
        for value in self._values:
            value.grad = None

    def _make_room(self) -> None:
        """Whoever reads keeps what it has: the step goes on in other memory, that of two steps
        ago when nobody reads that any more."""
        readers, self._readers = self._readers, []
        if all(ref() is None for ref in readers):
            return
        assert self._values is not None
        free = self._spare is not None and all(ref() is None for ref in self._spare[1])
        room = self._spare[0] if self._spare is not None and free else None
        self._spare = ([each.data for each in self._values], readers)
        for number, each in enumerate(self._values):
            each.data = each.data.clone() if room is None else room[number].copy_(each.data)

    def _note(self, push: Push, gradient: _Gradient, factor: float, applied: bool) -> None:
        event = gradient.event
        self.counts["applied" if applied else "dropped"] += 1
        if applied:
            self.staleness[self.version - push.version] += 1
        if self._trace:
            self.rows.append(
                Row(
                    self.index, push.worker, push.number, tuple(event["steps"]), push.version,
                    self.version, factor, tuple(event["rates"]), float(event["count"]), applied,
                    tuple(event["reads"]), tuple(event.get("shares") or ()),
                )
            )  # fmt: skip

    def _shares(self, event: dict[str, Any]) -> list[Share]:
        """What a push says that it used."""
        own = (int(event["worker"]), self.ledger.of)
        told = event.get("shares") or [None] * len(event["steps"])
        return [
            Share(int(row), *(own if each is None else each))
            for row, each in zip(event["steps"], told, strict=True)
        ]

    def stand(self, position: Position) -> None:
        """The parameters are those of a training that stands there."""
        here = set(self.ledger.lines)
        self.ledger = Ledger.begin(self.ledger.of, position)
        for worker in set(self.ledger.lines) - here:
            self.ledger.loses(worker)

    def position(self) -> Position:
        """Which samples are in the parameters as they are: not those of gradients that wait."""
        waiting = [
            share for each in self._gradients.values() for share in self._shares(each.event)
        ]
        return self.ledger.position(waiting)

    # -- the whole of it --------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], list[Tensor]]:
        """Everything, for a second copy, a move, a snapshot: JSON, and tensors that stay as they
        are while the shard goes on."""
        assert self._values is not None, _BEFORE
        tensors = [each.detach().clone() for each in self._values]
        slots: list[list[Any]] = []
        if self._optimizer is not None:
            for at, value in enumerate(self._values):
                for name, kept in self._optimizer.state.get(value, {}).items():
                    if isinstance(kept, Tensor):
                        slots.append([at, name, None])
                        tensors.append(kept.detach().clone())
                    elif kept is not None:
                        slots.append([at, name, kept])
        waiting = []
        for gradient in self._gradients.values():
            waiting.append([gradient.event, len(gradient.tensors)])
            tensors += [each.clone() for each in gradient.tensors]
        header = {
            "version": self.version, "order": self.order, "history": self.history,
            "ledger": self.ledger.to_json(),
            "policy": self.policy.state(),
            "numbers": sorted(self.numbers.items()), "slots": slots, "waiting": waiting,
            "staleness": sorted(self.staleness.items()), "counts": dict(self.counts),
            "rows": [row.to_json() for row in self.rows],
        }  # fmt: skip
        return header, tensors

    def load(self, header: dict[str, Any], tensors: Sequence[Tensor]) -> None:
        """The same back; the tensors are the shard's from now on."""
        rest = iter(tensors)
        self.begin([next(rest) for _ in self.parts])
        assert self._values is not None
        for at, name, kept in header["slots"]:
            assert self._optimizer is not None
            self._optimizer.state[self._values[at]][name] = next(rest) if kept is None else kept
        self._gradients = {
            (int(event["worker"]), int(event["number"])): _Gradient(
                event, [next(rest) for _ in range(count)]
            )
            for event, count in header["waiting"]
        }
        self.version, self.order = header["version"], header["order"]
        self.history = header["history"]
        self.policy.load(header["policy"])
        self.ledger = Ledger.from_json(header["ledger"])
        self.numbers = {int(worker): number for worker, number in header["numbers"]}
        self.staleness = Counter({int(by): n for by, n in header["staleness"]})
        self.counts = Counter(header["counts"])
        self.rows = [Row.from_json(row) for row in header["rows"]]
