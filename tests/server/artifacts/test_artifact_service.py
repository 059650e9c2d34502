"""Files of runs in both databases, and the bytes behind them."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from windlass.core.errors import Conflict, InvalidInput, NotFound, TooLarge
from windlass.core.paths import plain_path
from windlass.server.artifacts import service
from windlass.server.artifacts.service import File
from windlass.server.bundles.blobs import Blobs

RUN = "d" * 32
DAY_MS = 86_400_000

OUTSIDE = [
    "..", "../x", "a/../../x", "a/..", "/etc/passwd", "//etc/passwd", "///proc/self/root/etc",
    "a//b", "./a", "a/.", ".", "", "a/", "..\\x", "a\\..\\..\\x", "\\\\host\\share", "C:/x",
    "c:x", "file:///etc/passwd", "file:/etc/passwd", "http://169.254.169.254/latest",
    "s3://bucket/x", "gopher://x/", "runs:/1/x", "..;/x", "a/..;/b", "%2e%2e/x", "%2e%2e%2fx",
    "..%2fx", "%252e%252e%252fx", "%25252e%25252e%25252fx", "a%2f..%2f..%2fx", "..%5cx",
    "%2fetc%2fpasswd", "a%00b", "a\0b", "a\nb", "\u202ex", "a/... /x/../..", "..%c0%afx",
    "a/ ../b", "x" * 2000, "/".join("a" for _ in range(100)), "\ud800",
]  # fmt: skip
"""Every form that got somebody out of another system's artefact folder, and some more."""
INSIDE = ["a", "a/b.txt", "model#1.pt", "a;b", "50%.txt", "größe/模型.onnx", "a b", "a..b", "..a"]


@pytest.mark.parametrize("path", OUTSIDE, ids=ascii)
def test_a_path_that_anybody_could_read_as_outside_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput):
        plain_path(path)


@pytest.mark.parametrize("path", INSIDE)
def test_a_path_below_its_folder_stays_as_it_is(path: str) -> None:
    assert plain_path(path) == path


def test_a_folder_is_listed_with_what_lies_directly_in_it(tenancy: Any) -> None:
    project = tenancy.who.project_id
    listed = ("a.txt", "model/weights", "model/code/x.py", "model_2/w", "mod%/x")
    for place, path in enumerate(listed):
        file = File(path, f"{place:064x}", place + 1)
        tenancy.write(lambda conn, file=file: service.record(conn, project, RUN, file, 1))

    def look(folder: str = "", project: str = project, run: str = RUN) -> list[Any]:
        found = tenancy.read(lambda conn: service.listing(conn, project, run, folder))
        return [(each.path, each.folder, each.size) for each in found]

    assert look() == [
        ("a.txt", False, 1), ("mod%", True, 5), ("model", True, 5), ("model_2", True, 4),
    ]  # fmt: skip
    assert look("model") == [("model/code", True, 3), ("model/weights", False, 2)]
    assert look("mod%") == [("mod%/x", False, 5)]
    assert look("a.txt") == look("nothing") == look("", "0" * 32) == look("", run="e" * 32) == []


def test_a_file_is_no_folder_and_a_folder_is_no_file(tenancy: Any) -> None:
    project = tenancy.who.project_id

    def record(path: str, digest: str = "a" * 64) -> None:
        file = File(path, digest, 1)
        tenancy.write(lambda conn: service.record(conn, project, RUN, file, 1))

    record("a/b")
    for path in ("a", "a/b/c"):
        with pytest.raises(Conflict):
            record(path)
    record("a/b", "b" * 64)  # another file in its place

    def find(path: str) -> File:
        found: File = tenancy.read(lambda conn: service.find(conn, project, RUN, path))
        return found

    assert find("a/b").digest == "b" * 64
    assert tenancy.write(lambda conn: service.remove(conn, project, RUN, "a")) == 1
    with pytest.raises(NotFound):
        find("a/b")


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def test_bytes_are_kept_under_their_hash(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path).of("a")
    content = os.urandom(3 * 2**20 + 7)
    digest, size = asyncio.run(blobs.keep(_pieces(content[:5], content[5:]), 2**30))
    assert (digest, size) == (hashlib.sha256(content).hexdigest(), len(content))
    assert blobs.path(digest).read_bytes() == content
    assert blobs.path(digest).stat().st_mode & 0o777 == 0o600
    assert asyncio.run(blobs.keep(_pieces(), 1))[1] == 0  # an empty file is one too


def test_a_file_over_the_bound_leaves_nothing(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path).of("a")
    with pytest.raises(TooLarge):
        asyncio.run(blobs.keep(_pieces(b"abc", b"def"), 5))
    with pytest.raises(InvalidInput):
        asyncio.run(blobs.put("0" * 64, _pieces(b"abc")))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_was_cut_in_the_middle_is_swept(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    draft = tmp_path / "a" / "drafts" / "half"
    draft.parent.mkdir(parents=True)
    draft.write_bytes(b"half of it")
    assert blobs.sweep({}, DAY_MS) == 0  # it may be on its way still
    os.utime(draft, (1, 1))
    assert blobs.sweep({}, DAY_MS) == 1
    assert not draft.exists()


def test_a_run_that_has_all_the_files_it_may_have_takes_no_other(
    tenancy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_FILES", 3)
    project = tenancy.who.project_id

    def put(path: str) -> None:
        file = File(path, "a" * 64, 1)
        tenancy.write(lambda conn: service.record(conn, project, RUN, file, 1))

    for path in ("a", "b/c", "d", "a"):
        put(path)
    with pytest.raises(TooLarge, match="has 3 files, the most that a run may have: e is not"):
        put("e")
    put("b/c")
    other = File("e", "a" * 64, 1)
    tenancy.write(lambda conn: service.record(conn, project, "e" * 32, other, 1))
