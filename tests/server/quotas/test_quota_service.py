"""Quotas in both kinds of database: one by one, as a whole file, by several at once."""

from __future__ import annotations

import asyncio
import time

import pytest
from sqlalchemy import insert, select, update

from windlass.client.quotas import Quota, file_of
from windlass.core.errors import Conflict, InvalidInput, NotFound
from windlass.core.quotas import QuotaBody, QuotaFile, QuotaFileBody
from windlass.server.jobs.tables import attempts, jobs
from windlass.server.quotas import service
from windlass.server.quotas.tables import quotas


def put(tenancy, name, **fields):
    body = QuotaBody.model_validate(fields)
    tenancy.write(lambda c: service.put(c, name, body, by="owner", now_ms=tenancy.now_ms))


def replace(tenancy, file, revision=None):
    body = QuotaFileBody.model_validate({**file, "revision": revision})
    tenancy.write(lambda c: service.replace(c, body, by="owner", now_ms=tenancy.now_ms))


def remove(tenancy, name):
    tenancy.write(lambda c: service.remove(c, name, by="owner", now_ms=tenancy.now_ms))


def shown(tenancy):
    return tenancy.read(service.page).model_dump(mode="json")


FILE = {
    "cohorts": {
        "research": {
            "nominal": {"gpus": 2},
            "tenants": {
                "default": {
                    "nominal": {"gpus": 8, "memory": "64GiB"}, "borrow": {"gpus": 8},
                    "lend": {"gpus": 4}, "weight": 2,
                    "caps": [{"kind": "notebook", "limits": {"gpus": 1}}],
                },
                "speech": {"nominal": {"gpus": 0.25, "gpus:H200": 4}, "reclaim_any": True},
            },
        },
        "inner": {"parent": "research"},
    },
    "tenants": {"alone": {"nominal": {"cpus": 16.5}}},
}  # fmt: skip


def test_a_file_that_is_applied_is_exported_as_it_was(tenancy):
    replace(tenancy, FILE)
    page = shown(tenancy)
    exported = file_of([Quota.read(item) for item in page["items"]])
    assert exported == FILE
    assert QuotaFile.model_validate(exported) == QuotaFile.model_validate(FILE)
    [event] = tenancy.told("rules")
    assert event["reason"] == "5 quotas changed by owner"
    assert event["data"]["of"] == "quotas" and event["data"]["count"] == 5


def test_amounts_are_stored_as_integers(tenancy):
    put(tenancy, "vision", nominal={"gpus": 0.25, "cpus": 1.5, "memory": "1.5GiB"}, weight=0.5)
    row = tenancy.read(lambda c: c.execute(select(quotas)).mappings().one())
    assert row["nominal"] == {"gpus": 250, "cpus": 1500, "memory": 3 * 2**29}
    assert row["weight_milli"] == 500
    [item] = shown(tenancy)["items"]
    assert item["nominal"] == {"gpus": 0.25, "cpus": 1.5, "memory": "1536MiB"}
    assert (item["weight"], item["exists"]) == (0.5, False)


def test_a_file_replaces_all_and_changes_only_what_differs(tenancy):
    replace(tenancy, FILE)
    before = {item["name"]: item["revision"] for item in shown(tenancy)["items"]}
    other = {**FILE, "tenants": {"alone": {"nominal": {"cpus": 17}}}}
    other["cohorts"] = {"research": FILE["cohorts"]["research"]}
    replace(tenancy, other)
    after = {item["name"]: item["revision"] for item in shown(tenancy)["items"]}
    assert set(before) - set(after) == {"inner"}
    assert [name for name in after if after[name] != before[name]] == ["alone"]
    assert tenancy.told("rules")[-1]["data"]["names"] == ["alone", "inner"]


def test_applying_the_same_again_is_no_event(tenancy):
    replace(tenancy, FILE)
    replace(tenancy, FILE, revision=99)
    put(tenancy, "alone", nominal={"cpus": 16.5}, revision=99)
    assert len(tenancy.told("rules")) == 1


def test_who_did_not_see_the_last_change_is_refused(tenancy):
    put(tenancy, "a", nominal={"gpus": 1}, revision=0)
    put(tenancy, "b", nominal={"gpus": 1}, revision=1)
    with pytest.raises(Conflict, match="at revision 2, you saw 1"):
        put(tenancy, "a", nominal={"gpus": 2}, revision=1)
    with pytest.raises(Conflict, match="you saw 1"):
        replace(tenancy, {}, revision=1)
    remove(tenancy, "b")
    with pytest.raises(Conflict, match="at revision 3, you saw 2"):
        replace(tenancy, {}, revision=2)
    replace(tenancy, {}, revision=3)
    assert shown(tenancy) == {"revision": 4, "items": []}


def test_of_many_writers_at_once_exactly_one_wins(tenancy):
    async def race():
        bodies = [
            QuotaBody.model_validate({"nominal": {"gpus": n}, "revision": 0}) for n in range(8)
        ]
        return await asyncio.gather(
            *(
                tenancy.store.write(lambda c, b=body: service.put(c, "a", b, by="owner", now_ms=1))
                for body in bodies
            ),
            return_exceptions=True,
        )

    results = asyncio.run(race())
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 7


def test_a_cohort_does_not_go_while_a_child_comes(tenancy):
    """Both at once: never a child without its cohort."""
    put(tenancy, "team", cohort=True)
    child = QuotaBody.model_validate({"parent": "team"})

    async def race():
        return await asyncio.gather(
            tenancy.store.write(lambda c: service.remove(c, "team", by="o", now_ms=1)),
            tenancy.store.write(lambda c: service.put(c, "kid", child, by="o", now_ms=1)),
            return_exceptions=True,
        )

    results = asyncio.run(race())
    names = {item["name"] for item in shown(tenancy)["items"]}
    assert names in ({"team", "kid"}, set())
    assert sum(isinstance(result, Conflict | InvalidInput) for result in results) == 1


def test_a_cohort_with_members_is_not_removed(tenancy):
    replace(tenancy, FILE)
    with pytest.raises(Conflict, match="cohort research has members: default, inner, speech"):
        remove(tenancy, "research")
    with pytest.raises(NotFound, match="no quota 'nobody'"):
        remove(tenancy, "nobody")
    for name in ("inner", "speech", "default", "research"):
        remove(tenancy, name)


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        ("a", {"parent": "nowhere"}, "a belongs to nowhere, which is no cohort; known: low, top"),
        ("a", {"parent": "b"}, "a belongs to b, which is no cohort"),
        ("top", {"cohort": True, "parent": "top"}, "in a circle: top → top"),
        (
            "top",
            {"cohort": True, "parent": "low"},
            "in a circle: (top → low → top|low → top → low)",
        ),
        ("top", {}, "low belongs to top, which is no cohort"),
        ("low", {"cohort": True, "caps": [{"user": "a", "limits": {"gpus": 1}}]}, "is a cohort"),
    ],
)
def test_a_tree_that_is_none_is_refused(tenancy, name, fields, why):
    put(tenancy, "top", cohort=True)
    put(tenancy, "low", cohort=True, parent="top")
    put(tenancy, "b", nominal={"gpus": 1})
    with pytest.raises(InvalidInput, match=why):
        put(tenancy, name, **fields)
    assert tenancy.read(service.page).revision == 3, "a refused change leaves nothing"


def test_what_is_in_use_is_told_of_projects_and_cohorts(tenancy):
    replace(tenancy, FILE)
    job = tenancy.submit(
        "a", roles={"worker": {"count": 3, "gpus": 2, "cpus": 0.5, "memory": "1GiB"}}
    )

    def start(conn):
        seats = [{"role": "worker", "index": at, "node": "n", "gpu_ids": []} for at in range(2)]
        conn.execute(
            insert(attempts).values(
                id="a" * 32, job_id=job, number=1, state="alive", engine="local", placement=seats,
                worker_hash="w", run_hash="r", tokens=b"", kek="", created_ms=0,
            )
        )  # fmt: skip
        conn.execute(update(jobs).values(state="running", fence=1))

    tenancy.write(start)
    used = {item["name"]: item["used"] for item in shown(tenancy)["items"]}
    held = {"gpus": 4, "cpus": 1, "memory": "2GiB"}
    assert used == {"research": held, "inner": {}, "default": held, "speech": {}, "alone": {}}


def test_lowering_a_quota_ends_nothing(tenancy):
    replace(tenancy, FILE)
    tenancy.submit("a")
    tenancy.write(lambda c: c.execute(update(jobs).values(state="running")) and None)
    put(tenancy, "default", nominal={"gpus": 0})
    row = tenancy.read(lambda c: c.execute(select(jobs)).mappings().one())
    assert (row["state"], row["wish"]) == ("running", None)


def test_ten_thousand_quotas_are_applied_at_once(tenancy):
    file = {
        "cohorts": {
            f"c{i}": {
                "tenants": {
                    f"t{i}-{j}": {"nominal": {"gpus": 8}, "borrow": {"gpus": 8}}
                    for j in range(100)
                }
            }
            for i in range(100)
        }
    }
    began = time.monotonic()
    replace(tenancy, file)
    put(tenancy, "t3-3", parent="c3", nominal={"gpus": 9})
    page = shown(tenancy)
    assert len(page["items"]) == 10_100
    assert file_of([Quota.read(item) for item in page["items"]])["cohorts"]["c3"]["tenants"][
        "t3-3"
    ] == {"nominal": {"gpus": 9}}
    assert time.monotonic() - began < 30, "generous: the machine may be busy"
