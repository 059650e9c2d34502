"""Limits in both kinds of database: exactly so many come in, however many try at once (R-S17)."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from sqlalchemy import insert, update

from windlass.core.errors import Conflict, LimitExceeded, NotFound
from windlass.core.jobs import JobSpec
from windlass.core.limits import LimitsBody
from windlass.server.access.tables import users
from windlass.server.jobs import service as jobs_service
from windlass.server.jobs.tables import jobs
from windlass.server.limits import service


def put(tenancy, project, *limits, revision=None):
    body = LimitsBody.model_validate({"limits": list(limits), "revision": revision})
    tenancy.write(lambda c: service.put(c, project, body, tenancy.now_ms))


def shown(tenancy, only=None):
    return tenancy.read(lambda c: service.page(c, only)).model_dump(mode="json")["items"]


def as_user(tenancy, name):
    user_id = name.encode().hex().ljust(32, "0")[:32]
    tenancy.write(
        lambda c: c.execute(insert(users).values(id=user_id, name=name, created_ms=0)).rowcount
    )
    return dataclasses.replace(tenancy.who, user_id=user_id, user_name=name)


def end(tenancy, job_id):
    done = update(jobs).where(jobs.c.id == job_id).values(state="succeeded")
    tenancy.write(lambda c: c.execute(done).rowcount)


def test_a_hundred_submits_at_once_against_a_limit_of_ten_give_exactly_ten(tenancy):
    put(tenancy, "default", {"jobs": 10})
    spec = JobSpec.model_validate({"run": "true"})

    async def one(number):
        def write(conn):
            return jobs_service.submit(
                conn, tenancy.who, spec, "python", key=f"k{number}", digest="d", now_ms=1
            )

        return await tenancy.store.write(write)

    async def all_at_once():
        return await asyncio.gather(*(one(n) for n in range(100)), return_exceptions=True)

    results = asyncio.run(all_at_once())
    refused = [r for r in results if isinstance(r, LimitExceeded)]
    assert len(refused) == 90
    assert [r.new for r in results if not isinstance(r, Exception)] == [True] * 10
    [mine] = shown(tenancy)
    assert mine["limits"] == [{"user": None, "kind": None, "jobs": 10, "live": 10}]


def test_a_refusal_names_the_limit_and_uses_up_no_key(tenancy):
    put(tenancy, "default", {"jobs": 1})
    first = tenancy.submit("one")
    spec = JobSpec.model_validate({"run": "true", "name": "two"})

    def again(conn):
        return jobs_service.submit(
            conn, tenancy.who, spec, "python", key="k", digest="d", now_ms=1
        )

    with pytest.raises(LimitExceeded) as refused:
        tenancy.write(again)
    assert "default may have 1 live jobs" in str(refused.value)
    assert refused.value.details["limit"] == 1
    end(tenancy, first)
    assert tenancy.write(again).new
    assert not tenancy.write(again).new  # a replay is answered, limit or no limit


def test_each_user_and_each_kind_counts_by_itself(tenancy):
    put(tenancy, "default", {"user": "*", "jobs": 1}, {"kind": "notebook", "jobs": 2})
    owner, ann = tenancy.who, as_user(tenancy, "ann")
    tenancy.submit("one")
    with pytest.raises(LimitExceeded, match="jobs of owner"):
        tenancy.submit("two")
    tenancy.who = ann
    tenancy.submit("three", work="notebook")
    tenancy.who = as_user(tenancy, "bob")
    tenancy.submit("four", work="notebook")
    tenancy.who = as_user(tenancy, "eve")
    with pytest.raises(LimitExceeded, match="2 live notebook jobs"):
        tenancy.submit("five", work="notebook")
    tenancy.submit("six")
    tenancy.who = owner


def test_what_holds_for_every_project_yields_to_a_projects_own(tenancy):
    put(tenancy, "*", {"jobs": 0}, {"user": "*", "jobs": 1})
    with pytest.raises(LimitExceeded, match="0 live jobs"):
        tenancy.submit("one")
    put(tenancy, "default", {"jobs": 5})
    tenancy.submit("two")
    with pytest.raises(LimitExceeded, match="1 live jobs of owner"):
        tenancy.submit("three")
    assert [item["project"] for item in shown(tenancy, "default")] == ["*", "default"]


def test_a_change_holds_at_once_and_ends_nothing(tenancy):
    ids = [tenancy.submit(f"job-{n}") for n in range(3)]
    put(tenancy, "default", {"jobs": 2})
    with pytest.raises(LimitExceeded):
        tenancy.submit("four")
    end(tenancy, ids[0])
    with pytest.raises(LimitExceeded):
        tenancy.submit("five")
    put(tenancy, "default", {"jobs": 3})
    tenancy.submit("six")
    tenancy.write(lambda c: service.remove(c, "default"))
    tenancy.submit("seven")
    with pytest.raises(NotFound):
        tenancy.write(lambda c: service.remove(c, "default"))


def test_who_saw_an_older_state_is_refused(tenancy):
    put(tenancy, "default", {"jobs": 2}, revision=0)
    put(tenancy, "default", {"jobs": 2}, revision=0)  # it is so already
    with pytest.raises(Conflict):
        put(tenancy, "default", {"jobs": 3}, revision=0)
    put(tenancy, "default", {"jobs": 3}, revision=1)
