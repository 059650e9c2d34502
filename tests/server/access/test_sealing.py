"""Secrets at rest, and the first key of a new server."""

from __future__ import annotations

import asyncio
import os
import re

import pytest
from sqlalchemy import select

from windlass.core.errors import Internal
from windlass.server.access import tables
from windlass.server.access.sealing import load
from windlass.testing import small_app


def test_what_is_sealed_opens_only_where_it_belongs(tmp_path):
    sealer = load(tmp_path / "kek")
    sealed = sealer.seal("secret", "AK", "project", "1")
    assert b"secret" not in sealed
    assert sealer.unseal(sealed, sealer.kek, "AK", "project", "1") == "secret"
    for elsewhere in (("AK2", "project", "1"), ("AKp", "roject", "1"), ("AK", "project", "2")):
        with pytest.raises(Internal, match="does not open"):
            sealer.unseal(sealed, sealer.kek, *elsewhere)
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    with pytest.raises(Internal, match="does not open"):
        sealer.unseal(changed, sealer.kek, "AK", "project", "1")


def test_the_key_file_is_private_and_stays(tmp_path):
    path = tmp_path / "home" / "kek"
    sealed = (first := load(path)).seal("secret", "x")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["kek"]
    assert load(path).unseal(sealed, first.kek, "x") == "secret"


def test_a_key_file_that_others_can_read_is_refused(tmp_path):
    load(tmp_path / "kek")
    os.chmod(tmp_path / "kek", 0o640)
    with pytest.raises(Internal, match="readable by others"):
        load(tmp_path / "kek")


def test_two_key_encryption_keys_live_side_by_side(tmp_path):
    path = tmp_path / "kek"
    old = load(path)
    sealed = old.seal("secret", "x")
    path.write_text(f"{'ab' * 4} {'cd' * 32}\n" + path.read_text())
    new = load(path)
    assert new.kek == "abababab" != old.kek
    assert new.unseal(sealed, old.kek, "x") == "secret"
    assert old.unseal(new.seal("y", "x"), new.kek, "x") == "y", "it reads the file again"
    path.write_text(f"{'12' * 4} {'34' * 32}\n")
    with pytest.raises(Internal, match="which is not here"):
        load(path).unseal(sealed, new.kek, "x")


@pytest.mark.parametrize("text", ["", "nonsense", "abababab 00"])
def test_a_damaged_key_file_is_told(tmp_path, text):
    path = tmp_path / "kek"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(Internal):
        load(path)


def test_the_first_start_makes_one_key_and_shows_it_once(tmp_path):
    server = small_app.make(tmp_path)
    key = server.key
    assert re.fullmatch(r"WL[A-Z2-7]{18}", key.access_key) and len(key.secret_key) == 40
    assert asyncio.run(server.access.first_start()) is None

    def everything(conn):
        return [repr(conn.execute(select(table)).all()) for table in tables.metadata.sorted_tables
                if table in (tables.keys, tables.users, tables.projects)]  # fmt: skip

    stored = "".join(asyncio.run(server.store.read(everything)))
    assert key.access_key in stored and key.secret_key not in stored
