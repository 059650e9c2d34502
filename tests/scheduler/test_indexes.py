"""What the core keeps so as not to look at everything says the same as a look at everything."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from windlass.scheduler import placement, plans
from windlass.scheduler.core import Core
from windlass.scheduler.entries import Stage
from windlass.scheduler.events import (
    NEVER,
    Need,
    NodeUp,
    Offer,
    Preempt,
    Quota,
    Release,
    Resize,
    Resized,
    Rules,
    Start,
    Submit,
)
from windlass.scheduler.preempt import Plan, Planner

QUOTAS = (
    Quota("all"),
    *(Quota(f"t{at}", "all", nominal={"gpus": 12_000}) for at in range(4)),
)


def crowded(seed: int, rules: Rules, pools: int = 1) -> Iterator[Core]:
    """A small cluster with more work than it can do; the core after every tick."""
    rng = random.Random(seed)
    core = Core(rules)
    offers = [
        Offer(f"n{at}", cpus_milli=32_000, gpus=8, rack=f"r{at // 2}", pool=f"p{at % pools}")
        for at in range(6)
    ]
    core.apply([NodeUp(offer) for offer in offers], 0)
    running: dict[str, int] = {}
    told: dict[str, Submit] = {}
    now = 0
    for number in range(160):
        now += rng.randrange(1, 60_000)
        workers, gpus = rng.choice([(1, 1), (1, 1), (1, 2), (1, 8), (2, 4), (3, 8), (5, 1)])
        minimum = workers // 2 if rng.random() < 0.2 else 0
        runs = rng.choice([20_000, 300_000, 900_000, 3_000_000])
        job = Submit(
            f"j{number}",
            f"t{rng.randrange(6)}",
            (Need("worker", workers, cpus_milli=1000, gpus=gpus, minimum=minimum),),
            now,
            number,
            priority=rng.choice([50, 50, 60, 90]),
            expected_ms=runs if rng.random() < 0.8 else None,
        )
        told[job.job_id] = job
        over = [name for name, end in running.items() if end <= now]
        events = [*(Release(name) for name in over), job]
        for name in over:
            del running[name]
        while events:
            decisions = core.apply(events, now)
            events = []
            for decision in decisions:
                if isinstance(decision, Start):
                    end = told[decision.job_id].expected_ms or 600_000
                    running[decision.job_id] = now + end
                elif isinstance(decision, Preempt):
                    running.pop(decision.job_id, None)
                    events += [Release(decision.job_id), told[decision.job_id]]
                elif isinstance(decision, Resize):
                    events.append(Resized(decision.job_id))
            yield core


RULES = [Rules(min_run_ms=0), Rules(quotas=QUOTAS, min_run_ms=0), Rules(order="fifo")]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rules", RULES, ids=["open", "quotas", "fifo"])
def test_who_is_barred_has_no_seats(seed: int, rules: Rules) -> None:
    barred = 0
    for core in crowded(seed, rules, pools=1 + seed % 2):
        for entry in core.waiting.values():
            if entry.stage is Stage.WAITING and core.seating.kept_from(entry):
                barred += 1
                assert core.seating.seats_for(entry) is None, entry.told
        for kept in list(core.reservations.all.values()):
            if not core.now_ms < kept.start_ms < NEVER and not kept.claim:
                continue  # its time has come: it is not asked
            passing = core.seating.outranks_a_promise(kept.entry)
            if core.books.bars.holds_for(kept, core.now_ms, passing=passing):
                assert core.seating.seats_for(kept.entry, own=kept) is None, kept.entry.told
    assert barred


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rules", RULES, ids=["open", "quotas", "fifo"])
def test_the_first_of_all_is_found_without_sorting_them(seed: int, rules: Rules) -> None:
    for core in crowded(seed, rules):
        pending = core.books.pending
        for group in list(pending.groups.values()):
            found = pending.best(group)
            firsts = [booth.first() for booth in group.booths.values()]
            least = min(
                (core.books.key(entry) for entry in firsts if entry is not None), default=None
            )
            assert (found and found[0]) == least
        for form, heads in pending.of_form.items():
            lanes = [
                lane
                for group in pending.forms[form].values()
                for booth in group.booths.values()
                for lane in booth.lanes.values()
                if not lane.parked
            ]
            firsts = [lane.first() for lane in lanes]
            by_tenant: dict[str, tuple[tuple[int, int, int], object]] = {}
            for entry in firsts:
                if entry is not None:
                    tenant = entry.told.tenant
                    if tenant not in by_tenant or entry.rank < by_tenant[tenant][0]:
                        by_tenant[tenant] = (entry.rank, core.books.key(entry))
            least_key = min((key for _, key in by_tenant.values()), default=None)  # type: ignore[type-var]
            peeked = heads.peek()
            assert (peeked and peeked[0]) == least_key


@pytest.mark.parametrize("seed", range(3))
def test_the_walk_over_ends_plans_as_the_columns_do(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk, compared = plans._plan_soon, []

    def both(*args):  # type: ignore[no-untyped-def]
        found = walk(*args)
        if found is not None:
            slow = plans._plan_by_columns(*args, None)
            assert slow is not None
            assert found[:2] == slow[:2]
            spare = plans.spare_on(slow[1], slow[2], args[1])
            assert (spare.amounts == found[2].amounts).all()
            assert (spare.gpu == found[2].gpu).all()
            compared.append(found)
        return found

    monkeypatch.setattr(plans, "_plan_soon", both)
    for _ in crowded(seed, Rules(preemption=False), pools=1 + seed % 2):
        pass
    assert compared


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rules", RULES[:2], ids=["open", "quotas"])
def test_who_is_not_asked_whether_it_grows_could_not(seed: int, rules: Rules) -> None:
    passed_over = 0
    for core in crowded(seed, rules, pools=1 + seed % 2):
        elastic, nodes = core._elastic, core.nodes
        asked = {id(one) for _, some in elastic._hunger.worth_asking() for one in some}
        for hungry in elastic._hunger._of.values():
            entry, need, form = hungry.entry, hungry.entry.elastic, hungry.line.form
            assert need is not None
            if entry.losing or entry.resized_ms + rules.cool_down_ms > core.now_ms:
                continue
            if id(hungry) not in asked and elastic._extra(entry, need, 1, None):
                passed_over += 1
                limit = core.reservations.limit(form, entry.ends_ms, nodes)
                assert not nodes.extend(entry.form, entry.seats, 1, limit=limit), entry.told
    assert passed_over


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rules", RULES[:2], ids=["open", "quotas"])
def test_whom_no_surplus_helps_is_known_without_trying(
    seed: int, rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, knew = Planner.plan, []

    def both(self: Planner, quotas_any: bool, borrowers: Sequence[str]) -> Plan | None:
        in_vain = self._in_vain(borrowers)
        later_ms, self.later_ms = self.later_ms, NEVER
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Planner, "_in_vain", lambda *_: False)
            found = plan(self, quotas_any, borrowers)
        if in_vain:
            knew.append(self)
            assert found is None and self.later_ms == later_ms
        return found

    monkeypatch.setattr(Planner, "plan", both)
    for _ in crowded(seed, replace(rules, cool_down_ms=1), pools=1 + seed % 2):
        pass
    assert knew


@pytest.mark.parametrize("seed", range(4))
def test_surplus_is_kept_in_order_as_gangs_grow_and_shrink(seed: int) -> None:
    seen = 0
    for core in crowded(seed, Rules(min_run_ms=0, cool_down_ms=1)):
        running = core.running
        having = [e for e in running.entries.values() if e.stage is Stage.RUNNING and e.surplus]
        having.sort(key=lambda e: (e.told.priority, -e.started_ms, -e.told.number))
        assert list(running.with_surplus()) == having
        seen += len(having)
        devices = running.surplus_devices().copy()
        for entry in having:
            for seat in entry.surplus_seats():
                devices[core.nodes.index[seat.node]] -= len(seat.gpus)
        assert (devices >= 0).all()
    assert seen


@pytest.mark.parametrize("seed", range(200))
def test_among_few_nodes_a_gang_grows_as_it_does_among_all(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(1, 40)
    groups = sorted((rng.randrange(1, 10) for _ in range(3)), reverse=True)
    levels = [
        placement.Domains(np.array([at * many // count for at in range(count)], dtype=np.int64))
        for many in groups
    ]
    room = np.array([rng.choice((0, 0, 1, 2, 5)) for _ in range(count)], dtype=np.int64)
    key = np.array([rng.randrange(4) for _ in range(count)], dtype=np.int64)
    free = [(int(key[node]), node, int(room[node])) for node in range(count) if room[node]]
    held = sorted(rng.sample(range(count), rng.randrange(1, min(count, 4) + 1)))
    for extra in (1, 2, 3, 7, 20, 61):
        for highest in ("", "host", "rack", "block"):
            among = placement.extend_among(free, held, extra, levels, highest)
            held_at = np.array(held, dtype=np.int64)
            assert among == placement.extend(room, key, held_at, extra, levels, highest)


@pytest.mark.parametrize("seed", range(200))
def test_among_few_nodes_a_gang_gets_what_it_gets_among_all(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(1, 40)
    levels = [
        placement.Domains(np.array([at * groups // count for at in range(count)], dtype=np.int64))
        for groups in sorted((rng.randrange(1, 10) for _ in range(3)), reverse=True)
    ]
    room = np.array([rng.choice((0, 0, 1, 2, 5)) for _ in range(count)], dtype=np.int64)
    key = np.array([rng.randrange(4) for _ in range(count)], dtype=np.int64)
    free = [(int(key[node]), node, int(room[node])) for node in range(count) if room[node]]
    for members in (1, 2, 3, 7, 20, 61):
        for highest in ("", "host", "rack", "block"):
            among = placement.gang_among(free, members, levels, highest)
            assert among == placement.gang(room, key, members, levels, highest)
