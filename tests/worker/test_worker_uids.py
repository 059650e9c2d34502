"""The number of a job's user: claimed, held by a lock, never shared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.worker import uids


def test_live_jobs_never_share_a_user_and_one_job_does(tmp_path: Path) -> None:
    ledger = str(tmp_path)
    first = uids.claim("a" * 32, 300_000, 300_002, ledger)
    second = uids.claim("b" * 32, 300_000, 300_002, ledger)
    again = uids.claim("a" * 32, 300_000, 300_002, ledger)
    third = uids.claim("c" * 32, 300_000, 300_002, ledger)
    assert first.uid == again.uid and len({first.uid, second.uid, third.uid}) == 3
    with pytest.raises(OSError, match="in use"):
        uids.claim("d" * 32, 300_000, 300_002, ledger)
    first.release()
    with pytest.raises(OSError, match="in use"):
        uids.claim("d" * 32, 300_000, 300_002, ledger)
    again.release()
    assert uids.claim("d" * 32, 300_000, 300_002, ledger).uid == first.uid


def test_a_user_is_free_again_when_its_holder_is_killed(tmp_path: Path) -> None:
    words = "from windlass.worker import uids; import sys, time\n"
    words += "print(uids.claim(*sys.argv[1:2], 300000, 300000, sys.argv[2]).uid, flush=True)\n"
    command = [sys.executable, "-c", words + "time.sleep(600)", "a" * 32, str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == b"300000\n"
        with pytest.raises(OSError, match="in use"):
            uids.claim("b" * 32, 300_000, 300_000, str(tmp_path))
        holder.kill()
        holder.wait()
    assert uids.claim("b" * 32, 300_000, 300_000, str(tmp_path)).uid == 300_000


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_user_who_still_has_a_process_is_passed_over(tmp_path: Path) -> None:
    left = subprocess.Popen(["sleep", "600"], user=300_000, cwd="/")
    try:
        assert uids.claim("a" * 32, 300_000, 300_001, str(tmp_path)).uid == 300_001
    finally:
        left.kill()
        left.wait()
