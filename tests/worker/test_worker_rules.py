"""Rules of the worker that need no process: what it imports, how it is packed, what it decides."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import windlass.contracts
import windlass.patterns
import windlass.worker
from windlass.worker import record, verdict
from windlass.worker.launch import Member
from windlass.worker.pack import archive, pack
from windlass.worker.ranks import Rank

SOURCES = [
    path
    for package in (windlass.worker, windlass.patterns, windlass.contracts)
    for path in sorted(Path(package.__path__[0]).glob("*.py"))
]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_it_parses_as_python_3_8_and_imports_only_the_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    own = (f"windlass.{path.parent.name}", "windlass.patterns")
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            top = name.split(".")[0]
            allowed = top in sys.stdlib_module_names or name.startswith(own)
            # The version, and the job's own debugger inside the job's own process.
            assert allowed or name in ("windlass", "debugpy", "_sha2"), name


def test_the_archive_is_the_same_every_time_and_left_alone_when_unchanged(tmp_path: Path) -> None:
    assert archive() == archive()
    path = tmp_path / "worker.pyz"
    assert pack(str(path)) is True
    before = path.stat().st_mtime_ns
    assert pack(str(path)) is False
    assert path.stat().st_mtime_ns == before


def test_nothing_heavy_is_imported_on_the_way_to_the_first_rank(archive: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "import windlass.worker.main, windlass.worker.attempt\n"
        "print(sorted(set(sys.modules) & {'typing', 'dataclasses', 'subprocess', 'http.client',"
        " 'ssl', 'hashlib', 'random', 'email', 'shutil', 'inspect'}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True
    )
    assert done.stdout == b"[]\n"


def test_wrong_arguments_are_answered_with_the_usage(archive: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(archive), "what"], capture_output=True, check=False
    )
    assert done.returncode == 2 and b"usage:" in done.stderr


def rank(number: int, state: str, finish: str = "all", index: int | None = None) -> Rank:
    """`state`: running, ok, bad, ended (by us)."""
    member = Member(
        {"role": "r", "index": number if index is None else index, "nproc": 1, "command": ["x"]}
    )
    made = Rank(member, 0, number, finish)
    made.pid = 100 + number
    if state != "running":
        made.ended_ms = number
        made.exit = 0 if state == "ok" else 1
        made.ended_by = "worker" if state == "ended" else "itself"
    return made


@pytest.mark.parametrize(
    ("ranks", "nodes", "word"),
    [
        ([rank(0, "running"), rank(1, "running")], 1, verdict.GO_ON),
        ([rank(0, "ok"), rank(1, "running")], 1, verdict.GO_ON),
        ([rank(0, "ok"), rank(1, "ok")], 3, verdict.OVER),
        ([rank(0, "ok"), rank(1, "bad")], 1, verdict.FAILED),
        ([rank(0, "ok"), rank(1, "running", "never")], 1, verdict.OVER),
        ([rank(0, "ok"), rank(1, "running", "never")], 2, verdict.DECIDED),
        ([rank(1, "running", "never")], 2, verdict.GO_ON),
        ([rank(0, "ok", "first"), rank(1, "running", "first")], 1, verdict.OVER),
        ([rank(0, "running", "first"), rank(1, "ok", "first")], 1, verdict.GO_ON),
        ([rank(0, "running"), rank(1, "bad", "never")], 1, verdict.FAILED),
        ([rank(0, "ok"), rank(1, "ended", "never")], 1, verdict.OVER),
    ],
)
def test_the_verdict_follows_from_the_ranks(ranks: list[Rank], nodes: int, word: str) -> None:
    assert verdict.judge(ranks, nodes)[0] == word


def test_the_first_failure_is_the_one_that_ended_first() -> None:
    assert verdict.judge([rank(2, "bad"), rank(1, "bad")], 1)[1].number == 1  # type: ignore[union-attr]


def test_the_last_traceback_is_found_with_its_error_and_bounded() -> None:
    first = b"Traceback (most recent call last):\n  File 'a'\nKeyError: 1\n"
    last = (
        b"Traceback (most recent call last):\n  File 'b'\n    x = "
        + b"y" * 9000
        + b"\nOSError: 2\n"
    )
    afterwards = b"[W1119 20:41:01.1 ProcessGroup.cpp:1] afterwards\n"
    found = record.traceback_in(first + b"noise\n" + last + afterwards)
    assert found is not None
    assert found.endswith("OSError: 2") and len(found) == record.TRACEBACK_BYTES
    assert record.traceback_in(b"nothing here") is None
