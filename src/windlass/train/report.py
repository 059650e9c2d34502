"""What a training was: how fast, how stale, how much it sent, what it survived, how it learnt.

Each worker and server gives a `MemberReport`; `Report.merge` makes one of all. Both are JSON
(`to_json`, `from_json`) in which a loss that diverged stays what it is: "NaN", "Infinity".
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator


class LossPoint(NamedTuple):
    step: int
    seconds: float
    """Since the first step began."""
    loss: float
    """The mean over the samples since the point before."""


class EvaluationPoint(NamedTuple):
    step: int
    numbers: dict[str, float]


class SurvivedFault(NamedTuple):
    kind: str
    who: str
    step: int | None
    text: str


class _Record(BaseModel):
    """Unlike `Strict` it takes NaN: that a training diverged is worth a report."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.model_dump_json())  # the way that knows NaN
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls.model_validate(data)


class MemberReport(_Record):
    """One worker or server. `counters` is what `Counters.to_json()` gives."""

    name: str
    steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    losses: tuple[LossPoint, ...] = ()
    counters: dict[str, Any] = {}
    peak_memory_bytes: int = 0
    evaluation: tuple[EvaluationPoint, ...] = ()

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds > 0 else 0.0

    @property
    def is_worker(self) -> bool:
        return self.name.startswith("worker")


Counts = dict[str, int]


class Report(_Record):
    strategy: str
    options: dict[str, Any] = {}
    workers: int
    servers: int
    lost: tuple[str, ...] = ()
    """Members that did not live to report."""
    steps: int
    """Of the worker that made most."""
    samples: int
    """Over all workers."""
    seconds: float
    samples_per_s: float
    predicted: float | None = None
    """Samples a second that the planner expected, where there was a plan."""
    losses: tuple[LossPoint, ...]
    evaluation: tuple[EvaluationPoint, ...]
    sent_bytes: Counts
    """By kind: gradient, activation, parameters, state, control."""
    received_bytes: Counts
    messages: Counts
    bytes_per_step: float
    """Sent by all members over the steps."""
    staleness: Annotated[dict[int, int], Field(description="staleness: how many updates had it")]
    events: Counts
    """Named counts of the strategy: exchanges, dropped, conflicts …"""
    faults: tuple[SurvivedFault, ...]
    drift: tuple[tuple[int, float], ...]
    """(step, the largest distance of a replica's parameter from the mean)."""
    peak_memory_bytes: int
    """Of the member that held most."""
    members: tuple[MemberReport, ...]
    notes: tuple[str, ...] = ()
    """What was said at the start: momentum with stale gradients …"""

    @field_validator("options", mode="before")
    @classmethod
    def _plain(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """A compressor or another object is told by its words."""
        plain = (str, int, float, bool, type(None), list, dict)
        return {k: v if isinstance(v, plain) else repr(v) for k, v in options.items()}

    @classmethod
    def merge(
        cls,
        members: Iterable[MemberReport],
        strategy: str,
        options: Mapping[str, Any] | None = None,
        *,
        lost: Sequence[str] = (),
        notes: Sequence[str] = (),
        predicted: float | None = None,
    ) -> Report:
        """One of all. The loss at a step is the mean over the workers that had a share in it."""
        all_of_them = sorted(members, key=_order)
        workers = [each for each in all_of_them if each.is_worker]
        sent = _added(all_of_them, "sent_bytes")
        steps = max((each.steps for each in workers), default=0)
        samples = sum(each.samples for each in workers)
        seconds = max((each.seconds for each in workers), default=0.0)
        return cls(
            strategy=strategy,
            options=dict(options or {}),
            workers=len(workers),
            servers=len(all_of_them) - len(workers),
            lost=tuple(lost),
            steps=steps,
            samples=samples,
            seconds=seconds,
            samples_per_s=samples / seconds if seconds > 0 else 0.0,
            predicted=predicted,
            losses=_losses(workers),
            evaluation=_evaluation(workers),
            sent_bytes=sent,
            received_bytes=_added(all_of_them, "received_bytes"),
            messages=_added(all_of_them, "messages"),
            bytes_per_step=sum(sent.values()) / steps if steps else 0.0,
            staleness={int(by): n for by, n in _added(all_of_them, "staleness").items()},
            events=_added(all_of_them, "events"),
            faults=_faults(all_of_them),
            drift=_drift(all_of_them),
            peak_memory_bytes=max((each.peak_memory_bytes for each in all_of_them), default=0),
            members=tuple(all_of_them),
            notes=tuple(notes),
        )

    @property
    def loss(self) -> float | None:
        """The last."""
        return self.losses[-1].loss if self.losses else None

    def loss_at_step(self, step: int) -> float | None:
        """The last one known by then."""
        return next((p.loss for p in reversed(self.losses) if p.step <= step), None)

    def loss_at_seconds(self, seconds: float) -> float | None:
        return next((p.loss for p in reversed(self.losses) if p.seconds <= seconds), None)

    def show(self, file: IO[str] | None = None) -> None:
        """Print it: with colours on a terminal, plain elsewhere."""
        from windlass.train.readout import show

        show(self, file)

    def __str__(self) -> str:
        from windlass.train.readout import text

        return text(self)


def _order(member: MemberReport) -> tuple[bool, str, int]:
    role, _, rank = member.name.partition(" ")
    return not member.is_worker, role, int(rank) if rank.isdigit() else 0


def _added(members: Iterable[MemberReport], what: str) -> dict[str, int]:
    total: Counter[str] = Counter()
    for member in members:
        total.update(member.counters.get(what, {}))
    numeric = what == "staleness"
    return dict(sorted(total.items(), key=lambda item: int(item[0]) if numeric else item[0]))


def _losses(workers: Sequence[MemberReport]) -> tuple[LossPoint, ...]:
    at: dict[int, list[tuple[LossPoint, float]]] = defaultdict(list)
    for worker in workers:
        weight = worker.samples / worker.steps if worker.samples and worker.steps else 1.0
        for point in worker.losses:
            at[point.step].append((point, weight))
    return tuple(
        LossPoint(
            step,
            max(point.seconds for point, _ in points),
            sum(point.loss * weight for point, weight in points) / sum(w for _, w in points),
        )
        for step, points in sorted(at.items())
    )


def _evaluation(workers: Sequence[MemberReport]) -> tuple[EvaluationPoint, ...]:
    """Where several evaluate the same step, the first one's word is taken."""
    found: dict[int, EvaluationPoint] = {}
    for worker in workers:
        for point in worker.evaluation:
            found.setdefault(point.step, point)
    return tuple(found[step] for step in sorted(found))


def _faults(members: Sequence[MemberReport]) -> tuple[SurvivedFault, ...]:
    """Each once: all survivors tell of the same death."""
    seen: dict[tuple[str, str], SurvivedFault] = {}
    for member in members:
        for told in member.counters.get("faults", ()):
            fault = SurvivedFault(*told)
            seen.setdefault((fault.kind, fault.who), fault)
    return tuple(sorted(seen.values(), key=lambda fault: (fault.step or 0, fault.who)))


def _drift(members: Sequence[MemberReport]) -> tuple[tuple[int, float], ...]:
    largest: dict[int, float] = {}
    for member in members:
        for step, distance in member.counters.get("drift", ()):
            largest[step] = max(largest.get(step, 0.0), distance)
    return tuple(sorted(largest.items()))
