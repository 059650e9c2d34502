"""S-I7: who may be told to end for whom, in the auditor's own judgement.

A group is what one tick told to end for one job. Judged on the books as they were before it:

    legal       lower priority in the same tenant; or the borrower of another tenant of the cohort,
                for a job within its own nominal
    minimal     with any one of them put back, the job would not fit
    sufficient  with all of them gone, it fits
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

from windlass.scheduler.audit.books import Books, Held
from windlass.scheduler.audit.ground import Free
from windlass.scheduler.audit.tenants import Amounts, add, smallest
from windlass.scheduler.events import Need, Seat, Submit


def illegal(books: Books, job: Submit, victims: Sequence[Held]) -> list[str]:
    """What is wrong with telling these to end for the job, on the books before it was done."""
    found: list[str] = []
    rules, tenants = books.rules, books.tenants
    if not rules.preemption:
        found.append(f"S-I7: {job.job_id} preempts though preemption is off")
    own: Amounts = {}
    for held in victims:
        if held.job.tenant == job.tenant:
            add(own, held.charged)
    nominal = tenants.within_nominal(job, own)
    for held in victims:
        victim = held.job
        name = f"{victim.job_id} told to end for {job.job_id}"
        if victim.job_id == job.job_id:
            found.append(f"S-I7h: {name}: itself")
        if held.leaving:
            found.append(f"S-I7: {name} was told before")
        if not victim.preemptible:
            found.append(f"S-I7: {name} is not preemptible")
        if victim.preemptions >= rules.preemption_cap:
            found.append(f"S-I8: {name} was preempted {victim.preemptions} times already")
        ran = books.now_ms - held.started_ms
        if ran < rules.min_run_ms:
            found.append(f"S-I7g: {name} ran {ran} ms only")
        if victim.tenant == job.tenant:
            if victim.priority >= job.priority:
                found.append(f"S-I7a: {name}: {victim.priority} is no lower than {job.priority}")
            continue
        if not tenants.same_cohort(victim.tenant, job.tenant):
            found.append(f"S-I7b: {name}: {victim.tenant} lends nothing to {job.tenant}")
            continue
        if not nominal:
            found.append(f"S-I7b: {name}: {job.tenant} would borrow itself")
        any_priority = tenants.quotas[job.tenant].reclaim_any
        if victim.priority > job.priority and not any_priority:
            found.append(f"S-I7c: {name}: {victim.priority} is higher than {job.priority}")
    others = {held.job.tenant for held in victims} - {job.tenant}
    for tenant in sorted(others):
        mine = [held for held in victims if held.job.tenant == tenant]
        if tenant in tenants.quotas and not _over_in_some_order(books, job, tenant, mine):
            names = ", ".join(held.job.job_id for held in mine)
            found.append(f"S-I7b: {names} told to end for {job.job_id}: {tenant} is not over")
    return found


def candidates(books: Books, job: Submit) -> list[Held]:
    """Everybody else who may lawfully be told to end for the job, now."""
    rules, tenants = books.rules, books.tenants
    reclaims = tenants.within_nominal(job)
    found = []
    for held in books.held.values():
        victim = held.job
        if (
            held.leaving
            or held.losing
            or not victim.preemptible
            or victim.preemptions >= rules.preemption_cap
            or books.now_ms - held.started_ms < rules.min_run_ms
        ):
            continue
        if victim.tenant == job.tenant:
            if victim.priority < job.priority:
                found.append(held)
        elif reclaims and tenants.same_cohort(victim.tenant, job.tenant):
            higher = victim.priority > job.priority
            if (not higher or tenants.quotas[job.tenant].reclaim_any) and _relevant(
                books, job, held, {}
            ):
                found.append(held)
    return found


@dataclass(frozen=True, slots=True)
class Gone:
    """What one decision takes away: a whole gang, or the surplus of an elastic one."""

    job: Submit
    seats: list[tuple[Need, Seat]]
    charged: Amounts


def whole(held: Held) -> Gone:
    return Gone(held.job, held.everything(), {} if held.leaving else held.charged)


def surplus(books: Books, held: Held, lost: Sequence[Seat]) -> Gone:
    seats = [(held.needs[seat.role], seat) for seat in lost]
    return Gone(held.job, seats, {} if held.leaving else books.charges(held.needs, lost))


def fits_without(books: Books, job: Submit, gone: Sequence[Gone]) -> bool | None:
    """Whether the job fits with these gone (and what was told to go for it before); None: the
    auditor cannot tell, for others have claims on what is free."""
    if books.claimed(job.job_id):
        return None
    free = _free_with(books, job, gone)
    if books.ground.fits(job, free) is None:
        return None
    return any(
        books.ground.fits(one, free) is True and passes_without(books, job, gone, only)
        for one, only in books.variants(job)
    )


def passes_without(
    books: Books, job: Submit, gone: Iterable[Gone], models: set[str] | None = None
) -> bool:
    """Whether quota and caps would let the job start with these gone. It is not charged yet, or
    its nomination is: then that is taken back for the question."""
    tenants = books.tenants
    nomination = books.nominated.get(job.job_id)
    mine = nomination.charged if nomination is not None and not nomination.soft else {}
    tenants.charge(job, mine, -1)
    for one in gone:
        tenants.charge(one.job, one.charged, -1)
    answer = tenants.passes(job, books.models(job) if models is None else models)
    for one in gone:
        tenants.charge(one.job, one.charged)
    tenants.charge(job, mine)
    return answer


def not_minimal(books: Books, job: Submit, gone: Sequence[Gone]) -> list[str]:
    """S-I7e, on the books before: each that need not have been told."""
    found = []
    for one in gone:
        rest = [other for other in gone if other is not one]
        if fits_without(books, job, rest) is True:
            found.append(f"S-I7e: {one.job.job_id} gives way to {job.job_id} in vain")
    return found


def straddling(books: Books, job: Submit, victims: Sequence[Held]) -> list[str]:
    """S-I7b: a gang whose end takes its tenant below nominal, though others would have done."""
    tenants = books.tenants
    crossing = [
        held
        for held in victims
        if held.job.tenant != job.tenant
        and tenants.same_cohort(held.job.tenant, job.tenant)
        and not _stays_over(books, job, held, {})
    ]
    if not crossing:
        return []
    chosen: list[Held] = []
    less: dict[str, Amounts] = {}
    for held in sorted(candidates(books, job), key=lambda h: sum(h.charged.values())):
        tenant = held.job.tenant
        removed = less.setdefault(tenant, {})
        if tenant == job.tenant or not _stays_over(books, job, held, removed):
            continue
        chosen.append(held)
        add(removed, held.charged)
    if chosen and fits_without(books, job, [whole(held) for held in chosen]) is True:
        names = ", ".join(held.job.job_id for held in crossing)
        return [f"S-I7b: {names} go below nominal for {job.job_id}; wholly borrowed ones would do"]
    return []


def insufficient(books: Books, job: Submit, gone: Sequence[Gone]) -> list[str]:
    """S-I7f, on the books before: the job would not fit though all of these go."""
    free = _free_with(books, job, gone)
    for held in books.held.values():
        if (held.leaving or held.losing) and job.job_id not in (held.leaving_for, held.losing_for):
            books.ground.project(free, _going(held))
    if books.ground.fits(job, free) is False:
        return [f"S-I7f: {job.job_id} does not fit even with all that were told to end for it"]
    if not passes_without(books, job, gone):
        return [f"S-I7f: {job.job_id} lacks quota even with all that were told to end for it"]
    return []


def surplus_would_do(books: Books, job: Submit) -> bool:
    """Whether shrinking elastic jobs, whose ever, makes the job fit: they were given what was left
    over."""
    rules = books.rules
    if books.claimed(job.job_id):
        return False
    free = _free_with(books, job, [])
    gone: list[Gone] = []
    for held in books.held.values():
        if (
            held.leaving
            or held.losing
            or books.now_ms - held.started_ms < rules.min_run_ms
            or (
                held.resized_ms is not None and books.now_ms - held.resized_ms < rules.cool_down_ms
            )
        ):
            continue
        for role, need in held.needs.items():
            seats = [seat for seat in held.seats if seat.role == role]
            extra = seats[need.minimum :] if need.minimum else []
            if extra:
                gone.append(surplus(books, held, extra))
                books.ground.project(free, gone[-1].seats)
    if not gone or job.job_id in books.nominated:
        return False
    return any(
        books.ground.fits(one, free) is True and passes_without(books, job, gone, only)
        for one, only in books.variants(job)
    )


def can_still_start(books: Books, job: Submit) -> bool | None:
    """S-I7f: whether what is free and what is going for the job is still enough for it."""
    return books.ground.fits(job, _free_with(books, job, []))


def _free_with(books: Books, job: Submit, gone: Iterable[Gone]) -> Free:
    free = books.ground.free()
    for one in gone:
        books.ground.project(free, one.seats)
    nomination = books.nominated.get(job.job_id)
    for name in sorted(nomination.waits_for) if nomination else ():
        if name in books.held:
            books.ground.project(free, _going(books.held[name]))
    return free


def _going(held: Held) -> list[tuple[Need, Seat]]:
    if held.leaving:
        return held.everything()
    return [(held.needs[seat.role], seat) for seat in held.losing]


def _relevant(books: Books, job: Submit, held: Held, less: Amounts) -> bool:
    """Whether its tenant is over nominal in something that it holds and the job wants."""
    tenants, wants = books.tenants, smallest(job)
    return any(
        tenants.over(held.job.tenant, name, less.get(name, 0)) > 0
        for name in tenants.metered(job.tenant)
        if held.charged.get(name) and (wants.get(name) or name.startswith("gpus:"))
    )


def _stays_over(books: Books, job: Submit, held: Held, less: Amounts) -> bool:
    """Whether its end does not take its tenant below nominal in anything that matters here: what
    is metered, and the job wants."""
    tenants, wants = books.tenants, smallest(job)
    mattering = [
        name
        for name in tenants.metered(job.tenant)
        if held.charged.get(name) and (wants.get(name) or name.startswith("gpus:"))
    ]
    return bool(mattering) and all(
        tenants.over(held.job.tenant, name, less.get(name, 0)) >= held.charged[name]
        for name in mattering
    )


def _over_in_some_order(books: Books, job: Submit, tenant: str, victims: list[Held]) -> bool:
    """Whether they can be taken one after the other with the tenant over nominal each time."""
    largest_last = sorted(victims, key=lambda held: sum(held.charged.values()))
    orders = permutations(victims) if len(victims) <= 5 else [tuple(largest_last)]
    for order in orders:
        less: Amounts = {}
        for held in order:
            if not _relevant(books, job, held, less):
                break
            add(less, held.charged)
        else:
            return True
    return False
