"""Bearer tokens of users: their form, their scopes, their end."""

from __future__ import annotations

import asyncio
import re

import pytest
from sqlalchemy import insert, select, update

from windlass.core.access import SCOPES, OrgRole, ProjectRole, Right, rights_in, rights_in_scope
from windlass.core.errors import InvalidInput, NotFound, Unauthenticated
from windlass.core.signing import SignedParts
from windlass.server.access import tables, tokens
from windlass.server.access.principals import principal_of
from windlass.server.access.sealing import load
from windlass.server.access.service import Access
from windlass.server.store.base import Store

NOW = 1_800_000_000_000


class World:
    """Access over a real store, with a clock of its own."""

    def __init__(self, store: Store, home) -> None:
        self.now_ms = NOW
        self.store = store
        self.access = Access(store, load(home / "kek"), self._nobody, now_ms=lambda: self.now_ms)
        asyncio.run(self.access.first_start())
        self.owner = self.read(lambda conn: conn.execute(select(tables.users.c.id)).scalar_one())

    async def _nobody(self, digest):
        return None

    def read(self, fn):
        return asyncio.run(self.store.read(fn))

    def write(self, fn):
        found = asyncio.run(self.store.write(fn))
        self.access.forget()
        return found

    def token(self, *scopes, lives_ms=tokens.DEFAULT_MS, name="t"):
        def make(conn):
            who = principal_of(conn, self.owner, "default")
            return tokens.make(
                conn, who, self.owner, name=name, scopes=scopes, lives_ms=lives_ms,
                now_ms=self.now_ms,
            )  # fmt: skip

        return self.write(make)

    def enter(self, token, project=None):
        headers = [(b"authorization", b"Bearer " + token.encode())]
        if project:
            headers.append((b"x-wl-project", project.encode()))
        parts = SignedParts("GET", b"/", b"", headers)

        async def no_body(claimed):
            return ""

        return asyncio.run(self.access.authenticate(parts, no_body)).principal


@pytest.fixture
def world(store: Store, tmp_path) -> World:
    return World(store, tmp_path)


def test_a_token_can_be_told_from_its_form_alone():
    made = {tokens.new_token() for _ in range(200)}
    assert len(made) == 200
    for token in made:
        assert re.fullmatch(r"wl_[0-9A-Za-z]{49}", token) and tokens.well_formed(token.encode())
        wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
        assert not tokens.well_formed(wrong.encode())
        swapped = token[:5] + token[6] + token[5] + token[7:]
        assert swapped == token or not tokens.well_formed(swapped.encode())
    assert not tokens.well_formed(b"wl_" + b"0" * 49)
    assert not tokens.well_formed("wl_ä".encode())


def test_the_database_knows_a_token_by_its_hash_alone(world):
    row, token = world.token("read")
    stored = repr(world.read(lambda conn: conn.execute(select(tables.tokens)).all()))
    assert token not in stored and token[3:40] not in stored and row["hash"] in stored


def test_a_scope_narrows_and_never_adds(world):
    _, reads = world.token("read")
    _, one = world.token("job.read", name="one")
    _, writes = world.token("write", name="writes")
    owner = rights_in(OrgRole.OWNER, ProjectRole.MAINTAINER)
    assert world.enter(one).rights == {Right.JOB_READ, Right.SELF_READ}
    read, write = world.enter(reads).rights, world.enter(writes).rights
    assert read < owner and write < owner
    changing = [r for r in read if r.endswith((".write", ".admin", "-any", ".own", ".debug"))]
    assert not changing, "what is read-only changes nothing"
    assert Right.JOB_WRITE in write and Right.QUEUE_WRITE not in write
    beyond = {Right.USER_READ, Right.USAGE_READ_ALL, Right.AUDIT_READ_ALL}
    assert not beyond & (read | write), "of one project, also where its user sees all"
    world.write(lambda conn: conn.execute(update(tables.users).values(role=None)))
    world.write(lambda conn: conn.execute(update(tables.memberships).values(role="viewer")))
    viewer = rights_in(None, ProjectRole.VIEWER)
    assert world.enter(writes).rights <= viewer, "the user lost its role, so did its tokens"


def test_no_scope_lets_a_token_make_credentials():
    everything = rights_in_scope(SCOPES)
    assert Right.KEY_OWN not in everything
    assert {Right.WORKER, Right.RUN, Right.PUBLIC}.isdisjoint(everything)
    assert rights_in_scope(["key.own", "worker", "nonsense", "*"]) == {Right.SELF_READ}


@pytest.mark.parametrize("scopes", [(), ("key.own",), ("worker",), ("public",), ("nonsense",)])
def test_a_scope_that_is_none_is_refused(world, scopes):
    with pytest.raises(InvalidInput, match="scopes"):
        world.token(*scopes)


@pytest.mark.parametrize("lives_ms", [0, 59_999, tokens.LONGEST_MS + 1, -1])
def test_a_token_lives_for_a_while_and_not_for_ever(world, lives_ms):
    with pytest.raises(InvalidInput, match="expires"):
        world.token("read", lives_ms=lives_ms)


def test_a_token_dies_at_its_time_to_the_millisecond(world):
    _, token = world.token("read", lives_ms=60_000)
    world.now_ms += 59_999
    assert world.enter(token).user_name == "owner"
    world.now_ms += 1
    with pytest.raises(Unauthenticated, match="its time is over"):
        world.enter(token)


def test_a_token_is_of_one_project(world):
    _, token = world.token("read")
    other = {"id": "0" * 32, "name": "other", "created_ms": 0}
    world.write(lambda conn: conn.execute(insert(tables.projects).values(other)))
    assert world.enter(token, "default").project_name == "default"
    for elsewhere in ("other", "no-such"):
        with pytest.raises(NotFound, match=f"no project {elsewhere}"):
            world.enter(token, elsewhere)
    gone = update(tables.projects).where(tables.projects.c.name == "default").values(removed_ms=1)
    world.write(lambda conn: conn.execute(gone))
    with pytest.raises(Unauthenticated):
        world.enter(token)


def test_a_new_epoch_of_the_user_ends_its_tokens_for_good(world):
    _, token = world.token("read")
    assert world.enter(token)
    world.write(lambda conn: conn.execute(update(tables.users).values(epoch=1)))
    with pytest.raises(Unauthenticated):
        world.enter(token)
    assert world.read(lambda conn: tokens.listing(conn, world.owner)) == []
    _, fresh = world.token("read")
    assert world.enter(fresh)


def test_revoked_twice_is_revoked_and_a_name_may_be_used_again(world):
    row, token = world.token("read", name="ci")
    for ref in ("ci", row["id"], row["id"][:8]):
        assert (
            world.write(lambda conn, ref=ref: tokens.revoke(conn, world.owner, ref)) == row["id"]
        )
    with pytest.raises(Unauthenticated):
        world.enter(token)
    again, fresh = world.token("read", name="ci")
    assert world.enter(fresh).credential == again["id"]
    with pytest.raises(NotFound):
        world.write(lambda conn: tokens.revoke(conn, "0" * 32, again["id"]))


def test_of_too_many_tokens_one_must_go_first(world, monkeypatch):
    monkeypatch.setattr(tokens, "MOST", 2)
    world.token("read", name="a", lives_ms=60_000)
    world.token("read", name="b")
    with pytest.raises(InvalidInput, match="at most 2"):
        world.token("read", name="c")
    world.now_ms += 60_000
    world.token("read", name="c")


def test_last_use_is_told_at_once_and_kept_by_and_by(world):
    row, token = world.token("read")
    world.enter(token)
    assert world.access.last_used(row["id"]) == NOW
    asyncio.run(world.access.tend())
    kept = world.read(lambda conn: tokens.listing(conn, world.owner))[0]
    assert kept["last_used_ms"] == NOW and world.access.last_used(row["id"]) == 0
