"""A row that cannot be read is set aside as failed, with the reason, alone: what others have goes
on. Rows are garbled as a bug, or a server of another version, would have left them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from sqlalchemy import Connection, select, text, update

from windlass.core.jobs import JobSpec
from windlass.core.resources import Node, Resources
from windlass.server.clock import SystemClock
from windlass.server.jobs import moves, readable, service, views
from windlass.server.jobs.admit import Admit
from windlass.server.jobs.decide import Over, Situation, Tell, decide
from windlass.server.jobs.table import Asked, page
from windlass.server.jobs.tables import jobs
from windlass.server.nodes import service as node_service
from windlass.server.queues import view as line
from windlass.server.quotas import service as quotas
from windlass.server.troubles import Troubles

NODES = [
    Node(
        name=name, engine="local", capacity=Resources(gpus=1, slots=4), gpu_ids=("0",),
        boot_id="b",
    )
    for name in ("n1", "n2")
]  # fmt: skip
_numbers = itertools.count(1)
GARBLED = [
    '{"run": ["true"], "roles"',  # cut short
    '{"kind": "job", "run": ["true"], "ttl": "15250284452w"}',  # of a version with other bounds
    '{"run": ["true"], "limits": {"time": "999999999999500ms"}}',
    '{"run": ["true"], "colour": "red"}',  # of a newer version
    "[]",
    "7",
]


class Ground:
    def __init__(self, tenancy: Any) -> None:
        self.tenancy = tenancy
        self.clock = SystemClock()
        self.troubles = Troubles(self.clock)
        self.admit = Admit(
            tenancy.store, self.clock, guard=lambda conn: None, new_attempt=_new_attempt,
            started=lambda job_id: None, ttl_ms=1000, troubles=self.troubles,
        )  # fmt: skip
        tenancy.write(lambda conn: node_service.record(conn, "local", NODES, 1))

    def turn(self) -> None:
        asyncio.run(self.admit.turn())

    def again(self) -> None:
        """As after a restart."""
        self.admit.forget()
        self.turn()

    def garble(self, job_id: str, spec: str) -> None:
        self.sql("UPDATE jobs SET spec = :spec WHERE id = :id", spec=spec, id=job_id)

    def sql(self, words: str, **values: Any) -> None:
        self.tenancy.write(lambda conn: conn.execute(text(words), values) and None)

    def job(self, job_id: str) -> dict[str, Any]:
        return self.tenancy.read(
            lambda conn: dict(
                conn.execute(select(jobs).where(jobs.c.id == job_id)).mappings().one()
            )
        )


@pytest.fixture
def ground(tenancy: Any) -> Ground:
    return Ground(tenancy)


def _new_attempt() -> dict[str, Any]:
    name = f"{next(_numbers):032x}"
    return {
        "id": name, "worker_hash": "w" + name, "run_hash": "r" + name, "tokens": b"", "kek": "",
    }  # fmt: skip


@pytest.mark.parametrize("spec", GARBLED, ids=lambda text: text[:30])
@pytest.mark.parametrize("fields", [{}, {"hold": True}, {"begin": "2100-01-01T00:00:00Z"}])
def test_a_waiting_job_that_cannot_be_read_fails_alone(ground: Ground, spec, fields) -> None:
    bad = ground.tenancy.submit("bad", **fields)
    ground.garble(bad, spec)
    good = ground.tenancy.submit("good")
    ground.turn()
    assert ground.job(good)["state"] == "starting"
    row = ground.job(bad)
    assert row["state"] == "failed" and "cannot be read" in row["reason"]
    assert row["ended_ms"] and row["expires_ms"]
    ground.again()
    assert ground.job(ground.tenancy.submit("later"))["state"] == "queued"
    ground.turn()
    assert ground.troubles.all() == []


def test_one_that_was_stopped_is_stopped(ground: Ground) -> None:
    bad = ground.tenancy.submit("bad")
    ground.garble(bad, "x")
    ground.tenancy.write(
        lambda conn: service.wish(
            conn, ground.tenancy.who, bad, "cancel", reason="by me", now_ms=1
        )
    )
    ground.turn()
    assert ground.job(bad)["state"] == "cancelled"


def test_a_live_job_that_cannot_be_read_keeps_its_seats_until_it_is_ended(ground: Ground) -> None:
    bad = ground.tenancy.submit("bad", roles={"worker": {"gpus": 1}})
    ground.turn()
    ground.garble(bad, "x")
    others = [ground.tenancy.submit(f"j{n}", roles={"worker": {"gpus": 1}}) for n in range(2)]
    ground.again()
    assert ground.job(bad)["state"] == "starting"  # reconcile's to end
    assert sorted(ground.job(each)["state"] for each in others) == ["queued", "starting"]


def test_an_ended_job_that_cannot_be_read_teaches_nothing(ground: Ground) -> None:
    ended = ground.tenancy.submit("ended")
    values = {"state": "succeeded", "started_ms": 1, "ended_ms": 2}
    ground.tenancy.write(
        lambda conn: conn.execute(update(jobs).where(jobs.c.id == ended).values(**values)) and None
    )
    ground.garble(ended, "x")
    good = ground.tenancy.submit("good")
    ground.turn()
    assert ground.job(good)["state"] == "starting" and ground.job(ended)["state"] == "succeeded"


def test_a_node_whose_offer_is_garbled_gets_nothing_and_heals(ground: Ground) -> None:
    ground.sql("UPDATE nodes SET offer = '{\"name\"' WHERE name = 'n1'")
    wants = {"roles": {"worker": {"gpus": 1}}}
    first, second = (ground.tenancy.submit(name, **wants) for name in ("a", "b"))
    ground.turn()
    assert ground.job(first)["state"] == "starting" and ground.job(second)["state"] == "queued"
    [trouble] = ground.troubles.all()
    assert trouble.object == "node n1" and "its offer cannot be read" in trouble.error
    assert [node.name for node in ground.tenancy.read(node_service.ready)] == ["n2"]
    ground.tenancy.write(lambda conn: node_service.record(conn, "local", NODES, 2))
    ground.again()
    assert ground.job(second)["state"] == "starting" and ground.troubles.all() == []


def test_a_start_that_cannot_be_written_is_put_off_and_the_others_start(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = ground.tenancy.submit("bad"), ground.tenancy.submit("good")
    real = moves.start_attempt

    def start(conn: Connection, job: dict[str, Any], *args: Any, **more: Any) -> Any:
        if job["id"] == bad:
            raise ZeroDivisionError("a bug")
        return real(conn, job, *args, **more)

    monkeypatch.setattr(moves, "start_attempt", start)
    ground.turn()
    assert ground.job(good)["state"] == "starting" and ground.job(bad)["state"] == "queued"
    [trouble] = ground.troubles.all()
    assert (trouble.loop, trouble.object) == ("admit", bad)
    assert trouble.error == "ZeroDivisionError: a bug"
    ground.turn()  # not at once again
    assert ground.troubles.all() == [trouble]
    monkeypatch.undo()
    ground.again()
    assert ground.job(bad)["state"] == "starting" and ground.troubles.all() == []


def test_a_quota_that_cannot_be_read_keeps_only_its_own_waiting(ground: Ground) -> None:
    put = "INSERT INTO quotas (name, cohort, nominal, borrow, lend, weight_milli, reclaim_any,"
    put += " caps, revision, changed_ms) VALUES (:name, :no, :nominal, '{}', '{}', 1000, :no,"
    put += " '[]', 1, 1)"
    ground.sql(put, name="default", nominal="{gpus", no=False)
    ground.sql(put, name="other", nominal='{"gpus": 8000}', no=False)
    waits = ground.tenancy.submit("waits", roles={"worker": {"gpus": 1}})
    ground.turn()
    assert ground.job(waits)["state"] == "queued"
    [trouble] = ground.troubles.all()
    assert trouble.object == "quota of default" and "its nominal cannot be read" in trouble.error
    shown = ground.tenancy.read(quotas.page).model_dump_json()
    assert '"name":"other"' in shown and '"name":"default"' in shown


def test_lists_and_show_tell_what_can_be_told(ground: Ground) -> None:
    bad, good = ground.tenancy.submit("bad"), ground.tenancy.submit("good")
    ground.garble(bad, GARBLED[3])
    who, store = ground.tenancy.who, ground.tenancy.store
    found = asyncio.run(page(store, store, who, Asked(), 1))
    shown = {row["id"]: views.job_view(row).model_dump(mode="json") for row in found.rows}
    assert shown[bad]["command"] == shown[good]["command"] == "true"
    ground.garble(bad, GARBLED[0])
    row = ground.tenancy.read(lambda conn: service.find(conn, who, bad))
    detail = views.job_detail(row, [])
    assert detail.spec.run == () and "spec cannot be read" in detail.unreadable
    assert detail.model_dump(mode="json")["command"] == ""

    class Line:
        def __getattr__(self, name: str) -> Any:
            return lambda job_id: None

    place = line.shown({**row}, 1, who, Line(), 1)
    assert place.reason == "unreadable" and place.wants.members == 1


SPEC = JobSpec.model_validate({"run": "true"})
ATTEMPT = {
    "state": "alive", "ending_outcome": None, "reason": "", "launched_ms": 1, "grace_ms": None,
    "ending_ms": None, "deadline_ms": None, "created_ms": 1,
    "placement": [{"role": "worker", "index": 0, "node": "n1", "gpu_ids": []}],
}  # fmt: skip
WORKER = {
    "node": "n1", "record": None, "ranks": None, "ended_ranks": None, "registered_ms": 1,
    "started_ms": 1, "beat_ms": 1, "hung_ms": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "attempt", "record", "word"),
    [
        ({"run": ["true"], "colour": "red"}, {}, None, "spec"),
        (SPEC.model_dump(mode="json"), {"placement": {"a": 1}}, None, "placement"),
        (SPEC.model_dump(mode="json"), {"placement": [{"role": "ps"}]}, None, "placement"),
        (SPEC.model_dump(mode="json"), {}, {"outcome": "splendid"}, "exit record"),
        (SPEC.model_dump(mode="json"), {}, [], "exit record"),
    ],
)
def test_a_live_job_whose_rows_cannot_be_read_is_ended_with_its_grace_and_fails(
    spec, attempt, record, word
) -> None:
    job = {"state": "running", "spec": spec, "wish": None, "wish_now": 0, "framework": "python"}
    workers = [{**WORKER, "record": record}, {**WORKER, "node": "n2"}]
    spec_read, why = readable.look_over(job, {**ATTEMPT, **attempt}, workers)
    assert word in why and "cannot be read" in why
    at = Situation(job, {**ATTEMPT, **attempt}, workers, {}, spec_read, {}, 0, unreadable=why)
    [told] = decide(at, 10)
    assert isinstance(told, Tell) and told.stopping and told.grace_ms == 30_000
    assert told.reason == why and "n2" in told.nodes
    for worker in workers:
        worker["record"] = {"node": worker["node"], "outcome": "succeeded", "ranks": []}
    [over] = decide(at, 20)
    assert isinstance(over, Over)
    assert (over.verdict.outcome, over.verdict.reason) == ("failed", why)


def test_a_job_that_can_be_read_is_as_it_was() -> None:
    job = {"spec": SPEC.model_dump(mode="json")}
    assert readable.look_over(job, ATTEMPT, [dict(WORKER)]) == (SPEC, "")
