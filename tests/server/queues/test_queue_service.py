"""Queues in both kinds of database: made, changed, removed, and the order of the jobs in them."""

from __future__ import annotations

import asyncio
import random

import pytest
from sqlalchemy import insert, select, update

from windlass.core.errors import Conflict, InvalidInput, NotFound
from windlass.core.jobs import JobSpec
from windlass.core.queues import MoveBody, QueueBody
from windlass.server.jobs import order
from windlass.server.jobs import service as job_service
from windlass.server.jobs.tables import jobs
from windlass.server.queues import service, view


def put(tenancy, name, **fields):
    body = QueueBody(**fields)
    return tenancy.write(lambda c: service.put(c, name, body, by="owner", now_ms=tenancy.now_ms))


def remove(tenancy, name):
    tenancy.write(lambda c: service.remove(c, name, by="owner", now_ms=tenancy.now_ms))


def line(tenancy, queue="default"):
    """The names of those who wait, as the rows have them."""
    rows = tenancy.read(lambda c: view.waiting(c, queue, None, 1000))
    return [row["name"] for row in rows]


def move(tenancy, ref, **to):
    body = MoveBody(**to)
    tenancy.write(lambda c: order.place(c, tenancy.who, ref, body, now_ms=tenancy.now_ms))


def prioritise(tenancy, ref, priority):
    tenancy.write(lambda c: order.prioritise(c, tenancy.who, ref, priority, now_ms=tenancy.now_ms))


# -- the queue itself ------------------------------------------------------------------------


def test_the_default_queue_is_there_from_the_start(tenancy):
    [queue] = tenancy.read(service.every)
    assert (queue.name, queue.policy, queue.paused) == ("default", "backfill", False)


def test_a_queue_is_made_changed_and_removed_each_with_an_event(tenancy):
    put(tenancy, "night", policy="strict", description="long runs")
    put(tenancy, "night", policy="strict", description="long runs", paused=True)
    found = tenancy.read(lambda c: service.one(c, "night"))
    assert (found.policy, found.paused, found.revision) == ("strict", True, 2)
    remove(tenancy, "night")
    with pytest.raises(NotFound, match="no queue 'night'"):
        tenancy.read(lambda c: service.one(c, "night"))
    told = tenancy.told("rules")
    assert [event["reason"] for event in told] == [
        "queue night made by owner", "queue night: paused, by owner",
        "queue night removed by owner",
    ]  # fmt: skip
    assert all(event["data"] == {"of": "queues", "names": ["night"]} for event in told)
    assert all(event["job_id"] is None for event in told)


def test_a_change_that_changes_nothing_is_no_event(tenancy):
    put(tenancy, "night")
    put(tenancy, "night", revision=7)
    assert len(tenancy.told("rules")) == 1


def test_of_two_who_saw_the_same_queue_the_second_is_refused(tenancy):
    put(tenancy, "night", revision=0)
    put(tenancy, "night", policy="strict", revision=1)
    with pytest.raises(Conflict, match="is at revision 2, you saw 1"):
        put(tenancy, "night", policy="best-effort", revision=1)
    with pytest.raises(Conflict, match="does not exist"):
        put(tenancy, "day", revision=3)
    put(tenancy, "night", policy="best-effort")  # without a revision the last writer wins
    assert tenancy.read(lambda c: service.find(c, "night"))["policy"] == "best-effort"


def test_of_many_writers_at_once_exactly_one_wins(tenancy):
    async def race():
        bodies = [QueueBody(description=str(i), revision=0) for i in range(8)]
        return await asyncio.gather(
            *(
                tenancy.store.write(
                    lambda c, b=body: service.put(c, "new", b, by="owner", now_ms=1)
                )
                for body in bodies
            ),
            return_exceptions=True,
        )

    results = asyncio.run(race())
    assert sum(isinstance(result, dict) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 7


def test_a_queue_with_unfinished_jobs_stays_and_says_how_many(tenancy):
    put(tenancy, "night")
    tenancy.submit("a", queue={"name": "night"})
    tenancy.submit("b", queue={"name": "night"}, hold=True)
    with pytest.raises(Conflict, match="queue night has 2 unfinished jobs"):
        remove(tenancy, "night")
    tenancy.write(lambda c: c.execute(update(jobs).values(state="succeeded")) and None)
    remove(tenancy, "night")


def test_the_default_queue_is_never_removed(tenancy):
    with pytest.raises(Conflict, match="it stays"):
        remove(tenancy, "default")


def test_no_job_gets_into_a_queue_that_goes(tenancy):
    """Submits and the removal at once: either the queue stays, or nobody is in it."""
    put(tenancy, "night")

    async def race():
        spec = JobSpec.model_validate({"run": "true", "queue": {"name": "night"}})
        asks = [
            tenancy.store.write(
                lambda c: job_service.submit(
                    c, tenancy.who, spec, "python", key=None, digest="", now_ms=1
                )
            )
            for _ in range(6)
        ]
        asks.insert(
            3,
            tenancy.store.write(lambda c: service.remove(c, "night", by="owner", now_ms=1)),
        )
        return await asyncio.gather(*asks, return_exceptions=True)

    results = asyncio.run(race())
    accepted = [result for result in results if isinstance(result, job_service.Accepted)]
    there = "night" in tenancy.read(service.names)
    assert there or not accepted
    assert all(
        isinstance(r, job_service.Accepted | InvalidInput | Conflict | None) for r in results
    )


def test_a_job_for_a_queue_that_is_not_there_is_told_which_are(tenancy):
    put(tenancy, "night")
    with pytest.raises(InvalidInput, match="no queue 'nihgt'; known: default, night"):
        tenancy.submit("a", queue={"name": "nihgt"})
    with pytest.raises(InvalidInput, match="known: default, night"):
        tenancy.read(lambda c: service.known(c, "nihgt"))


def test_a_submit_writes_down_what_the_scheduler_orders_by(tenancy):
    put(tenancy, "night")
    tenancy.submit("a", at_ms=77, queue={"name": "night", "priority": 9}, work="notebook")
    row = tenancy.read(lambda c: c.execute(select(jobs)).mappings().one())
    assert (row["queue"], row["priority"], row["order_ms"], row["kind"]) == (
        "night", 9, 77, "notebook",
    )  # fmt: skip


# -- the order of the jobs -------------------------------------------------------------------


def test_a_priority_changes_the_line_with_an_event(tenancy):
    for at, name in enumerate("abc"):
        tenancy.submit(name, at_ms=at)
    prioritise(tenancy, "c", 80)
    prioritise(tenancy, "c", 80)
    assert line(tenancy) == ["c", "a", "b"]
    [event] = tenancy.told("requeued")
    assert event["data"] == {"priority": 80} and event["reason"] == "priority 50 → 80, by owner"


def test_a_job_moves_before_another_first_and_last(tenancy):
    for at, name in enumerate("abcd"):
        tenancy.submit(name, at_ms=at * 10)
    move(tenancy, "d", before="b")
    assert line(tenancy) == ["a", "d", "b", "c"]
    move(tenancy, "c", first=True)
    assert line(tenancy) == ["c", "a", "d", "b"]
    move(tenancy, "c", last=True)
    assert line(tenancy) == ["a", "d", "b", "c"]


def test_who_stands_there_already_is_not_moved(tenancy):
    for at, name in enumerate("abc"):
        tenancy.submit(name, at_ms=at)
    move(tenancy, "a", first=True)
    move(tenancy, "c", last=True)
    move(tenancy, "a", before="b")
    move(tenancy, "a", before="a")
    assert line(tenancy) == ["a", "b", "c"]
    assert tenancy.told("requeued") == []


def test_one_who_moves_takes_the_priority_of_its_neighbour(tenancy):
    for name, priority in (("low", 10), ("high", 90), ("mid", 50)):
        tenancy.submit(name, queue={"priority": priority})
    move(tenancy, "low", before="high")
    assert line(tenancy) == ["low", "high", "mid"]
    rows = tenancy.read(lambda c: dict(c.execute(select(jobs.c.name, jobs.c.priority)).all()))
    assert rows == {"low": 90, "high": 90, "mid": 50}
    move(tenancy, "low", last=True)
    assert line(tenancy) == ["high", "mid", "low"]


def test_jobs_of_one_millisecond_make_room(tenancy):
    for name in "abcde":
        tenancy.submit(name, at_ms=500)
    move(tenancy, "e", before="b")
    assert line(tenancy) == ["a", "e", "b", "c", "d"]
    move(tenancy, "a", before="d")
    assert line(tenancy) == ["e", "b", "c", "a", "d"]


@pytest.mark.parametrize("seed", range(2))
def test_any_moves_give_the_order_that_was_asked_for(tenancy, seed):
    chance = random.Random(seed)
    names = [f"j{at}" for at in range(9)]
    model = [(name, 50) for name in names]
    for name in names:
        tenancy.submit(name, at_ms=chance.randrange(3) + 10 * names.index(name) // 4)
    model = [(name, 50) for name in line(tenancy)]
    for _ in range(25):
        name = chance.choice(names)
        rest = [item for item in model if item[0] != name]
        how = chance.choice(["before", "before", "first", "last"])
        if how == "before":
            mark = chance.choice(rest)
            move(tenancy, name, before=mark[0])
            rest.insert(rest.index(mark), (name, mark[1]))
        elif how == "first":
            move(tenancy, name, first=True)
            rest.insert(0, (name, rest[0][1]))
        else:
            move(tenancy, name, last=True)
            rest.append((name, rest[-1][1]))
        model = rest
        assert line(tenancy) == [item[0] for item in model]


def test_only_waiting_jobs_of_one_queue_have_places(tenancy):
    put(tenancy, "night")
    tenancy.submit("a")
    tenancy.submit("n", queue={"name": "night"})
    tenancy.submit("r")
    tenancy.write(
        lambda c: (
            c.execute(update(jobs).where(jobs.c.name == "r").values(state="running")) and None
        )
    )
    with pytest.raises(Conflict, match="waits in queue night"):
        move(tenancy, "a", before="n")
    with pytest.raises(Conflict, match="job r is running"):
        move(tenancy, "r", first=True)
    with pytest.raises(Conflict, match="job r is running"):
        move(tenancy, "a", before="r")
    with pytest.raises(NotFound):
        move(tenancy, "a", before="nobody")
    for wrong in ({}, {"first": True, "last": True}, {"before": "n", "first": True}):
        with pytest.raises(InvalidInput, match="exactly one"):
            move(tenancy, "a", **wrong)
    prioritise(tenancy, "r", 70)  # what runs keeps it for when it waits again
    tenancy.write(
        lambda c: c.execute(update(jobs).where(jobs.c.name == "r").values(state="failed")) and None
    )
    with pytest.raises(Conflict, match="job r is failed"):
        prioritise(tenancy, "r", 1)


# -- the line --------------------------------------------------------------------------------


class Told:
    """A scheduler that has decided on an order."""

    def __init__(self, ids):
        self.ids = ids

    def line(self, queue):
        return self.ids

    def why(self, job_id):
        from windlass.scheduler.events import Reason

        return Reason("waiting-quota", "no quota left", {"gpus": 2000}, 120_000)

    def promise(self, job_id):
        from windlass.scheduler.events import Promise

        return Promise(job_id, 90_000, ("n1", "n2")) if job_id == self.ids[0] else None


def test_the_schedulers_order_comes_first_then_those_it_does_not_look_at(tenancy):
    ids = {name: tenancy.submit(name, at_ms=at) for at, name in enumerate("abcd")}
    ids["held"] = tenancy.submit("held", hold=True)
    told = Told([ids["c"], ids["a"], "0" * 32])
    rows = tenancy.read(lambda c: view.waiting(c, "default", told.line("default"), 100))
    assert [row["name"] for row in rows] == ["c", "a", "b", "d", "held"]
    assert [r["name"] for r in tenancy.read(lambda c: view.waiting(c, "default", None, 2))] == [
        "a", "b",
    ]  # fmt: skip
    shown = [view.shown(row, 1, tenancy.who, told, 0) for row in rows]
    assert (shown[0].reason, shown[0].missing) == ("waiting-quota", {"gpus": 2000})
    assert shown[0].nodes == ("n1", "n2")
    assert shown[0].expected_start == "1970-01-01T00:01:30.000Z"
    assert shown[1].expected_start == "1970-01-01T00:02:00.000Z"
    assert (shown[-1].reason, shown[-1].expected_start) == ("held", None)
    tenancy.submit("later", at_ms=2_000_000, begin="1970-01-01T00:05:00Z", hold=True)
    later = tenancy.read(lambda c: view.waiting(c, "default", told.line("default"), 100))[-1]
    assert view.shown(later, 1, tenancy.who, told, 0).expected_start == "1970-01-01T00:05:00.000Z"


def test_of_another_projects_job_only_its_place_is_told(tenancy):
    from dataclasses import replace

    from windlass.core.access import Right

    tenancy.submit("secret", roles={"worker": {"count": 2, "gpus": 4}})
    stranger = replace(
        tenancy.who, project_id="x", rights=tenancy.who.rights - {Right.QUEUE_WRITE}
    )
    [row] = tenancy.read(lambda c: view.waiting(c, "default", None, 10))
    shown = view.shown(row, 1, stranger, Told([""]), 0)
    assert (shown.id, shown.name, shown.user, shown.project, shown.sentence) == (
        None, None, None, None, "",
    )  # fmt: skip
    assert (shown.wants.members, shown.wants.gpus, shown.reason) == (2, 8.0, "waiting-quota")


def test_a_thousand_waiting_jobs_are_listed_in_order(tenancy):
    def many(conn):
        row = dict(conn.execute(select(jobs)).mappings().one())
        row.pop("number")
        conn.execute(
            insert(jobs),
            [{**row, "id": f"{at:032x}", "name": f"j{at}", "order_ms": at} for at in range(3000)],
        )

    tenancy.submit("a", at_ms=10**9)
    tenancy.write(many)
    ids = [f"{at:032x}" for at in reversed(range(3000))]
    rows = tenancy.read(lambda c: view.waiting(c, "default", ids, 1000))
    assert [row["id"] for row in rows] == ids[:1000]
    [queue] = tenancy.read(service.every)
    assert queue.waiting == 3001
