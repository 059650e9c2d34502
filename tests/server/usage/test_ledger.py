"""The ledger in both kinds of database: exact, append-only, and there when the job is gone."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import delete, select, text, update
from sqlalchemy.exc import DBAPIError
from usage_scene import BASE, DAY, HOUR

from windlass.core.errors import InvalidInput
from windlass.server.jobs import removal, reports
from windlass.server.jobs.tables import attempts, workers
from windlass.server.usage import ledger, used
from windlass.server.usage.tables import holdings, prices
from windlass.server.usage.tables import ledger as entries


def test_an_attempt_is_on_the_ledger_to_the_millisecond(metered):
    job = metered.start("a", BASE + 7, nodes=("n1", "n1"), gpus=2, cpus=1.5, memory=2**30)
    metered.used(job, used_cpu=900, used_memory=5000, peak_bytes=777)
    metered.over(job, BASE + 1240)
    [row] = metered.entries()
    assert (row["kind"], row["from_ms"], row["to_ms"]) == ("run", BASE + 7, BASE + 1240)
    assert (row["gpu"], row["cpu"], row["memory"]) == (4000 * 1233, 3000 * 1233, 2048 * 1233)
    assert (row["used_cpu"], row["used_memory"], row["peak_bytes"]) == (900, 5000, 777)
    held = metered.read(lambda c: c.execute(select(holdings)).mappings().one())
    assert (held["job_name"], held["user_name"], held["project_name"]) == ("a", "owner", "default")
    assert (held["pool"], held["gpu_model"], held["members"]) == ("local", "H200", 2)


def test_a_long_attempt_is_cut_at_hours_days_and_prices(metered):
    metered.price("gpu", "3.60", BASE - DAY)
    job = metered.start("a", BASE - 90 * 60_000)
    metered.cut(job, BASE - HOUR)
    metered.cut(job, BASE - HOUR)
    metered.price("gpu", "7.20", BASE + 1_800_000)
    metered.over(job, BASE + HOUR + 1)
    half = HOUR // 2
    assert metered.lines() == [
        ("run", -HOUR - half, -HOUR), ("run", -HOUR, 0), ("run", 0, half), ("run", half, HOUR),
        ("run", HOUR, HOUR + 1),
    ]  # fmt: skip
    assert [row["cost"] for row in metered.entries()] == [
        1_800_000, 3_600_000, 1_800_000, 3_600_000, 2,
    ]  # fmt: skip
    assert sum(row["gpu"] for row in metered.entries()) == 1000 * (2 * HOUR + half + 1)


def test_what_was_used_is_told_once_in_all(metered):
    job = metered.start("a", BASE, cpus=1)
    metered.used(job, used_cpu=100, used_memory=10)
    metered.cut(job, BASE + HOUR)
    metered.used(job, used_cpu=250, used_memory=10)
    metered.over(job, BASE + HOUR + 5)
    assert [row["used_cpu"] for row in metered.entries()] == [100, 150]
    assert [row["used_memory"] for row in metered.entries()] == [10, 0]


def test_a_gang_over_two_models_has_a_line_for_each(metered):
    job = metered.start("a", BASE, nodes=("n1", "n2", "n2"), gpus=1)
    metered.over(job, BASE + 10)
    assert sorted((row["part"], row["gpu"]) for row in metered.entries()) == [
        (0, 10_000), (1, 20_000),
    ]  # fmt: skip


@pytest.mark.parametrize("wish", ["preempt", "resize"])
def test_grace_and_lost_work_of_a_preempted_job_are_nobodys(metered, wish):
    metered.price("gpu", 3600, BASE - 1)
    job = metered.start("a", BASE)
    metered.saved(job, BASE + HOUR - 60_000)
    metered.cut(job, BASE + HOUR)
    metered.cut(job, BASE + 2 * HOUR)
    metered.tell(job, BASE + 2 * HOUR + 500, wish)
    metered.over(job, BASE + 2 * HOUR + 800, "preempted", "queued")
    late, told = HOUR - 60_000, 2 * HOUR + 500
    assert sorted(metered.lines()) == [
        ("grace", told, told + 300), ("lost", late, HOUR), ("lost", HOUR, 2 * HOUR),
        ("lost", 2 * HOUR, told), ("refund", late, HOUR), ("refund", HOUR, 2 * HOUR),
        ("run", 0, HOUR), ("run", HOUR, 2 * HOUR),
    ]  # fmt: skip
    sums = {each.line: each for each in metered.report("project", BASE, BASE + DAY)}
    assert sums["charged"].gpu == 1000 * late and sums["charged"].cost == 1_000_000 * late // 1000
    assert sums["lost"].gpu == 1000 * (told - late) and sums["grace"].gpu == 1000 * 300
    assert sum(each.gpu for each in sums.values()) == 1000 * (told + 300)


@pytest.mark.parametrize(
    ("wish", "outcome"),
    [("restart", "preempted"), ("cancel", "cancelled"), ("preempt", "succeeded")],
)
def test_who_ends_by_its_own_wish_or_by_itself_pays_to_the_end(metered, wish, outcome):
    job = metered.start("a", BASE)
    metered.tell(job, BASE + 100, wish)
    metered.over(job, BASE + 300, outcome)
    assert metered.lines() == [("run", 0, 300)]


def test_a_checkpoint_in_the_grace_saves_all_work(metered):
    job = metered.start("a", BASE)
    metered.tell(job, BASE + 100, "preempt")
    metered.saved(job, BASE + 150)
    metered.over(job, BASE + 300, "preempted", "queued")
    assert metered.lines() == [("run", 0, 100), ("grace", 100, 300)]


def test_doing_it_again_adds_nothing(metered):
    job = metered.start("a", BASE)
    metered.cut(job, BASE + HOUR)
    metered.over(job, BASE + HOUR + 300)
    before = metered.entries()
    row = metered.job(job)
    found = metered.read(lambda c: c.execute(select(attempts)).mappings().one())

    def again(conn):
        ledger.open_(conn, row, dict(found), {}, BASE + 9)
        ledger.cut(conn, found["id"], BASE + HOUR)
        ledger.close(conn, row, dict(found), "succeeded", BASE + HOUR + 300)

    metered.write(again)
    assert metered.entries() == before
    [held] = metered.read(lambda c: c.execute(select(holdings)).mappings().all())
    assert held["from_ms"] == BASE and held["pool"] == "local"


@pytest.mark.parametrize("table", [holdings, entries, prices], ids=lambda table: table.name)
def test_no_row_is_ever_changed(metered, table, dialect):
    metered.price("cpu", 1, BASE)
    metered.over(metered.start("a", BASE), BASE + 5)
    refused = [delete(table), update(table).values(from_ms=1)]
    if dialect == "postgresql":
        refused.append(text(f"TRUNCATE {table.name}"))
    for statement in refused:
        with pytest.raises(DBAPIError, match=f"{table.name} is append-only"):
            metered.write(lambda conn, statement=statement: conn.execute(statement) and None)
    count = metered.read(lambda conn: len(conn.execute(select(table)).all()))
    assert count == 1


def test_the_bill_outlives_the_job(metered):
    job = metered.start("gone", BASE)
    metered.over(job, BASE + 50)
    metered.write(lambda conn: removal.remove_rows(conn, [job], BASE + 60))
    [line] = metered.report("job", BASE, BASE + DAY)
    assert (line.key, line.job, line.user, line.project, line.gpu) == (
        job, "gone", "owner", "default", 50_000,
    )  # fmt: skip


def test_what_runs_is_seen_before_it_ends(metered):
    metered.price("gpu", 3600, BASE - 1)
    job = metered.start("a", BASE + HOUR // 2)
    metered.used(job, used_cpu=40)
    for now in (BASE + HOUR, BASE + 3 * HOUR + 1):
        [line] = metered.report("project", BASE, now)
        held = now - BASE - HOUR // 2
        assert (line.gpu, line.cost, line.used_cpu) == (1000 * held, 1000 * held, 40)
    metered.cut(job, BASE + 3 * HOUR)
    [line] = metered.report("project", BASE, BASE + 3 * HOUR + 1)
    assert (line.gpu, line.used_cpu) == (1000 * held, 40)
    metered.tell(job, BASE + 4 * HOUR, "preempt")
    lines = {each.line: each.gpu for each in metered.report("user", BASE, BASE + 5 * HOUR)}
    assert lines == {"charged": 3500 * HOUR, "grace": 1000 * HOUR}


def test_a_clock_that_went_back_takes_nothing_back(metered):
    job = metered.start("a", BASE + 1000)
    metered.over(job, BASE + 10)
    assert metered.entries() == []


def test_a_price_of_the_past_is_refused(metered):
    with pytest.raises(InvalidInput, match="is past"):
        metered.price("cpu", 1, BASE, effective="2020-01-01T00:00:00Z")
    metered.price("cpu", 1, BASE, effective="2030-01-01T00:00:00Z")
    job = metered.start("a", BASE, cpus=1)
    metered.over(job, BASE + HOUR)
    assert metered.entries()[0]["cost"] == 0, "its time has not come"


def test_beats_and_records_say_what_is_used(metered):
    job = metered.start("a", BASE)

    def tell(values):
        metered.write(lambda conn: conn.execute(update(workers).values(**values)) and None)

    tell({"beat_ms": BASE})
    beat = [{"cpu_ms": 500, "rss_bytes": 3 << 20}, {"cpu_ms": 100, "rss_bytes": 1 << 20}]
    tell({"beat_ms": BASE + 10_000, **used.by_beat(beat, BASE + 10_000)})
    bad = [{"cpu_ms": -5, "rss_bytes": "x"}, {"cpu_ms": True}, {}]
    tell({"beat_ms": BASE + 5, **used.by_beat(bad, BASE + 5)})
    row = metered.read(lambda conn: conn.execute(select(workers)).mappings().one())
    assert (row["used_cpu"], row["used_memory"], row["peak_bytes"]) == (600, 40_000, 4 << 20)
    record = {"node": "n1", "outcome": "succeeded", "ranks": [{"cpu_ms": 900, "peak_bytes": 9}]}
    metered.write(lambda conn: reports.orders.keep_record(conn, row["attempt_id"], "n1", record))
    metered.over(job, BASE + 20_000)
    assert (metered.entries()[0]["used_cpu"], metered.entries()[0]["peak_bytes"]) == (900, 4 << 20)


def test_many_ends_at_once_are_all_there(metered):
    """On PostgreSQL they commit in any order, while the sums are kept beside them."""
    jobs = [metered.start(f"j{n}", BASE + n) for n in range(12)]
    store = metered.tenancy.store

    async def race():
        from windlass.core.jobs import AttemptState
        from windlass.server.jobs import moves
        from windlass.server.usage import rollup

        def end(conn, job_id):
            job = moves.load(conn, job_id)
            attempt = moves.load_attempt(conn, job_id, 1)
            moves.move_attempt(
                conn, job, attempt, AttemptState.OVER, reason="", now_ms=BASE + 1000,
                outcome="succeeded",
            )  # fmt: skip

        ends = [store.write(lambda c, j=job: end(c, j)) for job in jobs]
        adds = [store.write(lambda c: rollup.add(c, 3)) for _ in range(12)]
        await asyncio.gather(*ends, *adds)

    asyncio.run(race())
    metered.roll()
    [line] = metered.report("project", BASE, BASE + DAY)
    assert line.gpu == 1000 * sum(1000 - n for n in range(12))
