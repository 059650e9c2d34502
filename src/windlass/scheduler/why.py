"""Why a job waits, and whether it ever could start: the core's own checks, put into words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from windlass.core.engines import engine_of
from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.events import NEVER, Need, Reason
from windlass.scheduler.plans import plan

if TYPE_CHECKING:
    from windlass.scheduler.core import Core

_ORDER = ("gpus", "cpus", "memory")


def reason(core: Core, entry: Entry) -> Reason:
    """The one reason that holds now, with what is missing."""
    if entry.paused:
        return Reason("paused", f"queue {entry.told.queue} is paused")
    kept = core.reservations.all.get(entry.told.job_id)
    if kept is not None:
        if kept.claim and kept.start_ms < NEVER:
            return _preempting(core, entry)
        start = kept.start_ms if kept.start_ms < NEVER else None
        lawful = core.allowance.models_but_for_promises(entry)
        if not (kept.seats and lawful) and core.allowance.missing(entry):
            return _quota(core, entry)
        found = _nodes(core, entry)
        if found is None:
            if core.allowance.missing(entry):
                return _quota(core, entry)
            return Reason("dispatching", "it is about to start")
        sentence = f"{found.sentence}; {_names(list(kept.names))} kept for it"
        return Reason(found.code, sentence, found.missing, start)
    if (impossible := never(core, entry)) is not None:
        return Reason("exceeds-max", f"it can never start: {impossible}", _too_much(core, entry))
    if not core.allowance.has_quota(entry):
        return _quota(core, entry)
    starved = core.starved_before(entry)
    if starved is not None:
        sentence = f"its quota is kept for {starved.told.job_id}, which waited for too long"
        return Reason("waiting-reservation", sentence)
    if core.books.queue(entry.told.queue).policy == "strict":
        first = core.first_of(entry.told.queue)
        if first is not None and first is not entry:
            return Reason(
                "waiting-queue",
                f"queue {entry.told.queue} is strict: {first.told.job_id} is first",
            )
    return _nodes(core, entry) or Reason("dispatching", "it is about to start")


def never(core: Core, entry: Entry) -> str | None:
    """Why it could not start even with nobody else there; None when it could."""
    told, form, nodes = entry.told, entry.form, core.nodes
    over = _too_much(core, entry)
    if over:
        words = " and ".join(f"{amount(kind, more)} over" for kind, more in _sorted(over))
        return f"it asks for more than {told.tenant} can ever be given ({words} its quota)"
    if not nodes.names:
        return "there is no node"
    for need in form.needs:
        room = nodes.room_when_empty(need)
        if not room.any():
            return _largest(core, need)
    lawful = [
        models
        for models, amounts in core.allowance.ways(entry)
        if not core.tree.never(told.tenant, told.kind, told.user, amounts)
    ]
    if any(nodes.place_when_empty(form, models=models) is not None for models in lawful):
        return None
    if lawful != [None] and nodes.place_when_empty(form) is not None:
        return f"{told.tenant} has no quota for the GPU models on which there is room for it"
    if form.required:
        return f"no {form.level} has place for all {form.members} members"
    total = {
        "gpus": (form.gpu_milli, int(nodes.capacity.gpu.sum())),
        "cpus": (form.cpus_milli, int(nodes.capacity.cpus.sum())),
        "memory": (form.memory_bytes, int(nodes.capacity.memory.sum())),
    }
    for kind, (wanted, there) in total.items():
        if wanted > there:
            return (
                f"the gang wants {amount(kind, wanted)}, "
                f"all nodes together have {amount(kind, there)}"
            )
    return "the members do not fit on the nodes together"


def amount(kind: str, value: int) -> str:
    """An amount of one kind, for people."""
    if kind == "cpus":
        return f"{value / 1000:g} CPU"
    if kind == "memory":
        return f"{value / 2**30:.1f} GiB memory"
    if kind == "gpus" or kind.startswith("gpus:"):
        model = kind.partition(":")[2]
        count = f"{value / 1000:g}"
        return f"{count} {model + ' ' if model else ''}GPU{'' if count == '1' else 's'}"
    return f"{value} slot{'' if value == 1 else 's'}"


def _largest(core: Core, need: Need) -> str:
    wishes = {
        "gpus": (need.gpus * 1000 + need.gpu_milli, core.nodes.capacity.whole * 1000),
        "cpus": (need.cpus_milli, core.nodes.capacity.cpus),
        "memory": (need.memory_bytes, core.nodes.capacity.memory),
        "slots": (need.slots, core.nodes.capacity.slots),
    }
    for kind, (wanted, there) in wishes.items():
        largest = int(np.max(there))
        if wanted > largest:
            return (
                f"a member of role {need.role} wants {amount(kind, wanted)}, "
                f"the largest node has {amount(kind, largest)}"
            )
    labels = {label for offer in core.nodes.offers for label in offer.labels}
    lacking = [label for label in need.labels if label not in labels]
    for engine in filter(None, map(engine_of, lacking)):
        known = ", ".join(sorted(filter(None, map(engine_of, labels)))) or "none"
        return f"no engine {engine} offers a node (there are: {known})"
    if lacking:
        there_are = ", ".join(sorted(each for each in labels if engine_of(each) is None))
        return f"no node offers {', '.join(lacking)} (there are: {there_are or 'none'})"
    if need.gpu_models:
        wanted_models = " or ".join(need.gpu_models)
        there_are = ", ".join(sorted(model for model in core.nodes.models if model)) or "none"
        return f"no node has enough GPUs of model {wanted_models} (there are: {there_are})"
    return f"no single node has all that a member of role {need.role} wants"


def _too_much(core: Core, entry: Entry) -> dict[str, int]:
    told = entry.told
    over = [
        core.tree.never(told.tenant, told.kind, told.user, amounts)
        for _, amounts in core.allowance.ways(entry)
    ]
    return min(over, key=lambda lack: sum(lack.values()))


def _preempting(core: Core, entry: Entry) -> Reason:
    leaving = [
        other.told.job_id
        for other in core.running.entries.values()
        if other.stage is Stage.LEAVING and other.beneficiary == entry.told.job_id
    ]
    return Reason(
        "preempting", f"{_names(leaving) or 'others'} told to end for it", {}, core.now_ms
    )


def _quota(core: Core, entry: Entry) -> Reason:
    told = entry.told
    missing = core.allowance.missing(entry)
    usage, owned = core.tree.usage(told.tenant), core.tree.nominal(told.tenant)
    words = " and ".join(
        f"{amount(kind, lacks)} short ({told.tenant} uses {amount(kind, usage.get(kind, 0))}"
        f" and owns {amount(kind, owned.get(kind, 0))})"
        for kind, lacks in _sorted(missing)
    )
    return Reason("waiting-quota", words or f"{told.tenant} has no quota left", missing)


def _nodes(core: Core, entry: Entry) -> Reason | None:
    nodes, form = core.nodes, entry.form
    if not nodes.up.any():
        return Reason("waiting-nodes", "no node is up")
    own = core.reservations.all.get(entry.told.job_id)
    if core.seating.seats_for(entry, own=own) is not None:
        return None
    lawful = core.allowance.models_but_for_promises(entry)
    if any(nodes.place(form, models=models) is not None for models in lawful):
        kept = next(
            (k.entry.told.job_id for k in core.reservations.all.values() if k.entry is not entry),
            "another job",
        )
        return Reason("waiting-reservation", f"what is free is kept for {kept}, which is ahead")
    up = nodes.up
    total = {
        "gpus": (form.gpu_milli, int(np.maximum(nodes.now.gpu[up], 0).sum())),
        "cpus": (form.cpus_milli, int(np.maximum(nodes.now.cpus[up], 0).sum())),
        "memory": (form.memory_bytes, int(np.maximum(nodes.now.memory[up], 0).sum())),
        "slots": (_slots(form.needs), int(np.maximum(nodes.now.slots[up], 0).sum())),
    }
    missing = {
        kind: wanted - free for kind, (wanted, free) in total.items() if wanted > max(free, 0)
    }
    if missing:
        words = " and ".join(
            f"needs {amount(kind, total[kind][0])}, {amount(kind, total[kind][1])} free"
            for kind in missing
        )
        return Reason("waiting-nodes", words, missing, _expected(core, entry))
    where = f"in one {form.level}" if form.required and form.level else "on single nodes"
    return Reason(
        "waiting-nodes-fragmented",
        f"enough is free in all, but not {where}: every member must fit on one node",
        expected_start_ms=_expected(core, entry),
    )


def _expected(core: Core, entry: Entry) -> int | None:
    """When it should fit, if those who run end when they are thought to and nobody passes it."""
    kept = core.reservations.all.get(entry.told.job_id)
    if kept is not None:
        return kept.start_ms if kept.start_ms < NEVER else None
    found = plan(entry, core.nodes, core.running, core.reservations, core.now_ms)
    return None if found is None else found[0]


def _slots(needs: tuple[Need, ...]) -> int:
    return sum((need.minimum or need.count) * need.slots for need in needs)


def _sorted(amounts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(
        amounts.items(),
        key=lambda item: (_ORDER.index(item[0]) if item[0] in _ORDER else 9, item[0]),
    )


def _names(names: list[str]) -> str:
    if len(names) > 3:
        return f"{', '.join(names[:3])} and {len(names) - 3} more are"
    return ", ".join(names) + (" is" if len(names) == 1 else " are") if names else ""
