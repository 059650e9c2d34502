"""Somebody leaves: nothing proves them any more, and what they did stays theirs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from organisation import NOW, Org
from sqlalchemy import insert, select

from windlass.core.access import OrgRole
from windlass.core.errors import Conflict, Forbidden, NotFound
from windlass.core.usage import BudgetBody
from windlass.core.users import UserBody
from windlass.server.access import keys, tokens
from windlass.server.access.principals import principal_of
from windlass.server.access.tables import keys as key_rows
from windlass.server.access.tables import memberships, users
from windlass.server.jobs import service as jobs
from windlass.server.jobs.sharing import several_users
from windlass.server.jobs.tables import jobs as job_rows
from windlass.server.limits import service as limits
from windlass.server.projects import service as projects
from windlass.server.secrets import service as secrets
from windlass.server.secrets.tables import secrets as secret_rows
from windlass.server.sessions import identities, links
from windlass.server.sessions.service import Ages, begin, person
from windlass.server.sessions.tables import identities as identity_rows
from windlass.server.sessions.tables import login_links, sessions
from windlass.server.settings import Oidc
from windlass.server.usage import budgets
from windlass.server.users import removal, service

ISSUER = Oidc(
    issuer="https://id.example", client_id="windlass", client_secret="", claim="email",
    domains=("example.org",), create=True,
)  # fmt: skip
CLAIMS = {"sub": "42", "email": "ann@example.org", "email_verified": True}


def test_nothing_that_proved_it_is_left(org: Org) -> None:
    ann = org.user("ann", project="default")

    def give(conn: Any) -> str:
        keys.make(
            conn, org.access.sealer, user_id=ann.user_id or "", user="ann",
            project_id=ann.project_id, project="default", now_ms=NOW,
        )  # fmt: skip
        begin(
            conn, person(conn, name="ann"), how="password", address="", browser="", ages=Ages(),
            now_ms=NOW,
        )  # fmt: skip
        links.make(conn, links.PASSWORD, ann.user_id or "", seconds=60, now_ms=NOW)
        _, token = tokens.make(
            conn, ann, ann.user_id or "", name="t", scopes=["read"], lives_ms=10**6, now_ms=NOW
        )
        return str(token)

    token = org.write(give)
    assert org.read(lambda conn: tokens.holder(conn, tokens.hash_of(token), None, NOW))
    assert org.remove("ann") == 0
    assert [row.disabled for row in org.rows(key_rows, ann.user_id)] == [True]
    for table in (sessions, login_links, memberships):
        assert org.rows(table, ann.user_id) == []
    assert org.read(lambda conn: tokens.holder(conn, tokens.hash_of(token), None, NOW)) is None
    assert org.read(lambda conn: principal_of(conn, ann.user_id or "", None)) is None
    assert org.read(lambda conn: person(conn, name="ann")) is None
    for call in (service.find, service.one):
        with pytest.raises(NotFound, match="no user ann"):
            org.read(lambda conn, call=call: call(conn, "ann"))
    with pytest.raises(NotFound, match="no user ann"):
        org.remove("ann")
    with pytest.raises(NotFound, match="no user ann"):
        org.write(lambda conn: service.set_disabled(conn, org.owner, "ann", False))
    assert [each.name for each in org.read(service.every)] == ["owner"]


def test_its_jobs_stay_its_own_and_its_name_is_free_when_they_have_ended(org: Org) -> None:
    ann = org.user("ann", project="default")
    job = org.submit(ann)
    assert org.remove("ann") == 1, "one job had not ended"
    with pytest.raises(Conflict, match="ann was removed, and 1 of its jobs have not ended"):
        org.user("ann", project="default")
    org.finish(job)
    new = org.user("ann", project="default")
    assert new.user_id != ann.user_id
    assert org.read(lambda conn: jobs.find(conn, org.owner, job))["user"] == "ann"
    with pytest.raises(Forbidden, match="a member changes its own jobs only"):
        org.read(lambda conn: jobs.find_to_change(conn, new, job))


def test_its_jobs_are_told_to_end_before_it_is_gone(org: Org) -> None:
    ann = org.user("ann", project="default")
    waiting = [org.submit(ann, f"job-{number}") for number in range(3)]
    org.submit(org.owner, "not-mine")
    user_id = org.write(lambda conn: removal.begin(conn, org.owner, "ann"))
    assert org.read(lambda conn: principal_of(conn, user_id, None)) is None, "doors first"
    stopped = org.write(lambda conn: removal.stop_jobs(conn, user_id, "ann", NOW))
    assert sorted(stopped) == sorted(waiting)
    assert org.write(lambda conn: removal.stop_jobs(conn, user_id, "ann", NOW)) == []
    wished = select(job_rows.c.name, job_rows.c.wish).order_by(job_rows.c.number)
    assert [tuple(row) for row in org.read(lambda conn: conn.execute(wished).all())] == [
        ("job-0", "cancel"), ("job-1", "cancel"), ("job-2", "cancel"), ("not-mine", None),
    ]  # fmt: skip
    assert org.remove("ann") == 3


def test_its_own_secrets_are_kept_for_its_jobs_and_no_longer(org: Org) -> None:
    ann, bob = (org.user(name, project="default") for name in ("ann", "bob"))
    for who in (ann, bob):
        org.write(
            lambda conn, w=who: secrets.put(
                conn, org.access.sealer, w, "HF_TOKEN", "x", own=True, now_ms=NOW
            )
        )

    def owners() -> list[str]:
        return sorted(org.read(lambda conn: conn.scalars(select(secret_rows.c.owner_id)).all()))

    job = org.submit(ann)
    org.remove("ann")
    assert owners() == sorted([str(ann.user_id), str(bob.user_id)]), "it may start anew"
    org.finish(job)
    assert org.write(removal.forget_secrets) == 1 and owners() == [bob.user_id]
    org.remove("bob")
    assert owners() == []


def test_the_last_owner_and_the_first_one_stay(org: Org) -> None:
    second = org.user("second", project="default", role="owner")
    admin = org.user("admin", project="default", role="admin")
    for name in ("owner", "second"):
        with pytest.raises(Forbidden, match="only an owner"):
            org.remove(name, by=admin)
    with pytest.raises(Conflict, match="the user owner stays"):
        org.remove("owner", by=second)
    org.write(lambda conn: service.set_disabled(conn, second, "owner", True))
    with pytest.raises(Conflict, match="the last owner"):
        org.remove("second", by=second)
    org.write(lambda conn: service.set_disabled(conn, second, "owner", False))
    org.remove("second", by=org.owner)
    assert asyncio.run(org.access.first_start()) is None, "and the next start makes nobody"
    assert [each.name for each in org.read(service.every)] == ["admin", "owner"]


def test_an_account_of_another_issuer_does_not_come_back_as_somebody_new(org: Org) -> None:
    """Also where the issuer's people become users by themselves."""
    first = org.write(lambda conn: identities.user_of(conn, ISSUER, CLAIMS, NOW))
    assert first.name == "ann"
    org.remove("ann")
    for claims in (CLAIMS, {**CLAIMS, "sub": "another"}):
        with pytest.raises(Forbidden):
            org.write(lambda conn, c=claims: identities.user_of(conn, ISSUER, c, NOW))
    org.user("ann", project="default")
    with pytest.raises(Forbidden):
        org.write(lambda conn: identities.user_of(conn, ISSUER, CLAIMS, NOW))
    org.write(
        lambda conn: identities.link(conn, ISSUER.issuer, "ann", CLAIMS["email"], org.owner, NOW)
    )
    back = org.write(lambda conn: identities.user_of(conn, ISSUER, CLAIMS, NOW))
    assert back.id != first.id, "an administrator said so"
    assert len(org.rows(identity_rows, first.id)) == 0


def test_what_was_said_of_it_by_name_is_not_said_of_the_next_one(org: Org) -> None:
    ann = org.user("ann", project="default")
    body = BudgetBody.model_validate({"amount": "5"})
    org.write(lambda conn: budgets.put(conn, "user", "ann", body, by="owner", now_ms=NOW))
    job = org.submit(ann)
    org.remove("ann")

    def listed() -> list[str]:
        return [each.row["name"] for each in org.read(lambda c: budgets.standings(c, NOW))]

    assert listed() == ["ann"], "its jobs go on, and cost"
    org.finish(job)
    assert listed() == []
    with pytest.raises(NotFound, match="no user ann"):
        org.write(lambda conn: budgets.put(conn, "user", "ann", body, by="owner", now_ms=NOW))
    new = org.user("ann", project="default")
    assert listed() == []
    org.write(lambda conn: budgets.put(conn, "user", "ann", body, by="owner", now_ms=NOW))
    assert [row["subject_id"] for row in _budgets(org)] == [new.user_id]
    org.write(lambda conn: projects.remove_member(conn, org.owner, "ann"))
    with pytest.raises(NotFound):
        org.write(lambda conn: projects.remove_member(conn, org.owner, "ann"))
    assert org.read(lambda conn: limits.page(conn)).items == ()


def _budgets(org: Org) -> list[dict[str, Any]]:
    return [each.row for each in org.read(lambda conn: budgets.standings(conn, NOW))]


@pytest.mark.parametrize("leaves", ["disabled", "removed"])
def test_jobs_are_kept_apart_as_long_as_those_of_who_left_go_on(org: Org, leaves: str) -> None:
    """They start anew by themselves: beside the last user alone they would run as that one."""
    assert not org.read(several_users)
    ann = org.user("ann", project="default")
    assert org.read(several_users)
    job = org.submit(ann)
    if leaves == "removed":
        org.remove("ann")
    else:
        org.write(lambda conn: service.set_disabled(conn, org.owner, "ann", True))
    assert org.read(several_users), "her job is there"
    org.finish(job)
    assert not org.read(several_users)


def test_two_of_a_name_are_not_made_at_once(org: Org) -> None:
    org.user("ann", project="default")
    org.remove("ann")

    async def both() -> list[Any]:
        body = UserBody(name="ann", project="default")
        return list(
            await asyncio.gather(
                *(
                    org.store.write(lambda conn: service.make(conn, org.owner, body, NOW))
                    for _ in range(4)
                ),
                return_exceptions=True,
            )
        )

    outcomes = asyncio.run(both())
    assert len([each for each in outcomes if isinstance(each, Conflict)]) == 3, outcomes


def test_the_database_itself_has_one_live_user_of_a_name(org: Org) -> None:
    twice = insert(users).values(id="x" * 32, name="owner", created_ms=0)
    with pytest.raises(Exception, match="(?i)unique"):
        org.write(lambda conn: conn.execute(twice).rowcount)
    assert OrgRole.OWNER == org.owner.org_role
