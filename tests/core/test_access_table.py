"""The one table of rights, read as a whole."""

from __future__ import annotations

from itertools import product

import pytest

from windlass.core.access import (
    NEEDS_PROJECT,
    OF_ANYBODY,
    RIGHTS_IN_ORGANISATION,
    RIGHTS_IN_PROJECT,
    SCOPES,
    CallerKind,
    OrgRole,
    Principal,
    ProjectRole,
    Right,
    rights_in,
    rights_in_scope,
    rights_of,
)

VIEWER, MEMBER, MAINTAINER = (RIGHTS_IN_PROJECT[role] for role in ProjectRole)
OWNER, ADMIN, AUDITOR = (RIGHTS_IN_ORGANISATION[role] for role in OrgRole)
PROGRAMS = {Right.WORKER, Right.RUN}


def test_each_role_has_what_the_one_below_has() -> None:
    assert OF_ANYBODY < VIEWER < MEMBER < MAINTAINER < ADMIN <= OWNER
    assert VIEWER < AUDITOR < ADMIN


def test_every_right_is_somebodys_and_an_attempts_are_nobodys_elses() -> None:
    assert OWNER == set(Right) - PROGRAMS - {Right.PUBLIC}
    assert rights_of(CallerKind.WORKER) == {Right.WORKER}
    # User code may track and register what it made, as any member may who could submit it.
    tracking = {Right.TRACK_READ, Right.TRACK_WRITE, Right.MODEL_READ, Right.MODEL_WRITE}
    assert rights_of(CallerKind.RUN) == {Right.RUN} | tracking < {Right.RUN} | MEMBER
    with pytest.raises(KeyError):
        rights_of(CallerKind.USER)


def test_who_only_looks_changes_nothing_but_its_own_credentials() -> None:
    for rights in (VIEWER, AUDITOR):
        changing = {right for right in rights if not right.endswith((".read", ".read-all"))}
        assert changing == {Right.KEY_OWN}


def test_nobody_has_more_than_its_two_roles_give() -> None:
    for org_role, role in product((None, *OrgRole), (None, *ProjectRole)):
        given = RIGHTS_IN_ORGANISATION.get(org_role, set()) | RIGHTS_IN_PROJECT.get(role, set())
        assert rights_in(org_role, role) == given | OF_ANYBODY


def test_without_a_project_nothing_of_a_project_is_left() -> None:
    left = rights_in(OrgRole.OWNER, None) - NEEDS_PROJECT
    assert not {right for right in left if right.startswith(("job.", "secret.", "bundle."))}
    assert {Right.USER_WRITE, Right.PROJECT_ADMIN, Right.KEY_OWN} < left
    assert rights_in(None, None) - NEEDS_PROJECT == OF_ANYBODY


def test_a_scope_is_a_right_or_a_word_for_several() -> None:
    for scope in SCOPES:
        found = rights_in_scope([scope]) - {Right.SELF_READ}
        assert found <= OWNER - {Right.KEY_OWN}
        assert found or scope == Right.SELF_READ
    assert rights_in_scope(SCOPES) == OWNER - {Right.KEY_OWN}
    assert rights_in_scope([]) == {Right.SELF_READ}


def test_a_caller_without_rights_has_the_public_ones() -> None:
    nobody = Principal(kind=CallerKind.USER, project_id="")
    assert [right for right in Right if nobody.may(right)] == [Right.PUBLIC]
