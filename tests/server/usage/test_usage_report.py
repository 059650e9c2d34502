"""Reports over days, edges and what runs: the same as adding up every entry by hand."""

from __future__ import annotations

import csv
import io
import random
import time
from collections import defaultdict

import pytest
from sqlalchemy import insert, text
from usage_scene import BASE, DAY, HOUR

from windlass.core.usage import LINE_OF
from windlass.server.usage import ledger as ledgers
from windlass.server.usage import rollup
from windlass.server.usage.report import SUMS, Asked, Sum, _days, _entries, job_page
from windlass.server.usage.tables import holdings, ledger
from windlass.server.usage.views import entry_csv, report_csv


def fill(metered, count, days, seed=1):
    """Entries of many projects and users, as attempts would leave them."""
    draw = random.Random(seed)
    held, rows = [], []
    for number in range(count):
        person = draw.randrange(20)
        project, user = f"p{person % 8}", f"u{person}"
        begin = BASE + draw.randrange(days * DAY)
        end = min(begin + draw.randrange(1, HOUR), begin - begin % HOUR + HOUR)
        rate = {
            "cpus_milli": draw.choice((0, 500, 4000)), "memory_mib": draw.randrange(4096),
            "gpu_milli": draw.choice((0, 250, 1000, 8000)),
        }  # fmt: skip
        identity = f"{number:032x}"
        held.append(
            {
                "attempt_id": identity, "part": 0, "number": 1, "job_id": f"{number // 3:032x}",
                "job_name": f"j{number // 3}", "project_id": project.ljust(32, "0"),
                "project_name": project, "user_id": user.ljust(32, "0"), "user_name": user,
                "pool": draw.choice(("local", "cloud")), "nodes": [], "members": 1,
                "gpu_model": draw.choice(("", "H200", "A100")), "from_ms": begin, **rate,
            }
        )  # fmt: skip
        kind = draw.choice(("run", "run", "run", "refund", "grace", "lost"))
        sign = -1 if kind == "refund" else 1
        rows.append(
            {
                "attempt_id": identity, "part": 0, "kind": kind, "from_ms": begin, "to_ms": end,
                "project_id": held[-1]["project_id"], "used_cpu": draw.randrange(10**6),
                "used_memory": draw.randrange(10**6), "peak_bytes": draw.randrange(10**9),
                "cost": sign * draw.randrange(10**6),
                **ledgers.amounts(rate, sign * (end - begin)),
            }
        )  # fmt: skip
    for held_rows, ledger_rows in zip(_pages(held), _pages(rows), strict=True):

        def write(conn, some=held_rows, others=ledger_rows):
            conn.execute(insert(holdings), some)
            conn.execute(insert(ledger), others)

        metered.write(write)
    return [{**one, **row} for one, row in zip(held, rows, strict=True)]


def _pages(rows):
    return [rows[at : at + 20_000] for at in range(0, len(rows), 20_000)]


def by_hand(rows, by, since, until):
    column = {
        "project": "project_name", "user": "user_name", "job": "job_id", "gpu": "gpu_model",
        "pool": "pool",
    }  # fmt: skip
    found = defaultdict(lambda: dict.fromkeys(SUMS, 0))
    for row in rows:
        length, inside = (
            row["to_ms"] - row["from_ms"],
            min(row["to_ms"], until) - max(row["from_ms"], since),
        )
        if inside <= 0:
            continue
        key = str(row["from_ms"] // DAY) if by == "day" else row[column[by]]
        for name in SUMS:
            cut = abs(row[name]) * inside // length
            found[key, LINE_OF[row["kind"]]][name] += cut if row[name] >= 0 else -cut
    return dict(found)


@pytest.mark.parametrize("by", ["project", "user", "job", "gpu", "pool", "day"])
def test_a_report_of_any_range_is_the_sum_of_its_entries(metered, by):
    rows = fill(metered, 600, days=5)
    draw = random.Random(by)
    for turn in range(12):
        if turn == 4:
            metered.write(lambda conn: rollup.add(conn, 250))
        if turn == 8:
            metered.roll()
        since, until = sorted(draw.randrange(-HOUR, 6 * DAY) for _ in range(2))
        if turn % 3 == 0:
            since -= since % DAY
        if since == until:
            continue
        now = BASE + draw.choice((until, 6 * DAY))
        known = [row for row in rows if row["from_ms"] < now]
        if known != rows:
            now = BASE + 6 * DAY
        found = metered.report(by, BASE + since, BASE + until, now)
        told = {(each.key, each.line): {n: getattr(each, n) for n in SUMS} for each in found}
        assert told == by_hand(rows, by, BASE + since, BASE + until), (since, until, turn)


def test_only_what_was_asked_for_is_in_a_report(metered):
    rows = fill(metered, 300, days=3)
    metered.roll()
    some = [row for row in rows if row["project_name"] == "p1" and row["user_name"] == "u9"]
    found = metered.report(
        "project", BASE, BASE + 3 * DAY, project_ids=("p1".ljust(32, "0"),), user="u9"
    )
    assert {each.line: each.gpu for each in found} == {
        line: sums["gpu"] for (_, line), sums in by_hand(some, "project", 0, 2**62).items()
    }
    job = rows[7]["job_id"]
    found = metered.report("project", BASE, BASE + 3 * DAY, job_id=job)
    mine = [row for row in rows if row["job_id"] == job]
    assert sum(each.cost for each in found) == sum(row["cost"] for row in mine)


def test_a_report_by_job_in_pages_is_the_same_report(metered):
    fill(metered, 250, days=2)
    live = metered.start("runs", BASE + DAY)
    since, until = BASE + HOUR + 7, BASE + 2 * DAY - 7
    asked, last, found = Asked("job", since, until), "", []
    while True:
        page = metered.read(lambda conn, at=last: job_page(conn, asked, at, 13, until))
        found += page.sums
        last = page.last
        if not last:
            break
    assert sorted(map(str, found)) == sorted(map(str, metered.report("job", since, until)))
    assert live in {each.key for each in found}
    assert [each.key for each in found] == sorted(each.key for each in found)


def test_names_that_would_be_formulas_are_text_in_csv():
    for name in ("=1+1", "+x", "-x", "@x", "\tx", "\rx"):
        asked, line = Asked("user", 0, 1), Sum(name, "charged", cost=-5, cpu=-1_000_000)
        made = b"".join(report_csv(asked, [line], "EUR", head=False)).decode()
        [row] = list(csv.reader(io.StringIO(made, newline="")))
        assert row[0] == "'" + name
        assert row[2] == "-1.0" and row[-2] == "-0.000005", "a number stays one"
        entry = {
            "id": 1, "from_ms": 0, "to_ms": 1, "kind": "run", "project_name": name,
            "user_name": name, "job_name": name, "job_id": "0", "number": 1, "pool": name,
            "gpu_model": name, **line.amounts(),
        }  # fmt: skip
        [row] = list(csv.reader(io.StringIO(entry_csv(entry, "EUR").decode(), newline="")))
        assert row.count("'" + name) == 5
    quoted = Sum('a,"b"\nc', "charged")
    made = b"".join(report_csv(Asked("user", 0, 1), [quoted], "EUR", head=False))
    assert made.startswith(b'"a,""b""\nc",charged,') and made.endswith(b",EUR\r\n")


def test_sums_by_day_are_added_to_not_made_anew(metered):
    fill(metered, 500, days=2)
    metered.roll(batch=7)
    before = _sums(metered)
    assert before[0] == 500
    metered.roll()
    assert _sums(metered) == before
    by_entry = metered.read(
        lambda conn: conn.execute(
            text("SELECT count(*), sum(cpu), sum(memory), sum(gpu), sum(cost) FROM ledger")
        ).one()
    )
    assert tuple(map(int, by_entry)) == before


def _sums(metered):
    query = text("SELECT sum(entries), sum(cpu), sum(memory), sum(gpu), sum(cost) FROM usage_days")
    return tuple(map(int, metered.read(lambda conn: conn.execute(query).one())))


@pytest.mark.parametrize(
    "size",
    [pytest.param(500, marks=pytest.mark.slow), pytest.param(5_000, marks=pytest.mark.soak)],
)
def test_a_month_by_project_does_not_read_every_entry(metered, dialect, size):
    """50,000 of them, and in the long run half a million."""
    fill(metered, size, days=30)
    metered.write(_hundredfold)
    metered.roll(batch=50_000)
    metered.write(lambda conn: conn.execute(text("ANALYZE")) and None)
    began = time.monotonic()
    found = metered.report("project", BASE, BASE + 30 * DAY)
    took = time.monotonic() - began
    query = text(
        "SELECT h.project_name, l.kind, sum(l.cost), count(*) FROM ledger l JOIN holdings h"
        " ON h.attempt_id = l.attempt_id AND h.part = l.part GROUP BY h.project_name, l.kind"
    )
    began = time.monotonic()
    every = metered.read(lambda conn: conn.execute(query).all())
    whole = time.monotonic() - began
    assert sum(row[3] for row in every) == 100 * size
    wanted = defaultdict(int)
    for project, kind, cost, _ in every:
        wanted[project, LINE_OF[kind]] += int(cost)
    assert {(each.key, each.line): each.cost for each in found} == wanted
    print(f"{dialect}: by its days {took * 1000:.0f} ms, by its entries {whole * 1000:.0f} ms")
    asked = Asked("project", BASE + 5, BASE + 30 * DAY)
    plan = _plan(metered, _entries(asked, BASE + 5, BASE + DAY), dialect)
    assert "ix_ledger_from" in plan, plan
    tail = _plan(metered, _entries(asked, BASE, BASE + 30 * DAY, after=100 * size), dialect)
    assert "ix_ledger" not in tail and "Seq Scan on ledger" not in tail, tail
    assert "ledger" not in _plan(metered, _days(asked, 20_001, 20_030), dialect)


def _hundredfold(conn):
    """Each entry 99 times more, some hours later in the same month."""
    names = [column.name for column in holdings.c if column.name != "attempt_id"]
    others = [name for name in ledgers.ENTRY if name not in ("attempt_id", "from_ms", "to_ms")]
    for turn in range(1, 100):
        identity = f"'{turn:02}' || substr(attempt_id, 3)"
        later = turn * 7 * HOUR
        shift = f"CASE WHEN from_ms + {later} < {BASE + 30 * DAY} THEN {later} ELSE 0 END"
        conn.exec_driver_sql(
            f"INSERT INTO holdings (attempt_id, {', '.join(names)}) SELECT {identity},"
            f" {', '.join(names)} FROM holdings WHERE attempt_id LIKE '00%%'"
        )
        conn.exec_driver_sql(
            f"INSERT INTO ledger (attempt_id, from_ms, to_ms, {', '.join(others)}) SELECT"
            f" {identity}, from_ms + {shift}, to_ms + {shift}, {', '.join(others)}"
            " FROM ledger WHERE attempt_id LIKE '00%%'"
        )


def _plan(metered, query, dialect):
    def explain(conn):
        made = query.compile(dialect=conn.dialect, compile_kwargs={"literal_binds": True})
        word = "EXPLAIN" if dialect == "postgresql" else "EXPLAIN QUERY PLAN"
        return str(conn.exec_driver_sql(f"{word} {made}").all())

    return metered.read(explain)
