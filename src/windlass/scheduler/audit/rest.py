"""What must hold when nothing more is decided: S-I6, S-I9 to S-I12, S-I19.

Every question is asked so that "violation" is certain: where other jobs have claims on what is
free (reservations, freed seats that are held), whatever they might touch is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.scheduler.audit.books import Books, shape
from windlass.scheduler.audit.ground import Free
from windlass.scheduler.audit.preemption import candidates, fits_without, whole
from windlass.scheduler.audit.tenants import smallest
from windlass.scheduler.events import NEVER, REASONS, Need, Reason, Seat, Submit

MANY = 2000
"""In longer lines than this nobody is searched for one by one."""


def idle_room(books: Books) -> list[str]:
    """S-I12: pending jobs that pass quota, nodes and reservations, and yet wait."""
    found = []
    seen: dict[object, bool] = {}
    for job in books.pending.values():
        # Of jobs alike in all that matters here, one is enough.
        key = (shape(job), job.tenant, job.kind, job.user)
        if key not in seen:
            seen[key] = surely_startable(books, job)
            if seen[key]:
                found.append(f"S-I12: {job.job_id} waits, though it passes quota and nodes")
    return found


def surely_startable(books: Books, job: Submit) -> bool:
    queue = books.queue(job.queue)
    if queue.paused or (queue.policy == "strict" and _in_company(books, job)):
        return False
    if job.job_id in books.nominated:
        return False
    if any(name != job.job_id for name in books.nominated) or books.starving(job.job_id):
        return False
    reserved, others = _reserved_from(books, job)
    # Quota is kept with the nodes: what was promised to these counts as used.
    kept = [(one, books.promise_charges(one, books.promised[one.job_id])) for one in others]
    for other, amounts in kept:
        books.tenants.charge(other, amounts)
    passes = books.tenants.surely_passes(job, books.models(job))
    for other, amounts in kept:
        books.tenants.charge(other, amounts, -1)
    if not passes:
        return False
    free = books.ground.free()
    return any(
        books.ground.fits(one, free, only=~reserved) is True for one, _ in books.variants(job)
    )


def unserved(books: Books) -> dict[str, str]:
    """S-I6: jobs within their tenant's nominal that wait, each with one that borrows and would do
    to make room for it: of these, who runs for longest."""
    if not books.rules.preemption:
        return {}
    found: dict[str, str] = {}
    for job in books.pending.values():
        queue = books.queue(job.queue)
        if queue.paused or job.job_id in books.nominated:
            continue
        if queue.policy == "strict" and _in_company(books, job):
            continue
        if books.models(job) or not books.tenants.within_nominal(job):
            continue
        if not any(name in books.tenants.metered(job.tenant) for name in smallest(job)):
            continue
        # One victim that is wholly borrowed is certainly lawful, whatever else is true.
        for held in sorted(candidates(books, job), key=lambda held: held.started_ms):
            tenants = books.tenants
            lawful = held.job.tenant == job.tenant or all(
                tenants.over(held.job.tenant, name) >= amount
                for name, amount in held.charged.items()
                if name in tenants.metered(job.tenant)
            )
            if lawful and fits_without(books, job, [whole(held)]) is True:
                found[job.job_id] = held.job.job_id
                break
    return found


def broken_promises(books: Books) -> list[str]:
    """S-I9: a promised job that still waits after its time, with nothing to excuse it."""
    return [
        f"S-I9: {job_id} was promised {promised.start_ms} and still waits at {books.now_ms}"
        for job_id, promised in books.promised.items()
        if promised.start_ms < books.now_ms and not books.excused(promised)
    ]


def delayed(books: Books, names: Iterable[str]) -> list[str]:
    """S-I9: of these promised jobs, those that would not fit at their time, everybody ending as
    estimated: somebody was let past who is in the way."""
    found = []
    for job_id in names:
        promised, job = books.promised[job_id], books.pending[job_id]
        if promised.start_ms >= NEVER or books.excused(promised):
            continue
        only = _mask(books, promised.nodes)
        free = books.ground.free()
        for node in np.flatnonzero(only):
            _free_by(books, free, int(node), promised.start_ms)
        if books.ground.fits(job, free, only=only) is not False:
            continue
        for node in np.flatnonzero(~only):
            _free_by(books, free, int(node), promised.start_ms)
        if books.ground.fits(job, free) is False:
            found.append(
                f"S-I9: {job_id} was promised {promised.start_ms}, and would not fit by then"
            )
    return found


def starved(
    books: Books, starter: Submit, since_ms: dict[str, int], promised_ms: int | None
) -> list[str]:
    """S-I10, after a start: one that ranks behind a starving job of its own tenant uses what that
    job needs. `promised_ms`: when the starter was promised this start.

    Who was promised its start before the other starved, or could start at all, keeps it: S-I9
    knows no exception for it.
    Of two that starve, the one that starved first is first."""
    if len(since_ms) > MANY:
        return []
    found = []
    rank = (-starter.priority, starter.order_ms, starter.number)
    for job_id, since in since_ms.items():
        job = books.pending[job_id]
        if books.queue(job.queue).policy == "strict" or books.queue(job.queue).paused:
            continue  # it may wait for another that never fits
        if job.tenant != starter.tenant or (-job.priority, job.order_ms, job.number) >= rank:
            continue
        starves_ms = max(since, job.order_ms) + books.rules.starving_ms
        if books.now_ms <= starves_ms or starter.order_ms + books.rules.starving_ms <= starves_ms:
            continue
        if promised_ms is not None and promised_ms <= max(starves_ms, books.grown_ms):
            continue
        if starter.expected_ms is None and _possible_at_last(books, job) is False:
            mine = books.held[starter.job_id].everything()
            if _possible_at_last(books, job, mine) is True:
                found.append(f"S-I10: {starter.job_id} has no end and starves {job_id} out")
    return found


def _possible_at_last(
    books: Books, job: Submit, besides: Sequence[tuple[Need, Seat]] = ()
) -> bool | None:
    """Whether it fits when all have ended that will end, and these: on GPU models of which it
    can have quota. None: cannot tell."""
    free = books.ground.free()
    for node in range(len(books.ground)):
        _free_by(books, free, node, NEVER - 1)
    books.ground.project(free, besides)
    answers = [
        books.ground.fits(one, free)
        for one, only in books.variants(job)
        if not books.tenants.never_passes(job, only)
    ]
    return True if True in answers else None if None in answers else False


def unexplained(books: Books, job: Submit, reason: Reason | None) -> list[str]:
    """S-I19: the reason that is given does not hold, or there is none."""
    name = job.job_id
    if reason is None:
        return [f"S-I19: {name} waits without a reason"]
    code = reason.code
    if code not in REASONS:
        return [f"S-I19: {name} waits for {code!r}, which is no reason"]
    queue = books.queue(job.queue)
    paused = queue.paused
    if paused != (code == "paused") and code != "exceeds-max":
        return [f"S-I19: {name} says {code}; its queue is {'paused' if paused else 'not paused'}"]
    ground, tenants = books.ground, books.tenants
    # Of nodes that are down too: a model that is nowhere up still has its quota.
    models = books.models(job, down_too=True)
    nominated = job.job_id in books.nominated
    wrong = ""
    if code == "exceeds-max":
        if any(
            ground.fits(one, ground.empty()) is True and not tenants.never_passes(job, only)
            for one, only in books.variants(job)
        ):
            wrong = "it would fit if it were alone"
    elif paused:
        pass
    elif ground.fits(job, ground.empty(down_too=True)) is False:
        wrong = "it can never fit"
    elif tenants.never_passes(job, books.models(job, down_too=True)):
        wrong = "its quota can never be enough"
    elif code == "waiting-quota":
        if tenants.surely_passes(job, models) and not books.claimed(job.job_id):
            wrong = "its quota is enough"
    elif code in ("waiting-nodes", "waiting-nodes-fragmented"):
        wrong = _wrong_about_nodes(books, job, code)
    elif code == "waiting-queue":
        if queue.policy != "strict" or not _in_company(books, job):
            wrong = "it is alone in its queue, or the queue is not strict"
    elif code == "preempting":
        if not nominated:
            wrong = "nobody was told to end for it"
    elif code == "waiting-reservation":
        if not books.claimed(job.job_id):
            wrong = "nobody else has a claim"
    elif code == "dispatching":
        wrong = "it has not been started"
    return [f"S-I19: {name} says {code}, but {wrong}"] if wrong else []


def _wrong_about_nodes(books: Books, job: Submit, code: str) -> str:
    ground, free = books.ground, books.ground.free()
    if any(
        ground.fits(one, free) is True and (not only or books.tenants.passes(job, only))
        for one, only in books.variants(job)
    ):
        return "it fits"
    if code == "waiting-nodes-fragmented" and not _enough_in_all(books, job):
        return "there is not enough in all"
    return ""


def _enough_in_all(books: Books, job: Submit) -> bool:
    free, wants = books.ground.free(), smallest(job)
    have = {
        "cpus": int(np.maximum(free.cpus, 0).sum()),
        "memory": int(np.maximum(free.memory, 0).sum()),
        "gpus": int(np.maximum(free.gpu, 0).sum()),
    }
    return all(have[name] >= amount for name, amount in wants.items())


def _in_company(books: Books, job: Submit) -> bool:
    return any(
        other.queue == job.queue and other.job_id != job.job_id for other in books.pending.values()
    )


def _reserved_from(books: Books, job: Submit) -> tuple[NDArray[np.bool_], list[Submit]]:
    """The nodes that promises to others may keep from the job, and those who were promised."""
    reserved = np.zeros(len(books.ground), dtype=np.bool_)
    others = []
    ends = NEVER if job.expected_ms is None else books.now_ms + job.expected_ms
    for job_id, promised in books.promised.items():
        if job_id == job.job_id or ends <= promised.start_ms:
            continue
        others.append(books.pending[job_id])
        reserved |= _mask(books, promised.nodes)
    return reserved, others


def _mask(books: Books, names: Iterable[str]) -> NDArray[np.bool_]:
    mask = np.zeros(len(books.ground), dtype=np.bool_)
    mask[[books.ground.index[name] for name in names]] = True
    return mask


def _free_by(books: Books, free: Free, node: int, when_ms: int) -> None:
    """Give back, in the what-if, all of the node that should be free by then."""
    if not books.ground.up[node]:
        return
    for job_id, need, seat in books.ground.held_at(node):
        held = books.held[job_id]
        if held.ends_ms <= when_ms or held.leaving or seat in held.losing:
            free.add(node, need, seat)
