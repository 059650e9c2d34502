"""Users: there is always an owner, and nobody below one becomes one."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from organisation import NOW
from sqlalchemy import insert, select

from windlass.core.access import OrgRole, Principal, ProjectRole
from windlass.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from windlass.core.projects import ProjectDetail
from windlass.core.users import UserBody
from windlass.server.access import keys, tables
from windlass.server.projects import service as projects
from windlass.server.users import service


def test_the_first_user_owns_the_server_and_maintains_the_first_project(org):
    assert org.owner.org_role is OrgRole.OWNER and org.owner.role is ProjectRole.MAINTAINER
    assert org.owner.project_name == "default"


def test_the_last_owner_is_neither_disabled_nor_made_less(org):
    for change in (
        lambda conn: service.set_disabled(conn, org.owner, "owner", True),
        lambda conn: service.set_role(conn, org.owner, "owner", None),
        lambda conn: service.set_role(conn, org.owner, "owner", OrgRole.ADMIN),
    ):
        with pytest.raises(Conflict, match="the last owner"):
            org.write(change)
    org.user("second", role="owner")
    org.write(lambda conn: service.set_role(conn, org.owner, "owner", None))
    assert org.owners() == ["second"]
    with pytest.raises(Conflict, match="the last owner"):
        org.write(lambda conn: service.set_disabled(conn, org.who("second"), "second", True))


def test_two_owners_who_drop_each_other_at_once_leave_one(org, monkeypatch):
    """On PostgreSQL both would otherwise see the other as the one that stays."""
    second = org.user("second", role="owner")
    both_looked, look = threading.Barrier(2), service.not_the_last

    def look_and_wait(conn, row):
        look(conn, row)
        with contextlib.suppress(threading.BrokenBarrierError):
            both_looked.wait(1.0)  # for the other one, which must not come so far

    monkeypatch.setattr(service, "not_the_last", look_and_wait)

    async def both():
        return await asyncio.gather(
            org.store.write(lambda conn: service.set_role(conn, org.owner, "second", None)),
            org.store.write(lambda conn: service.set_disabled(conn, second, "owner", True)),
            return_exceptions=True,
        )

    outcomes = asyncio.run(both())
    assert len([each for each in outcomes if isinstance(each, Conflict)]) == 1, outcomes
    assert len(org.owners()) == 1


def test_an_admin_makes_and_changes_no_owner(org):
    admin = org.user("admin", role="admin")
    for change in (
        lambda conn: service.make(conn, admin, UserBody(name="x", role="owner"), NOW),
        lambda conn: service.set_role(conn, admin, "admin", OrgRole.OWNER),
        lambda conn: service.set_role(conn, admin, "owner", None),
        lambda conn: service.set_disabled(conn, admin, "owner", True),
        lambda conn: service.find_to_act_for(conn, admin, "owner"),
    ):
        with pytest.raises(Forbidden, match="only an owner"):
            org.write(change)
    assert org.user("other", by="admin", role="admin").org_role is OrgRole.ADMIN


def test_who_may_act_for_whom(org):
    org.project("red")
    org.project("blue")
    boss = org.user("boss", project="red", project_role="maintainer")
    member = org.user("member", project="red")
    org.write(lambda conn: service.make_service(conn, boss, "robot", ProjectRole.MEMBER, NOW))

    def acts(who: Principal, name: str | None) -> str | None:
        try:
            return org.read(lambda conn: service.find_to_act_for(conn, who, name))["name"]
        except NotFound:
            return None

    assert acts(member, None) == acts(member, "member") == "member"
    assert acts(boss, "robot") == "robot", "a service account of the project it maintains"
    assert acts(member, "robot") is None and acts(boss, "member") is None
    assert acts(org.who("owner", "blue"), "boss") == "boss"
    assert acts(boss, "nobody") is None
    away = org.user("away", project="blue", project_role="maintainer")
    assert acts(away, "robot") is None


def test_a_service_account_stays_in_its_project(org):
    org.project("red")
    org.project("blue")
    boss = org.user("boss", project="red", project_role="maintainer")
    away = org.user("away", project="blue", project_role="maintainer")
    org.write(lambda conn: service.make_service(conn, boss, "robot", ProjectRole.MEMBER, NOW))
    with pytest.raises(NotFound, match="no user robot"):
        org.write(lambda conn: projects.set_member(conn, away, "robot", ProjectRole.MEMBER, NOW))
    with pytest.raises(InvalidInput, match="service account of a project"):
        org.write(lambda conn: service.set_role(conn, org.owner, "robot", OrgRole.ADMIN))
    robot = org.who("robot")
    assert robot.project_name == "red" and robot.role is ProjectRole.MEMBER


def test_a_name_is_taken_once(org):
    org.user("ann")
    with pytest.raises(Conflict, match="already"):
        org.user("ann")
    org.project("red")
    with pytest.raises(Conflict, match="already"):
        org.project("red")


def test_of_two_projects_made_at_once_under_one_name_there_is_one(org):
    async def both():
        return await asyncio.gather(
            *(
                org.store.write(lambda conn: projects.make(conn, org.owner, "red", NOW))
                for _ in range(4)
            ),
            return_exceptions=True,
        )

    outcomes = asyncio.run(both())
    assert len([each for each in outcomes if isinstance(each, Conflict)]) == 3, outcomes


def test_a_project_that_was_removed_is_gone_for_its_members_and_its_programs(org):
    org.project("red")
    boss = org.user("boss", project="red", project_role="maintainer")
    org.write(lambda conn: service.make_service(conn, boss, "robot", ProjectRole.MEMBER, NOW))
    org.write(lambda conn: projects.remove(conn, boss.project_id, NOW))
    for name in ("boss", "owner"):
        with pytest.raises(NotFound, match="no project red"):
            org.who(name, "red")
    assert org.who("boss").project_id == "" and org.who("robot") is None
    with pytest.raises(Conflict, match="was removed"):
        org.write(lambda conn: service.set_disabled(conn, org.owner, "robot", False))
    org.project("red")
    with pytest.raises(NotFound, match="no project red"):
        org.who("boss", "red"), "the new one of that name is another one"
    with pytest.raises(Conflict, match="stays"):
        org.write(lambda conn: projects.remove(conn, org.owner.project_id, NOW))


def test_members_come_change_and_go(org):
    org.project("red")
    boss = org.user("boss", project="red", project_role="maintainer")
    org.user("ann")
    for role in (ProjectRole.VIEWER, ProjectRole.MEMBER):
        org.write(lambda conn, role=role: projects.set_member(conn, boss, "ann", role, NOW))
        assert org.who("ann", "red").role is role
    shown: ProjectDetail = org.read(lambda conn: projects.one(conn, boss))
    assert [(each.user, each.role) for each in shown.people] == [
        ("ann", "member"), ("boss", "maintainer"), ("owner", "maintainer"),
    ]  # fmt: skip
    org.write(lambda conn: projects.remove_member(conn, boss, "ann"))
    with pytest.raises(NotFound):
        org.who("ann", "red")
    with pytest.raises(NotFound, match="not in project red"):
        org.write(lambda conn: projects.remove_member(conn, boss, "ann"))


def test_a_list_of_projects_holds_ones_own_and_for_who_sees_all_every_one(org):
    for name in ("red", "blue"):
        org.project(name)
    ann = org.user("ann", project="red", project_role="viewer")
    auditor = org.user("auditor", role="auditor")

    def names(who):
        return [each.name for each in org.read(lambda conn: projects.every(conn, who))]

    assert names(ann) == ["red"] and names(auditor) == ["blue", "default", "red"]
    assert names(org.user("nobody")) == []


def test_a_key_that_is_rotated_goes_on_and_dies_once(org):
    def make(conn):
        return keys.make(
            conn, org.access.sealer, user_id=org.owner.user_id, user="owner",
            project_id=org.owner.project_id, project="default", now_ms=NOW,
        )  # fmt: skip

    user_id = org.owner.user_id
    old = org.write(make).access_key
    org.write(lambda conn: keys.retire(conn, user_id, old, NOW + 10, NOW))
    row = org.read(lambda conn: keys.find(conn, user_id, old))
    assert not keys.dead(row, NOW + 9) and keys.dead(row, NOW + 10)
    with pytest.raises(Conflict, match="replaced already"):
        org.write(lambda conn: keys.retire(conn, user_id, old, NOW + 99, NOW))
    for _ in range(2):
        org.write(lambda conn: keys.revoke(conn, user_id, old))
    with pytest.raises(Conflict, match="is revoked"):
        org.write(lambda conn: keys.retire(conn, user_id, old, NOW + 99, NOW))
    with pytest.raises(NotFound):
        org.write(lambda conn: keys.revoke(conn, "0" * 32, old))


def test_memberships_of_a_user_say_nothing_once_it_is_disabled(org):
    ann = org.user("ann", project="default")
    org.write(lambda conn: service.set_disabled(conn, org.owner, "ann", True))
    assert org.who("ann") is None
    epochs = select(tables.users.c.epoch).where(tables.users.c.id == ann.user_id)
    assert org.read(lambda conn: conn.scalar(epochs)) == 1
    org.write(lambda conn: service.set_disabled(conn, org.owner, "ann", False))
    assert org.who("ann").role is ProjectRole.MEMBER
    assert org.read(lambda conn: conn.scalar(epochs)) == 1


def test_a_user_without_a_project_has_its_keys_and_nothing_of_any_project(org):
    org.write(
        lambda conn: conn.execute(
            insert(tables.users).values(id="n" * 32, name="new", created_ms=0)
        )
    )
    who = org.who("new")
    assert who.project_id == "" and {str(right) for right in who.rights} == {
        "key.own", "project.read", "self.read",
    }  # fmt: skip
