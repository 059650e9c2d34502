"""The judgement of single decisions, each on the books as they stand when it is made.

S-I1 and S-I3 (a seat is on a node that is up and has it free), S-I2 (whole gangs), S-I11 and S-I13
(who comes before whom), S-I17 (elastic), S-I18 (topology).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from windlass.scheduler.audit.books import Books, Held
from windlass.scheduler.audit.ground import each_gpu
from windlass.scheduler.audit.tenants import Amounts, smallest
from windlass.scheduler.events import Need, Seat, Start, Submit


def malformed(books: Books, job: Submit, seats: Sequence[Seat]) -> list[str]:
    """What keeps these seats from being entered in the books at all."""
    roles = {need.role: need for need in job.needs}
    found = []
    for seat in seats:
        if seat.role not in roles:
            found.append(f"S-I2: {job.job_id} has a seat for {seat.role!r}, which it has not")
        elif seat.node not in books.ground.index:
            found.append(f"S-I1: {job.job_id} sits on {seat.node}, which is not there")
    if len(seats) > 1 and len({(seat.role, seat.index) for seat in seats}) != len(seats):
        found.append(f"S-I2: {job.job_id} has two seats for one member")
    return found


def at_its_fewest(books: Books, start: Start) -> Start:
    """The same start without the members above the fewest that will do."""
    job = books.pending.get(start.job_id)
    if job is None or not any([need.minimum for need in job.needs]):
        return start
    needs = {need.role: need for need in job.needs}
    seats = tuple(
        seat
        for seat in start.seats
        if seat.role not in needs
        or not needs[seat.role].minimum
        or seat.index < needs[seat.role].minimum
    )
    return replace(start, seats=seats)


def partial(job: Submit, seats: Sequence[Seat]) -> list[str]:
    """S-I2: roles that have fewer members than will do, or more than they want."""
    found = []
    for need in job.needs:
        indices = [seat.index for seat in seats if seat.role == need.role]
        many, least = len(indices), need.minimum or need.count
        label = "S-I17" if need.minimum else "S-I2"
        if not least <= many <= need.count:
            found.append(
                f"{label}: {job.job_id} has {many} of {least} to {need.count} {need.role}"
            )
        if any(not 0 <= index < need.count for index in indices):
            found.append(f"S-I2: {job.job_id} has a {need.role} beyond {need.count}")
    return found


def unseated(books: Books, job: Submit, seats: Iterable[Seat]) -> list[str]:
    """S-I1, S-I3: seats (already in the books) that their nodes do not have to give."""
    ground, found = books.ground, []
    roles = {need.role: need for need in job.needs}
    for seat in seats:
        need, node = roles[seat.role], ground.index[seat.node]
        if not ground.up[node]:
            found.append(f"S-I1: {job.job_id} is put on {seat.node}, which is down")
        found.extend(_devices(job, need, seat))
        model = ground.offers[node].gpu_model
        if need.gpu_models and model not in need.gpu_models:
            found.append(f"S-I1: {job.job_id} is put on {seat.node}, whose GPUs are {model!r}")
        if need.labels and not set(need.labels) <= set(ground.offers[node].labels):
            found.append(f"S-I1: {job.job_id} is put on {seat.node}, which lacks {need.labels}")
        for what in ground.owed(node, need, seat):
            found.append(f"S-I3: {job.job_id} is put on {seat.node}, which then has {what} taken")
    return sorted(set(found)) if found else found


def _devices(job: Submit, need: Need, seat: Seat) -> list[str]:
    wants = need.gpus if need.gpus else int(bool(each_gpu(need)))
    if len(set(seat.gpus)) != wants or len(seat.gpus) != wants:
        return [f"S-I1: {job.job_id} gets devices {seat.gpus} on {seat.node}, wants {wants}"]
    return []


def scattered(books: Books, job: Submit, seats: Sequence[Seat], *, exact: bool) -> list[str]:
    """S-I18, before the seats are taken: required levels are kept, preferred ones where they can
    be (`exact`: nobody else has a claim on what is free)."""
    ground = books.ground
    pools = {ground.offers[ground.index[seat.node]].pool for seat in seats}
    if len(pools) > 1:
        return [f"S-I18: {job.job_id} is spread over {len(pools)} pools"]
    codes = ground.domains(job.level)
    domains = {int(codes[ground.index[seat.node]]) for seat in seats}
    if len(domains) == 1:
        return []
    if job.required:
        return [f"S-I18: {job.job_id} is spread over {len(domains)} domains of {job.level}"]
    grown = len(seats) > sum(need.minimum or need.count for need in job.needs)
    if exact and not grown and _fits_together(books, job):
        return [f"S-I18: {job.job_id} is spread, though one {job.level} would have taken it"]
    return []


def _fits_together(books: Books, job: Submit) -> bool:
    """Whether it would fit in one domain of its level, on a GPU model it has quota for."""
    ground = books.ground
    return any(
        ground.fits_at(one, ground.free(), job.level) is True and books.tenants.passes(job, only)
        for one, only in books.variants(job)
    )


def out_of_turn(books: Books, job: Submit) -> list[str]:
    """S-I11, S-I13: somebody who differs in nothing but whose it is and when it came should have
    been started before this job. On the books before the start, with what was promised charged:
    quota is kept with the nodes."""
    kept = [
        (books.pending[job_id], books.promise_charges(books.pending[job_id], promised))
        for job_id, promised in books.promised.items()
        if job_id != job.job_id and job_id not in books.nominated
    ]
    for other, amounts in kept:
        books.tenants.charge(other, amounts)
    found = _out_of_turn(books, job)
    for other, amounts in kept:
        books.tenants.charge(other, amounts, -1)
    return found


def _out_of_turn(books: Books, job: Submit) -> list[str]:
    found = []
    claim = books.nominated.get(job.job_id)
    promised = books.promised.get(job.job_id)
    tenants, fair = books.tenants, books.rules.order == "fair"
    mine = (job.tenant, job.kind, job.user)
    for cls, other_id in books.line.first(job):
        other = books.pending[other_id]
        if other_id == job.job_id:
            continue
        came = books.told_ms[other_id]
        if (claim and claim.since_ms <= came) or (promised and promised.made_ms <= came):
            continue
        earlier = (other.order_ms, other.number) < (job.order_ms, job.number)
        if cls == mine:
            if earlier:
                found.append(f"S-I11: {job.job_id} starts before {other_id}, which is like it")
            continue
        if claim or promised or other_id in books.nominated or _starving(books, job):
            continue
        if not tenants.surely_passes(other, books.models(other)):
            continue
        if not fair and earlier:
            found.append(f"S-I11: {job.job_id} starts before {other_id}, which came before it")
        if fair and _smaller_share(books, other, job):
            found.append(f"S-I13: {job.job_id} starts before {other_id} of a tenant with less")
    return found


def passed_over(books: Books, job: Submit) -> list[str]:
    """S-I11 in a strict queue: nobody passes the first. And a paused queue starts nobody."""
    queue = books.queue(job.queue)
    if queue.paused and job.job_id not in books.nominated:
        return [f"S-I11: {job.job_id} starts, though its queue {queue.name} is paused"]
    if queue.policy != "strict" or job.job_id in books.nominated:
        return []
    for other in books.pending.values():
        if other.queue != job.queue or other.job_id == job.job_id:
            continue
        if books.told_ms[other.job_id] >= books.now_ms and books.promised.get(job.job_id):
            continue
        before = (-other.priority, other.order_ms, other.number) < (
            -job.priority, job.order_ms, job.number,
        )  # fmt: skip
        if before and (books.rules.order == "fifo" or other.tenant == job.tenant):
            if books.rules.order == "fair" and smallest(other) != smallest(job):
                continue  # its share after admission may be larger
            if _never(books, other):
                continue
            return [f"S-I11: {job.job_id} passes {other.job_id} in the strict queue {job.queue}"]
    return []


def resized(books: Books, held: Held, seats: Sequence[Seat]) -> list[str]:
    """S-I17, on the books before."""
    found, name = [], held.job.job_id
    if held.leaving:
        found.append(f"S-I17: {name} is resized while it is told to end")
    last = held.resized_ms
    if last is not None and books.now_ms - last < books.rules.cool_down_ms:
        found.append(f"S-I17: {name} is resized again after {books.now_ms - last} ms")
    return found + partial(held.job, seats)


def _never(books: Books, job: Submit) -> bool:
    """Whether it could not start even if it were alone: nobody waits for such a one."""
    return not any(
        books.ground.fits(one, books.ground.empty()) is True
        and not books.tenants.never_passes(job, only)
        for one, only in books.variants(job)
    )


def _starving(books: Books, job: Submit) -> bool:
    return books.now_ms - job.order_ms >= books.rules.starving_ms


def _smaller_share(books: Books, one: Submit, other: Submit) -> bool:
    """Whether, whatever the cohort owns, `one` would have the strictly smaller share of what is
    borrowed after its start: less in every resource, in proportion to the weights. Only among
    children of one cohort; the jobs want the same."""
    tenants = books.tenants
    if one.tenant not in tenants.quotas or other.tenant not in tenants.quotas:
        return False
    first, second = tenants.quotas[one.tenant], tenants.quotas[other.tenant]
    if first.parent != second.parent or not first.parent or one.tenant == other.tenant:
        return False
    if _starving(books, one):
        return False
    if tenants.within_nominal(one) != tenants.within_nominal(other):
        return tenants.within_nominal(one)
    # Whether the job's own size counts in its share or not, the answer must be the same.
    return all(_less(books, one, other, wants) for wants in ({}, smallest(one)))


def _less(books: Books, one: Submit, other: Submit, wants: Amounts) -> bool:
    tenants = books.tenants
    first, second = tenants.quotas[one.tenant], tenants.quotas[other.tenant]
    borrowed = []
    for name in sorted(tenants.metered(one.tenant)):
        lesser = max(0, tenants.over(one.tenant, name) + wants.get(name, 0))
        greater = max(0, tenants.over(other.tenant, name) + wants.get(name, 0))
        borrowed.append((lesser * second.weight_milli, greater * first.weight_milli))
    return any(greater > 0 for _, greater in borrowed) and all(
        lesser < greater or lesser == greater == 0 for lesser, greater in borrowed
    )
