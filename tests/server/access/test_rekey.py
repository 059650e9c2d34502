"""Another key-encryption key, at any point of which the server may be killed."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import insert, select, update

from windlass.core.errors import Internal
from windlass.server.access import keys, sealing, tables
from windlass.server.access import rekey as rekeying
from windlass.server.access.rekey_routes import SEALED
from windlass.server.store.base import Store
from windlass.server.store.metadata import metadata

KEYS = SEALED[:1]


class Vault:
    def __init__(self, store: Store, path) -> None:
        self.store, self.path = store, path
        self.sealer = sealing.load(path)
        self.secrets = {}
        self.write(self._people)

    def _people(self, conn):
        conn.execute(insert(tables.projects).values(id="p", name="p", created_ms=0))
        conn.execute(insert(tables.users).values(id="u", name="u", created_ms=0))

    def write(self, fn):
        return asyncio.run(self.store.write(fn))

    def add(self, count, monkeypatch):
        monkeypatch.setattr(keys, "MOST", 10_000)
        for _ in range(count):
            new = self.write(
                lambda conn: keys.make(
                    conn, self.sealer, user_id="u", user="u", project_id="p", project="p", now_ms=1
                )
            )
            self.secrets[new.access_key] = new.secret_key

    def rekey(self, **how):
        sealer = sealing.load(self.path)
        done = asyncio.run(rekeying.rekey(self.store, sealer, self.path, KEYS, **how))
        self.sealer = sealer
        return done

    def opened(self):
        """Every secret, with what a server that starts now finds in the file."""
        sealer = sealing.load(self.path)
        rows = asyncio.run(
            self.store.read(lambda conn: conn.execute(select(tables.keys)).mappings().all())
        )
        return {
            row["access_key"]: sealer.unseal(
                row["secret"], row["kek"], row["access_key"], "p", str(row["version"])
            )
            for row in rows
        }


@pytest.fixture
def vault(store: Store, tmp_path) -> Vault:
    return Vault(store, tmp_path / "kek")


def test_every_table_that_holds_something_sealed_is_known():
    sealed = {table for table in metadata.tables.values() if "kek" in table.columns}
    assert sealed == {each.table for each in SEALED}


def test_all_is_sealed_anew_and_the_old_key_may_go(vault, monkeypatch):
    monkeypatch.setattr(rekeying, "_PAGE", 3)
    vault.add(7, monkeypatch)
    before = vault.path.read_text()
    assert vault.rekey(drop_old=False) == 7
    assert vault.opened() == vault.secrets
    assert vault.path.read_text().endswith(before), "the old one still opens"
    assert vault.rekey(drop_old=True) == 0
    assert vault.path.read_text().count("\n") == 1 and before not in vault.path.read_text()
    assert vault.path.stat().st_mode & 0o777 == 0o600
    assert vault.opened() == vault.secrets


def test_cut_short_at_any_page_it_is_begun_again(vault, monkeypatch):
    monkeypatch.setattr(rekeying, "_PAGE", 2)
    vault.add(5, monkeypatch)
    real = rekeying._page
    for cut in range(4):
        turns = iter(range(100))

        def page(conn, turns=turns, cut=cut, **words):
            if next(turns) == cut:
                raise KeyboardInterrupt("killed")
            return real(conn, **words)

        monkeypatch.setattr(rekeying, "_page", page)
        try:
            vault.rekey(drop_old=False)
        except KeyboardInterrupt:
            pass
        assert vault.opened() == vault.secrets, f"killed at page {cut}"
        try:
            vault.rekey(drop_old=True)
        except KeyboardInterrupt:
            pass
        assert vault.opened() == vault.secrets
    monkeypatch.setattr(rekeying, "_page", real)
    vault.rekey(drop_old=True)
    assert vault.opened() == vault.secrets and vault.path.read_text().count("\n") == 1


def test_killed_between_the_draft_and_the_rename_the_old_file_stands(vault, monkeypatch):
    vault.add(1, monkeypatch)
    before = vault.path.read_bytes()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sealing.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        sealing.add_kek(vault.path)
    assert vault.path.read_bytes() == before and vault.opened() == vault.secrets


def test_a_row_that_names_the_wrong_key_is_neither_lost_nor_believed(vault, monkeypatch):
    """Written at the very moment of the change: sealed with the old one, named the new one."""
    vault.add(2, monkeypatch)
    old = vault.sealer.kek
    vault.rekey(drop_old=False)
    victim = next(iter(vault.secrets))
    lagging = sealing.Sealer(dict(reversed(sealing._keys_in(vault.path).items())))
    assert lagging.kek == old
    sealed = lagging.seal(vault.secrets[victim], victim, "p", "1")
    mislabelled = (
        update(tables.keys)
        .where(tables.keys.c.access_key == victim)
        .values(secret=sealed, kek=vault.sealer.kek)
    )
    vault.write(lambda conn: conn.execute(mislabelled))
    assert vault.opened() == vault.secrets
    assert vault.rekey(drop_old=True) == 1
    assert vault.opened() == vault.secrets


def test_what_no_key_opens_stops_the_removal_of_the_old_ones(vault, monkeypatch):
    vault.add(2, monkeypatch)
    vault.rekey(drop_old=False)
    broken = update(tables.keys).values(secret=b"\0" * 60)
    vault.write(lambda conn: conn.execute(broken))
    with pytest.raises(Internal, match="does not open"):
        vault.rekey(drop_old=True)
    assert vault.path.read_text().count("\n") == 2
