"""The audit log: one row for each change, in its transaction; nobody changes a row unseen."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select, text
from sqlalchemy.exc import DBAPIError

from windlass.core.access import CallerKind, OrgRole, Principal, rights_in
from windlass.core.audit import BEGINNING, link, verify
from windlass.core.errors import Forbidden, NotFound, Unauthenticated
from windlass.core.signing import sign
from windlass.server.access.calls import Call, spend
from windlass.server.access.service import new_token
from windlass.server.access.tables import projects
from windlass.server.audit import chain, record, service
from windlass.server.audit.chain import Chain, Note
from windlass.server.audit.refusals import MANY, Refusals
from windlass.server.audit.tables import audit
from windlass.server.store.base import Store
from windlass.testing import invariants, small_app
from windlass.testing.people import People
from windlass.testing.platform import Platform, wait_for

ONE, OTHER = "1" * 32, "2" * 32


def entry(action: str = "jobs.submit", project: str = ONE, **rest: Any) -> record.Entry:
    return record.Entry(action, project, "one", "u" * 32, "ann", "WLKEY", "10.0.0.1", **rest)


def write(store: Store, *entries: record.Entry) -> None:
    async def each() -> None:
        for item in entries:
            await store.write(lambda conn, item=item: record.write(conn, item))
        while await store.write(chain.link_page):
            pass

    asyncio.run(each())


def rows(store: Store, project: str = ONE) -> list[dict[str, Any]]:
    wanted = service.Wanted(project)
    return list(asyncio.run(store.read(lambda conn: service.following(conn, wanted, 0))))


def test_rows_are_chained_and_each_project_has_its_own_chain(store: Store) -> None:
    write(store, entry(object="a"), entry(project=OTHER), entry(object="b"), entry(object="c"))
    mine = rows(store)
    assert [row["number"] for row in mine] == [1, 2, 3]
    assert [row["object"] for row in mine] == ["a", "b", "c"]
    assert mine[0]["hash"] == link(BEGINNING, mine[0])
    assert verify(mine).sound
    assert len(rows(store, OTHER)) == 1


def test_nobody_changes_or_removes_a_row(store: Store) -> None:
    write(store, entry(), entry())
    attacks = [
        "DELETE FROM audit",
        "UPDATE audit SET object = 'forged'",
        "UPDATE audit SET number = NULL, hash = NULL",
        "UPDATE audit SET number = number + 10",
        "UPDATE audit SET hash = 'x' WHERE number = 1",
    ]
    if store.dialect == "postgresql":
        attacks.append("TRUNCATE audit")
    for attack in attacks:
        with pytest.raises((DBAPIError, sqlite3.Error), match="never"):
            asyncio.run(
                store.write(lambda conn, attack=attack: conn.execute(text(attack)) and None)
            )
    assert verify(rows(store)).rows == 2


def test_a_row_goes_with_its_transaction(store: Store) -> None:
    def failing(conn: Connection) -> None:
        spend(conn, Call(Principal(CallerKind.USER, ONE), action="jobs.stop"))
        raise RuntimeError("the change did not take place")

    with pytest.raises(RuntimeError):
        asyncio.run(store.write(failing))
    write(store)
    assert rows(store) == []


@pytest.mark.parametrize(
    ("harm", "first"),
    [
        (lambda found: found[3].update(object="forged"), 4),
        (lambda found: found[3].update(user="somebody else"), 4),
        (lambda found: found.pop(3), 4),
        (lambda found: found.insert(3, dict(found[2])), 4),
        (lambda found: found.__setitem__(slice(3, 5), [found[4], found[3]]), 4),
        (lambda found: found[3].update(hash="0" * 64), 4),
        (lambda found: found[5].update(details={"n": 1}), 6),
        (lambda found: found.pop(0) and found.insert(0, {**found[0], "number": 1}), 1),
    ],
)
def test_whatever_is_done_to_a_row_is_found_at_that_row(
    store: Store, harm: Any, first: int
) -> None:
    write(store, *(entry(object=str(at)) for at in range(8)))
    found = [dict(row) for row in rows(store)]
    assert verify(found).sound
    harm(found)
    verdict = verify(found)
    assert not verdict.sound
    assert verdict.broken == first, verdict


def test_a_chain_that_was_cut_short_or_written_anew_does_not_fit_its_noted_end(
    store: Store,
) -> None:
    write(store, *(entry(object=str(at)) for at in range(5)))
    whole = rows(store)
    heads = {5: whole[-1]["hash"]}
    assert verify(whole, heads).sound
    assert verify(whole[:3]).sound, "by itself a shorter chain is a chain"
    assert verify(whole[:3], heads).broken == 4
    forged: list[dict[str, Any]] = []
    previous = BEGINNING
    for row in whole:
        changed = {**row, "user": "somebody else"}
        changed["hash"] = previous = link(previous, changed)
        forged.append(changed)
    assert verify(forged).sound, "who can write all can write a chain"
    assert verify(forged, heads).broken == 5


def test_the_server_notes_the_end_outside_and_misses_what_is_gone(
    store: Store, tmp_path: Path
) -> None:
    write(store, *(entry(object=str(at)) for at in range(4)))

    async def keep() -> None:
        await store.write(
            lambda conn: conn.execute(
                insert(projects).values(id=ONE, name="one", created_ms=0)
            ) and None
        )  # fmt: skip
        keeper = Chain(store, tmp_path)
        await keeper.start()
        await keeper.close()

    asyncio.run(keep())
    noted = json.loads((tmp_path / "audit-heads.json").read_text())
    assert noted["chains"][ONE]["number"] == 4
    assert (tmp_path / "audit-heads.json").stat().st_mode & 0o777 == 0o600
    _cut(store, ONE, 2)

    async def look() -> Note:
        keeper = Chain(store, tmp_path)
        await keeper.start()
        await keeper.close()
        return keeper.note

    note = asyncio.run(look())
    assert [each["number"] for each in note.lost] == [4]
    assert [row["action"] for row in rows(store, "")] == ["audit.lost"]
    assert [each["number"] for each in asyncio.run(look()).lost] == [4], (
        "it is kept, and told once"
    )
    assert len(rows(store, "")) == 1


def _cut(store: Store, project: str, after: int) -> None:
    """What only one who owns the database can do: take the triggers off, then the rows."""

    def cut(conn: Connection) -> None:
        if conn.dialect.name == "sqlite":
            conn.execute(text("DROP TRIGGER audit_is_kept"))
        else:
            conn.execute(text("ALTER TABLE audit DISABLE TRIGGER USER"))
        conn.execute(audit.delete().where(audit.c.project_id == project, audit.c.number > after))

    asyncio.run(store.write(cut))


def test_rows_of_transactions_side_by_side_all_get_a_place(postgres: Any) -> None:
    """PostgreSQL: many writers, several linkers, one chain without a gap."""
    from windlass.server.store.open import open_store

    url = postgres.fresh()

    async def storm() -> list[dict[str, Any]]:
        store = await open_store(url)
        try:

            async def writer(name: int) -> None:
                for at in range(20):
                    told = entry(object=f"{name}/{at}")
                    await store.write(partial(record.write, entry=told))

            async def linker() -> None:
                for _ in range(20):
                    await store.write(chain.link_page)

            await asyncio.gather(*(writer(n) for n in range(6)), *(linker() for _ in range(3)))
            while await store.write(chain.link_page):
                pass
            wanted = service.Wanted(ONE)
            return list(await store.read(lambda conn: service.following(conn, wanted, 0)))
        finally:
            await store.close()

    found = asyncio.run(storm())
    postgres.drop(url)
    assert len(found) == 120
    assert len({row["object"] for row in found}) == 120
    assert verify(found).sound


def test_text_from_outside_forges_no_line(store: Store) -> None:
    nasty = "a\r\n2026-01-01 FORGED\x1b[2J\u2028\x00b"
    write(store, entry(object=nasty, outcome="ok"))
    (row,) = rows(store)
    assert row["object"].isprintable()
    assert "FORGED" in row["object"], "it is told, escaped"
    assert verify(rows(store)).sound


# Refusals


class Watched:
    """A `Refusals` whose clock stands still."""

    def __init__(self, store: Store, room: int = 60) -> None:
        self.now = 100.0
        self.store = store
        self.room = room

    def run(self, story: Any) -> list[dict[str, Any]]:
        async def scene() -> None:
            refusals = Refusals(self.store, lambda: self.now, self.room)
            refusals.start()
            await story(refusals)
            await refusals.close()
            while await self.store.write(chain.link_page):
                pass

        asyncio.run(scene())
        found: list[dict[str, Any]] = rows(self.store, "") + rows(self.store)
        return found


def _scope(key: str = "WLAAAA", client: str = "10.1.1.1") -> dict[str, Any]:
    signed = sign("GET", "http://h/", {"Host": "h"}, b"", key, "not its secret", 1)
    return {
        "type": "http", "method": "GET", "client": (client, 5), "path_params": {},
        "headers": [(b"authorization", signed["Authorization"].encode())],
    }  # fmt: skip


def test_a_flood_of_like_refusals_is_one_row_and_a_count(store: Store) -> None:
    watched = Watched(store)

    async def flood(refusals: Refusals) -> None:
        for _ in range(5000):
            refusals.note(_scope(), None, Unauthenticated("no"))

    found = watched.run(flood)
    assert [(row["outcome"], row["times"]) for row in found] == [
        ("unauthenticated", 1),
        ("unauthenticated", 4999),
    ]


def test_a_flood_of_different_refusals_is_bounded_too(store: Store) -> None:
    watched = Watched(store, room=10)

    async def flood(refusals: Refusals) -> None:
        for number in range(3000):
            refusals.note(_scope(client=f"10.0.{number // 250}.{number % 250}"), None,
                          Unauthenticated("no"))  # fmt: skip

    found = watched.run(flood)
    assert len(found) == 12
    assert sum(row["times"] for row in found if row["action"] == MANY) == 2990


def test_a_refusal_tells_who_and_what(store: Store) -> None:
    who = Principal(CallerKind.USER, ONE, "u" * 32, "ann", "one", credential="WLKEY")
    call = Call(who, "req", action="jobs.stop", about="f" * 32, source="10.9.9.9")

    async def story(refusals: Refusals) -> None:
        refusals.note(_scope(), call, Forbidden("no"))
        refusals.note(_scope(), call, NotFound("no job"))
        refusals.note(_scope(), None, NotFound("no such address"))
        refusals.note(_scope(), None, ValueError())

        named = {**_scope(), "headers": [*_scope()["headers"], (b"x-wl-project", b"theirs")]}
        refusals.note(named, None, NotFound("no project theirs"))

    found = [row for row in Watched(store).run(story) if row["project_id"]]
    assert [(row["user"], row["action"], row["object"], row["outcome"]) for row in found] == [
        ("ann", "jobs.stop", "f" * 32, "forbidden"),
        ("ann", "jobs.stop", "f" * 32, "not-found"),
    ]
    (row,) = rows(store, "")
    assert (row["credential"], row["object"], row["outcome"]) == ("WLAAAA", "theirs", "not-found")


# The whole


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("audit") / "home") as platform:
        platform.wait(platform.submit("true", name="first"))
        held = platform.submit("true", name="second", hold=True)
        platform.client.jobs.stop(held.id)
        platform.client.quotas.set("default", nominal={"cpus": 64})
        yield platform


def listed(platform: Platform, **filters: Any) -> list[dict[str, Any]]:
    return platform.client.audit.list(limit=1000, **filters)


def test_every_change_by_a_user_has_its_row(busy: Platform) -> None:
    acts = [(row["action"], row["outcome"]) for row in reversed(listed(busy))]
    assert acts[:3] == [("jobs.submit", "ok"), ("jobs.submit", "ok"), ("jobs.stop", "ok")]
    (row,) = listed(busy, chain="server", action="quotas.put")
    assert (row["user"], row["object"], row["source"]) == ("owner", "default", "127.0.0.1")
    assert row["credential"] == busy.credentials()["access_key"]
    invariants.audited(busy)


def test_a_change_of_rights_tells_which(busy: Platform) -> None:
    owner = People(busy).owner
    owner.ok("POST", "/users", {"name": "bob", "project": "default"})
    owner.ok("PUT", "/projects/default/members/bob", {"role": "viewer"})
    owner.ok("PUT", "/users/bob/role", {"role": "auditor"})
    (member,) = listed(busy, action="projects.set-member")
    assert (member["object"], member["details"]) == ("default/bob", {"role": "viewer"})
    (role,) = listed(busy, chain="server", action="users.set-role")
    assert (role["object"], role["details"]) == ("bob", {"role": "auditor"})


def test_the_same_key_again_is_told_as_a_replay(busy: Platform) -> None:
    body = {"spec": {"run": "true", "name": "replay", "hold": True}}
    key = {"Idempotency-Key": "audit-replay"}
    first = busy.call("POST", "/jobs", body, headers=key)
    again = busy.call("POST", "/jobs", body, headers=key)
    assert first.status_code == again.status_code == 201
    found = listed(busy, object=first.json()["id"])
    assert sorted(row["outcome"] for row in found) == ["ok", "replayed"]
    invariants.audited(busy)


def test_what_was_refused_is_told(busy: Platform) -> None:
    secret = busy.call("GET", "/jobs", token="wl_not-a-token-of-anybody")
    assert secret.status_code == 401
    assert busy.call("POST", "/jobs/nobodys/stop", {}).status_code == 404

    def told() -> bool:
        server = listed(busy, chain="server", outcome="unauthenticated")
        mine = listed(busy, outcome="not-found", object="nobodys")
        return bool(server) and bool(mine)

    wait_for(told, 5, "the refusals are in the log")
    assert "not-a-token" not in json.dumps(listed(busy, chain="server"))


def test_the_commands_work_and_an_outsider_can_check_an_export(
    busy: Platform, tmp_path: Path
) -> None:
    assert "sound" in busy.cli("audit", "verify").stdout
    head = busy.cli("audit", "head").stdout.strip()
    assert busy.cli("audit", "verify", "--head", head).returncode == 0
    export = tmp_path / "audit.jsonl"
    export.write_text(busy.cli("audit", "export").stdout)
    assert "sound" in busy.cli("audit", "verify", "--file", str(export)).stdout
    script = tmp_path / "check.py"
    script.write_text(_script())
    assert len(script.read_text().splitlines()) <= 20
    words = [sys.executable, "-I", str(script), str(export)]
    assert subprocess.run(words, timeout=60, capture_output=True).returncode == 0
    lines = export.read_text().splitlines()
    export.write_text("\n".join([lines[0].replace("owner", "nobody", 1), *lines[1:]]) + "\n")
    wrong = busy.cli("audit", "verify", "--file", str(export))
    assert wrong.returncode != 0
    assert "row 1" in wrong.stderr
    broken = subprocess.run(words, timeout=60, capture_output=True, text=True)
    assert broken.returncode == 1 and "1" in broken.stdout
    table = busy.cli("audit", "export", "-o", "csv").stdout.splitlines()
    assert table[0].startswith("number,at,project_id") and len(table) == len(lines) + 1


def _script() -> str:
    """The script that the documentation gives to outsiders."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "audit.md").read_text()
    return page.partition("```python\n")[2].partition("```")[0]


def test_a_restart_keeps_the_chain_and_notes_its_end(tmp_path: Path) -> None:
    with Platform(tmp_path / "home") as platform:
        platform.submit("true", name="one", hold=True)
        platform.stop()
        noted = json.loads((tmp_path / "home" / "audit-heads.json").read_text())["chains"]
        assert any(end["number"] >= 1 for end in noted.values())
        platform.start()
        platform.submit("true", name="two", hold=True)
        assert platform.cli("audit", "verify").returncode == 0
        assert platform.cli("audit", "verify", "--server").returncode == 0


@pytest.mark.slow
def test_rows_of_a_killed_server_are_chained_by_the_next(tmp_path: Path, postgres: Any) -> None:
    """PostgreSQL: a row that was committed and had no place yet when its server died."""
    url = postgres.fresh()
    with Platform(tmp_path / "home", database=url) as platform:
        for number in range(30):
            platform.submit("true", name=f"job-{number}", hold=True)
        platform.kill()
        platform.start()
        invariants.audited(platform)
        assert len(listed(platform, action="jobs.submit")) == 30
    postgres.drop(url)


def test_a_change_that_nobody_told_of_is_a_mistake_of_ours(tmp_path: Path) -> None:
    """A route that forgot to: also for a caller whose credential is no signature."""
    server = small_app.make(tmp_path)
    token, digest = new_token(CallerKind.WORKER)
    rights = rights_in(OrgRole.OWNER, None)
    server.tokens[digest] = Principal(CallerKind.USER, ONE, "u" * 32, "ann", rights=rights)
    headers = {"host": "127.0.0.1", "authorization": f"Bearer {token}"}
    for path, status in (("/api/v1/forgetful", 500), ("/api/v1/things/x", 200)):
        method = "POST" if status == 500 else "DELETE"
        answer = small_app.send(server.app, method, path, headers=headers)
        assert answer.status_code == status, answer.text


def test_a_row_costs_a_submit_little(tmp_path: Path) -> None:
    from windlass.server.store.open import open_store

    async def measure() -> float:
        store = await open_store(f"sqlite:///{tmp_path}/windlass.db")

        def many(conn: Connection) -> float:
            began = time.process_time()
            for _ in range(1000):
                record.write(conn, entry(object="f" * 32))
            return (time.process_time() - began) / 1000

        try:
            return min([await store.write(many) for _ in range(4)])
        finally:
            await store.close()

    assert asyncio.run(measure()) < 80e-6, "40 µs are allowed on a quiet machine"


def test_the_table_is_read_by_the_place_in_the_chain(store: Store) -> None:
    """A list of a chain walks its index: it does not sort all rows of the server."""
    query = service.Wanted(ONE).query().order_by(audit.c.number.desc()).limit(50)
    words = str(query.compile(compile_kwargs={"literal_binds": True}))
    explain = "EXPLAIN QUERY PLAN " if store.dialect == "sqlite" else "EXPLAIN "
    if store.dialect == "sqlite":
        plan = str(asyncio.run(store.read(lambda conn: conn.execute(text(explain + words)).all())))
        assert "ix_audit_project_number" in plan, plan
    assert asyncio.run(store.read(lambda conn: conn.execute(select(audit)).all())) == []
