"""Ranks that are started again while the others go on, as the worker alone sees it."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from worker_lab import Lab

from windlass.worker import verdict
from windlass.worker.launch import Member
from windlass.worker.losses import Respawn
from windlass.worker.ranks import Rank

RULES: dict[str, Any] = {
    "times": 2, "on": ["lost", "signal"], "never": [], "backoff_ms": 1000, "backoff_cap_ms": 1500,
}  # fmt: skip


def failed(exit: int | None = None, signal: int | None = None, restarts: int = 0) -> Rank:
    made = Rank(Member({"role": "worker", "index": 0, "nproc": 1, "command": ["x"]}), 0, 0, "all")
    made.pid, made.ended_ms, made.exit, made.signal = 100, 1, exit, signal
    made.restarts = restarts
    return made


@pytest.mark.parametrize(
    ("rules", "rank", "matched", "pause"),
    [
        ({}, failed(signal=9), None, 1.0),
        ({}, failed(signal=9, restarts=1), None, 1.5),
        ({}, failed(signal=9, restarts=2), None, None),
        ({}, failed(exit=137), None, 1.0),
        ({}, failed(exit=1), None, None),
        ({"on": ["exit:1"]}, failed(exit=1), None, 1.0),
        ({"on": ["failed"], "never": ["exit:1"]}, failed(exit=1), None, None),
        ({"on": ["log:CUDA"]}, failed(exit=1), ["CUDA"], 1.0),
        ({"on": ["log:CUDA"], "never": ["log:ECC"]}, failed(exit=1), ["CUDA", "ECC"], None),
        ({"on": ["log:CUDA"]}, failed(exit=1), None, None),
    ],
)
def test_the_rules_for_tries_say_who_is_started_again_and_when(
    rules: dict[str, Any], rank: Rank, matched: list[str] | None, pause: float | None
) -> None:
    assert Respawn({**RULES, **rules}).pause(rank, matched or [], chance=1.0) == pause


def test_one_that_awaits_its_return_or_was_given_up_ends_nothing() -> None:
    awaits, gone, runs = failed(signal=9), failed(exit=1), failed()
    awaits.again_at, gone.given_up = 5.0, True
    runs.ended_ms = None
    assert verdict.judge([awaits, gone, runs], 1) == (verdict.GO_ON, None)
    well = failed(exit=0)
    assert verdict.judge([awaits, well], 1) == (verdict.GO_ON, None)
    assert verdict.judge([gone, well], 1) == (verdict.OVER, None)
    assert verdict.at_the_end([gone, well])[0] == "succeeded"
    assert verdict.at_the_end([gone]) == ("failed", "worker-0-0 ended with exit code 1", gone)


LIVES = """
import fcntl, os, signal, subprocess, time
again = os.environ.get("WINDLASS_RESTART")
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("life", again, flush=True)
if again is None:
    command = ["sleep", "600"]
    subprocess.Popen(command, start_new_session=True, pass_fds=[lock.fileno()])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_rank_left_behind_is_gone_before_it_is_started_again(lab: Lab) -> None:
    """Its first life leaves a child in a session of its own that holds a lock; its second takes
    the lock."""
    worker = lab.worker(LIVES, respawn={**RULES, "backoff_ms": 100})
    record = worker.start().end()
    assert record["outcome"] == "succeeded", (record, worker.logs("worker-0-0.err"))
    (rank,) = record["ranks"]
    assert (rank["restarts"], rank["given_up"], rank["first_loss"]["signal"]) == (1, False, 9)
    assert worker.logs() == b"life None\nlife 1\n"
    notes = [note for _, path, body in lab.plane.calls if path == "beat" for note in body["notes"]]
    assert [note["kind"] for note in notes] == ["rank-lost", "rank-back"]
    assert worker.pids() == []


def test_the_others_keep_their_lives_and_their_output(lab: Lab) -> None:
    code = (
        "import os, signal, sys, time\n"
        "again = os.environ.get('WINDLASS_RESTART')\n"
        "print('life', again, flush=True)\n"
        "if os.environ['WINDLASS_RANK'] == '1' and again != '2':\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "while not os.path.exists('go') and os.environ['WINDLASS_RANK'] == '0':\n"
        "    time.sleep(0.01)\n"
        "open('go', 'w')\n"
    )
    worker = lab.worker(code, nproc=2, respawn={**RULES, "backoff_ms": 50})
    record = worker.start().end()
    assert record["outcome"] == "succeeded"
    assert [rank["restarts"] for rank in record["ranks"]] == [0, 2]
    assert worker.logs("worker-0-0.out") == b"life None\n"
    assert worker.logs("worker-0-1.out") == b"life None\nlife 1\nlife 2\n"


def test_a_worker_that_dies_in_the_pause_leaves_nobody_and_starts_nobody(lab: Lab) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    worker = lab.worker(code, respawn={**RULES, "backoff_ms": 60_000, "backoff_cap_ms": 60_000})
    worker.start()
    lab.plane.wait_for("beat", where=lambda body: bool(body["notes"]))
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.process is not None
    worker.process.wait(60)
    assert worker.reap() == 0
    assert worker.record()["outcome"] == "lost"
    worker.start().end()  # it finds the record, and leaves
    assert worker.pids() == []


def test_where_a_training_meets_is_carried_in_the_archive(archive: Path, tmp_path: Path) -> None:
    """The worker's own Python may be old, and has nothing of ours but the archive."""
    import windlass.train.comm as comm

    for name in ("gathering.py", "wire.py"):
        source = (Path(comm.__path__[0]) / name).read_text()
        for node in ast.walk(ast.parse(source, feature_version=(3, 8))):
            if isinstance(node, ast.ImportFrom):
                top = (node.module or "").split(".")[0]
                known = node.module in ("windlass.train.comm", "__future__")
                assert known or top in sys.stdlib_module_names, node.module
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "import socket\n"
        "from windlass.worker.services.meeting_place import MeetingPlace\n"
        "place = MeetingPlace(socket.create_server(('127.0.0.1', 0)).detach(), 'token')\n"
        "place.stop()\n"
        "print('windlass.train' in sys.modules, 'torch' in sys.modules)\n"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "True False\n"
