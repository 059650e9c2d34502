"""One rule for the names of files of code: what the client sends the server takes, and what the
server takes every worker lays out. And bytes that were taken are on the disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from windlass.client.bundle import scan
from windlass.core.errors import InvalidInput
from windlass.core.paths import wrong_code_path
from windlass.server.bundles import service
from windlass.server.bundles.service import Manifest
from windlass.worker.bundle import _check as workers_check

DIGEST = "0" * 64
parts = st.text(st.characters(codec=None, exclude_characters="/"), max_size=300)
paths = st.lists(parts, min_size=1, max_size=70).map("/".join)


def taken(path: str) -> bool:
    """By the server; and then by a worker too."""
    files = [{"path": path, "digest": DIGEST, "size": 1, "mode": 0o644}]
    try:
        service.check(Manifest.model_validate_json(json.dumps({"files": files})))
    except (InvalidInput, ValidationError, UnicodeError):
        return False
    workers_check(files)
    return True


@given(st.one_of(paths, st.text(max_size=1100)))
@settings(max_examples=400, deadline=None)
@example("C:x.py")
@example("a\u00a0b.py")
@example("é" * 128)
@example("/".join("a" * 65))
@example("/".join("a" * 64))
@example("a/" * 63 + "b" * 255)
@example("a" * 1024)
@example("a\\b")
@example("a//b")
@example("\udc80")
def test_who_sends_keeps_and_lays_out_agree(path: str) -> None:
    assert taken(path) == (wrong_code_path(path) == "")


def test_what_cannot_be_sent_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_HOME", str(tmp_path / "home"))
    root = tmp_path / "code"
    names = ["train.py", "a b.py", "ünï/x.py", "d" * 200 + "/ok.py"]
    wrong = ["C:x.py", "no\u00a0break.py", "\u3000.py", "line\nfeed.py", "back\\slash.py",
             "\x1b[2J.py", "tab\there/x.py", "D:/deeper/x.py"]  # fmt: skip
    for name in names + wrong:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / os.fsdecode(b"not-\xff-text.py")).write_text("")
    deep = root
    for _ in range(70):
        deep = deep / "deep"
        deep.mkdir()
        (deep / "f.py").write_text("")
    long = root
    for _ in range(5):
        long = long / ("l" * 250)
        long.mkdir()
        (long / "f.py").write_text("")
    found = scan(root)
    kept = [file.path for file in found.files]
    assert set(names) < set(kept)
    assert all(taken(path) for path in kept)
    assert len([path for path in kept if "deep/" in path]) == 63
    told = "\n".join(found.notes)
    for name in ("C:x.py", "no\\xa0break.py", "\\u3000.py", "line\\nfeed.py", "\\x1b[2J.py",
                 "'tab\\there'", "'D:'", "not-\\udcff-text.py"):  # fmt: skip
        assert name in told
    assert len(found.notes) == len(wrong) + 3, "one for each, and for all of a folder one"
    assert told.isascii() and "folders deep" in told and "longer than 1024 bytes" in told


KEEP = """
import asyncio, hashlib, sys
from pathlib import Path
from windlass.server.bundles.blobs import Blobs
data = b"x" * 100
async def chunks():
    yield data
asyncio.run(Blobs(Path(sys.argv[1])).of("ab").put(hashlib.sha256(data).hexdigest(), chunks()))
print("kept", flush=True)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_blob_and_its_name_are_on_the_disk_before_it_counts(tmp_path: Path) -> None:
    """A kill cannot show a missing fsync; the order of the calls can."""
    trace, folder = tmp_path / "trace", tmp_path / "blobs"
    command = ["strace", "-f", "-qq", "-y", "-o", str(trace), "-e", "trace=fsync,rename,write",
               sys.executable, "-c", KEEP, str(folder)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    calls: list[Any] = []
    for line in trace.read_text().splitlines():
        if match := re.search(r"(fsync)\(\d+<([^>]*)>", line):
            calls.append(match[2])
        elif "rename(" in line:
            calls.append("rename")
        elif '"kept' in line:
            calls.append("told")
    renamed, told = calls.index("rename"), calls.index("told")
    assert any("drafts" in call for call in calls[:renamed]), "its bytes"
    [blob] = (folder / "ab").glob("[0-9a-f][0-9a-f]/*")
    for needed in (blob.parent, folder / "ab", folder):
        assert str(needed) in calls[renamed:told], f"the names in {needed}"
