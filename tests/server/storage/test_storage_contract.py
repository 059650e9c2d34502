"""What every storage must do, on each of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from windlass.core.errors import NotFound
from windlass.server.storage.base import BLOCK, Storage

Put = Callable[[str, bytes], None]


@pytest.fixture
def put(storage: Storage, tmp_path: Path) -> Put:
    def put(key: str, data: bytes) -> None:
        path = tmp_path / "local"
        path.write_bytes(data)
        opened = os.open(path, os.O_RDONLY)
        try:
            storage.put(key, opened, len(data))
        finally:
            os.close(opened)

    return put


def test_what_was_put_is_read_from_any_place(storage: Storage, put: Put) -> None:
    put("blobs/a/one", b"0123456789")
    assert storage.size("blobs/a/one") == 10
    assert storage.read("blobs/a/one", 0, 10) == b"0123456789"
    assert storage.read("blobs/a/one", 3, 5) == b"34"
    assert storage.read("blobs/a/one", 9, 10) == b"9"
    assert storage.read("blobs/a/one", 10, 10) == b""


def test_a_file_of_several_parts_comes_back_whole(storage: Storage, put: Put) -> None:
    data = os.urandom(BLOCK) + b"middle" + os.urandom(BLOCK)
    put("blobs/a/large", data)
    assert storage.size("blobs/a/large") == len(data)
    assert storage.read("blobs/a/large", BLOCK - 2, BLOCK + 8) == data[BLOCK - 2 : BLOCK + 8]
    assert storage.read("blobs/a/large", 0, len(data)) == data


def test_nothing_is_a_file_too(storage: Storage, put: Put) -> None:
    put("logs/empty", b"")
    assert storage.size("logs/empty") == 0
    assert storage.read("logs/empty", 0, 0) == b""


def test_what_is_not_there_is_told(storage: Storage, put: Put) -> None:
    assert storage.size("blobs/a/none") is None
    with pytest.raises(NotFound):
        storage.read("blobs/a/none", 0, 1)
    put("blobs/a/one", b"x")
    assert storage.size("blobs/a") is None


def test_what_was_removed_is_gone_and_stays_so(storage: Storage, put: Put) -> None:
    put("blobs/a/one", b"1")
    put("blobs/a/two", b"2")
    storage.remove("blobs/a/one")
    storage.remove("blobs/a/one")
    assert storage.size("blobs/a/one") is None
    assert storage.read("blobs/a/two", 0, 1) == b"2"


def test_all_there_is_is_listed_with_its_age(storage: Storage, put: Put) -> None:
    assert list(storage.listing()) == []
    put("blobs/a/one", b"1")
    put("logs/b/node/two", b"22")
    found = {each.key: each for each in storage.listing()}
    assert {key: each.size for key, each in found.items()} == {
        "blobs/a/one": 1,
        "logs/b/node/two": 2,
    }
    now = time.time() * 1000
    assert all(now - 3_600_000 < each.changed_ms <= now + 5000 for each in found.values())
