"""Budgets and limits of cost: told once, then nothing starts; in both kinds of database."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import insert, select, update
from usage_scene import BASE, DAY, HOUR

from windlass.core.errors import Fenced, NotFound
from windlass.core.usage import BudgetBody
from windlass.server.access.tables import memberships, projects
from windlass.server.usage import budgets, rollup
from windlass.server.usage.meter import Meter
from windlass.server.usage.tables import marks

MONTH = 1_727_740_800_000
"""2024-10-01: the month of BASE."""


class Still:
    """A clock that a test turns."""

    def __init__(self, now_ms):
        self.now = now_ms

    def now_ms(self):
        return self.now


def meter(metered, now_ms, told=None, **settings):
    clock = Still(now_ms)
    hinted = told if told is not None else []
    made = Meter(
        metered.tenancy.store, clock, guard=lambda conn: None, wished=hinted.append, **settings
    )
    return made, clock


def percents(metered):
    return [event["data"]["percent"] for event in metered.tenancy.told("budget")]


def spent(metered):
    return metered.read(budgets.spent)


def test_each_part_of_a_budget_is_told_once(metered):
    metered.price("gpu", 10, BASE - 1)
    metered.budget("default", BASE, amount=20)
    job = metered.start("a", BASE)
    loop, clock = meter(metered, BASE)
    for hours, told in ((0.5, []), (1, [50]), (1.1, [50]), (1.7, [50, 80]), (3, [50, 80, 100])):
        clock.now = BASE + int(hours * HOUR)
        asyncio.run(loop.turn())
        assert percents(metered) == told
    [event] = [e for e in metered.tenancy.told("budget") if e["data"]["percent"] == 80]
    assert event["reason"] == "80 % of the budget of project default is spent: 17.00 of 20.00"
    assert event["project_id"] == metered.tenancy.who.project_id
    assert spent(metered).why("default", "x").startswith("the budget of project default is spent")
    metered.over(job, BASE + 3 * HOUR)
    metered.roll()
    asyncio.run(loop.turn())
    [at] = metered.settle(BASE + 4 * HOUR)
    assert (at.cost, at.percent, at.warned) == (30_000_000, 150, frozenset({50, 80, 100}))
    assert len(metered.read(lambda conn: conn.execute(select(marks)).all())) == 3


def test_a_users_budget_is_told_in_the_projects_it_works_in_and_not_how_much_it_was(metered):
    """What it spent in one is not for the members of the other."""
    who = metered.tenancy.who
    [other] = metered.read(
        lambda conn: conn.scalars(select(projects.c.id).where(projects.c.name == "other")).all()
    )
    metered.write(
        lambda conn: (
            conn.execute(
                insert(memberships).values(
                    project_id=other, user_id=who.user_id, role="member", added_ms=0
                )
            ).rowcount
        )
    )
    metered.price("gpu", 10, BASE - 1)
    metered.budget("owner", BASE, kind="user", amount=20)
    metered.start("a", BASE)
    loop, clock = meter(metered, BASE)
    clock.now = BASE + HOUR
    asyncio.run(loop.turn())
    told = metered.tenancy.told("budget")
    assert sorted(event["project_id"] for event in told) == sorted([who.project_id, other])
    for event in told:
        assert event["reason"] == "50 % of the budget of user owner is spent"
        assert event["data"] == {"of": "user", "name": "owner", "percent": 50, "period": "2024-10"}


def test_a_change_holds_at_once_and_is_told_anew(metered):
    metered.price("gpu", 10, BASE - 1)
    metered.over(metered.start("a", BASE), BASE + HOUR)
    now = BASE + 2 * HOUR
    metered.budget("default", now, amount=5)
    assert percents(metered) == [50, 80, 100] and spent(metered).projects
    metered.budget("default", now, amount=15)
    assert percents(metered) == [50, 80, 100, 50] and not spent(metered).projects
    metered.budget("default", now, amount=5)
    assert len(percents(metered)) == 4, "of this amount all was told"
    assert spent(metered).projects
    metered.write(lambda conn: budgets.remove(conn, "project", "default", by="o", now_ms=now))
    assert not spent(metered).projects
    with pytest.raises(NotFound, match="has no budget"):
        metered.write(lambda conn: budgets.remove(conn, "project", "default", by="o", now_ms=now))
    with pytest.raises(NotFound, match="no project nobody"):
        metered.budget("nobody", now, amount=1)


def test_a_budget_of_nothing_is_spent_at_once(metered):
    metered.budget("default", BASE, amount=0)
    assert spent(metered).why("default", "")


def test_a_month_ends_and_a_total_does_not(metered):
    metered.price("gpu", 10, MONTH - DAY)
    metered.over(metered.start("before", MONTH - HOUR), MONTH + HOUR)
    metered.budget("default", MONTH + HOUR, amount=10)
    metered.budget("owner", MONTH + HOUR, kind="user", amount=20, period="total")
    assert spent(metered).why("default", "owner")
    [project, user] = metered.settle(MONTH + 2 * HOUR)
    assert (project.cost, user.cost) == (10_000_000, 20_000_000), "the hour before is last month's"
    [project, user] = metered.settle(MONTH + 31 * DAY)
    assert (project.cost, user.cost) == (0, 20_000_000)
    found = spent(metered)
    assert found.why("default", "other") is None
    assert found.why("other", "owner").startswith(
        "the budget of user owner is spent (20.00 in all"
    )


def test_who_asks_is_told_which_jobs_wait_for_it(metered):
    first = metered.tenancy.submit("a")
    metered.budget("default", BASE, amount=0)
    now, ids = metered.read(lambda conn: budgets.news(conn, budgets.Spent()))
    assert ids == [first] and now.why("default", "owner")
    assert metered.read(lambda conn: budgets.news(conn, now)) == (now, [])
    metered.budget("default", BASE, amount=1)
    assert metered.read(lambda conn: budgets.news(conn, now)) == (budgets.Spent(), [first])


def test_what_runs_is_stopped_only_if_the_budget_says_so(metered):
    metered.price("gpu", 10, BASE - 1)
    job = metered.start("a", BASE)
    metered.budget("default", BASE, amount=1)
    told: list[str] = []
    loop, _ = meter(metered, BASE + HOUR, told)
    asyncio.run(loop.turn())
    assert (metered.job(job)["wish"], told) == (None, [])
    metered.budget("default", BASE + HOUR, amount=1, on_spent="stop")
    asyncio.run(loop.turn())
    row = metered.job(job)
    assert (row["wish"], row["wish_now"], told) == ("restart", 0, [job])
    assert "the budget of project default is spent" in row["wish_reason"]
    asyncio.run(loop.turn())
    assert told == [job], "once is enough"
    metered.tell(job, BASE + HOUR, "restart")
    metered.over(job, BASE + HOUR + 5, "preempted", "queued")
    assert {row["kind"] for row in metered.entries()} == {"run"}, "its own budget, its own grace"


def test_a_job_over_its_own_limit_of_cost_is_stopped(metered):
    metered.price("gpu", 10, BASE - 1)
    job = metered.start("a", BASE, gpus=1, cost=30)
    metered.start("b", BASE)
    told: list[str] = []
    loop, clock = meter(metered, BASE + 3 * HOUR - 1000, told)
    asyncio.run(loop.turn())
    assert told == []
    clock.now = BASE + 3 * HOUR
    asyncio.run(loop.turn())
    assert (told, metered.job(job)["wish"]) == ([job], "cancel")
    assert metered.job(job)["wish_reason"] == "cost-limit: it cost 30.00 of 30.00"


def test_a_limit_counts_all_attempts_of_a_job(metered):
    metered.price("gpu", 10, BASE - 1)
    job = metered.start("a", BASE, gpus=1, cost=30)
    metered.over(job, BASE + 2 * HOUR, "lost", "queued")
    metered.begin(job, BASE + 3 * HOUR)
    told: list[str] = []
    loop, clock = meter(metered, BASE + 4 * HOUR - 1000, told)
    asyncio.run(loop.turn())
    assert told == []
    clock.now += 1000
    asyncio.run(loop.turn())
    assert told == [job]


def test_the_meter_cuts_at_full_hours_and_keeps_the_sums(metered):
    ends = metered.start("a", BASE + 5)
    late = metered.start("b", BASE + HOUR + 5)
    metered.tell(ends, BASE + HOUR - 5)
    loop, clock = meter(metered, BASE + 2 * HOUR + 7)
    due = asyncio.run(loop.turn())
    assert metered.lines() == [("run", HOUR + 5, 2 * HOUR)], "who ends is written at its end"
    assert 0 < due <= 10_000
    asyncio.run(loop.turn())
    assert len(metered.entries()) == 1
    clock.now = BASE + 3 * HOUR
    asyncio.run(loop.turn())
    metered.over(late, BASE + 3 * HOUR + 1)
    metered.over(ends, BASE + 3 * HOUR + 1)
    asyncio.run(loop.turn())
    [line] = metered.report("project", BASE, BASE + DAY)
    assert line.gpu == 1000 * (3 * HOUR - 4 + 2 * HOUR - 4)


def test_a_meter_that_does_not_lead_writes_nothing(metered):
    metered.start("a", BASE)

    def refuse(conn):
        raise Fenced("another leads")

    loop = Meter(metered.tenancy.store, Still(BASE + HOUR), guard=refuse, wished=lambda job: None)
    with pytest.raises(Fenced, match="another leads"):
        asyncio.run(loop.turn())
    assert metered.entries() == []


def test_a_project_that_is_not_asked_for_is_not_told(metered):
    metered.budget("default", BASE, amount=1)
    metered.budget("other", BASE, amount=1)
    metered.budget("owner", BASE, kind="user", amount=1)
    mine = metered.tenancy.who.project_id
    shown = metered.read(lambda conn: budgets.page(conn, "EUR", BASE, mine))
    assert [(item.kind, item.name) for item in shown.items] == [("project", "default")]
    every = metered.read(lambda conn: budgets.page(conn, "EUR", BASE))
    assert len(every.items) == 3 and every.currency == "EUR"


def test_a_removed_project_takes_its_budget_out_of_the_way_of_the_next_of_its_name(metered):
    metered.budget("other", BASE, amount=0)
    assert spent(metered).why("other", "")
    gone = update(projects).where(projects.c.name == "other").values(removed_ms=BASE)
    metered.write(lambda conn: conn.execute(gone) and None)
    assert spent(metered).why("other", "") is None
    assert metered.read(lambda conn: budgets.page(conn, "EUR", BASE)).items == ()
    with pytest.raises(NotFound, match="no project other"):
        metered.budget("other", BASE, amount=1)


def test_budgets_that_change_at_once_do_not_wait_for_each_other_for_ever(metered):
    """And the sums are kept meanwhile."""
    metered.price("gpu", 10, BASE - 1)
    for n in range(6):
        metered.over(metered.start(f"j{n}", BASE + n), BASE + HOUR)
    store = metered.tenancy.store

    async def race():
        body, now = BudgetBody.model_validate({"amount": 60}), BASE + HOUR
        await asyncio.gather(
            *(
                store.write(
                    lambda c, k=kind, n=name: budgets.put(c, k, n, body, by="o", now_ms=now)
                )
                for kind, name in [("project", "default"), ("user", "owner"), ("project", "other")]
                for _ in range(4)
            ),
            *(store.write(lambda c: rollup.add(c, 2)) for _ in range(6)),
            *(store.write(lambda c: budgets.settle(c, BASE + HOUR) and None) for _ in range(4)),
        )

    asyncio.run(race())
    assert [at.cost for at in metered.settle(BASE + HOUR)] == [59_999_958, 0, 59_999_958]
    assert percents(metered) == [50, 80], "the user is in no project that could be told"
    assert len(metered.read(lambda conn: conn.execute(select(marks)).all())) == 4
