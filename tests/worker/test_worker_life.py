"""An attempt's life on one node: start, success, failure, signals, the end."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from worker_lab import Lab, until

TRAP = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(1); os.close(2)
        open(os.environ['WINDLASS_OUTPUT_DIR'] + '/daemon', 'w').write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(os.environ['WINDLASS_OUTPUT_DIR'] + '/daemon'): time.sleep(0.01)
"""


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def groups_of(lab: Lab) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/windlass-{lab.attempt_id}-*"))


def test_two_ranks_succeed_and_their_record_says_so(lab: Lab) -> None:
    worker = lab.worker("import os; print('hello', os.environ['WINDLASS_RANK'])", nproc=2).start()
    record = worker.end()
    assert record["outcome"] == "succeeded", (record, worker.words())
    assert [(rank["rank"], rank["exit"], rank["ended_by"]) for rank in record["ranks"]] == [
        (0, 0, "itself"),
        (1, 0, "itself"),
    ]
    assert worker.logs("worker-0-0.out") == b"hello 0\n"
    assert worker.logs("worker-0-1.out") == b"hello 1\n"
    assert lab.plane.wait_for("ended")["record"] == record
    started = lab.plane.wait_for("started")
    assert [rank["rank"] for rank in started["ranks"]] == [0, 1]
    assert json.loads((worker.directory / "worker.json").read_text())["pid"] == worker.pid
    assert worker.pids() == []
    assert groups_of(lab) == []


def test_a_failing_rank_ends_the_others_and_its_traceback_is_kept(lab: Lab) -> None:
    code = (
        "import os, time\n"
        "if os.environ['WINDLASS_RANK'] == '0': time.sleep(600)\n"
        "raise ValueError('no such luck')"
    )
    record = lab.worker(code, nproc=2).start().end()
    assert record["outcome"] == "failed"
    assert record["first_failure"] == {
        "rank": 1,
        "role": "worker",
        "index": 0,
        "exit": 1,
        "signal": None,
    }
    first, second = record["ranks"]
    assert (first["ended_by"], first["signal"]) == ("worker", signal.SIGTERM)
    assert second["traceback"].startswith("Traceback (most recent call last):")
    assert second["traceback"].endswith("ValueError: no such luck")
    assert "worker-0-1 ended with exit code 1" in record["reason"]


def test_a_killed_rank_is_a_failure_by_its_signal(lab: Lab) -> None:
    worker = lab.worker("import time; time.sleep(600)", nproc=2).start()
    pid = lab.plane.wait_for("started")["ranks"][1]["pid"]
    os.kill(pid, signal.SIGKILL)
    record = worker.end()
    assert record["outcome"] == "failed"
    assert record["first_failure"]["signal"] == signal.SIGKILL
    assert record["first_failure"]["rank"] == 1


def test_a_missing_command_is_refused_with_its_name(lab: Lab) -> None:
    record = lab.worker(["no-such-command", "x"]).start().end()
    assert (record["outcome"], record["reason"]) == (
        "refused",
        "command not found: no-such-command",
    )


def test_a_killed_worker_takes_its_ranks_along(lab: Lab) -> None:
    worker = lab.worker(TRAP + "import time; time.sleep(600)", nproc=2).start()
    pids = [rank["pid"] for rank in lab.plane.wait_for("started")["ranks"]]
    worker.process.kill()  # type: ignore[union-attr]
    until(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.parametrize("cgroups", [True, False])
def test_reap_ends_a_daemon_that_escaped_and_writes_the_lost_record(
    lab: Lab, cgroups: bool
) -> None:
    worker = lab.worker(DAEMON + "time.sleep(600)", cgroups=cgroups).start()
    daemon = int(until(lambda: _text(worker.directory / "out" / "daemon")))
    assert worker.reap() == 3, "the worker lives: reap must refuse"
    worker.process.kill()  # type: ignore[union-attr]
    worker.process.wait()  # type: ignore[union-attr]
    assert alive(daemon)
    assert worker.reap() == 0
    assert not alive(daemon)
    assert worker.record()["outcome"] == "lost"
    assert worker.pids() == []
    assert groups_of(lab) == []


HIDDEN = """
import os, sys, time
out = os.environ['WINDLASS_OUTPUT_DIR'] + '/hidden'
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir('/')
        os.closerange(0, 64)
        code = "import os,time; open(%r, 'w').write(str(os.getpid())); time.sleep(600)" % out
        os.execve(sys.executable, [sys.executable, '-c', code], {})
    os._exit(0)
os.wait()
time.sleep(600)
"""


@pytest.mark.parametrize("worker_dies", ["while it runs", "while it starts"])
def test_reap_finds_a_daemon_with_no_group_session_parent_or_environment_of_its_rank(
    lab: Lab, worker_dies: str
) -> None:
    """As `daemon(3)` and an empty environment make one; there is no cgroup either."""
    worker = lab.worker(HIDDEN, cgroups=False).start()
    hidden = int(until(lambda: _text(worker.directory / "out" / "hidden")))
    if worker_dies == "while it starts":  # the ranks were not written down yet
        path = worker.directory / "processes.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "ranks": []}))
    isolation = lab.plane.wait_for("register")["isolation"]
    assert isolation["remains"] == "found by mark; not proven"
    worker.process.kill()  # type: ignore[union-attr]
    worker.process.wait()  # type: ignore[union-attr]
    assert alive(hidden)
    assert Path(f"/proc/{hidden}/environ").read_bytes() == b""
    assert worker.reap() == 0
    assert not alive(hidden)
    assert worker.record()["survivors"] == []


def started_on(lab: Lab, node: str) -> int:
    started = lab.plane.wait_for("started", where=lambda body: bool(body["node"] == node))
    return int(started["ranks"][0]["pid"])


def test_reap_spares_another_node_of_the_same_attempt(lab: Lab) -> None:
    lab.plane.nodes = 2
    one = lab.worker("import time; time.sleep(600)", node="n0").start()
    member = {
        "role": "worker",
        "index": 1,
        "nproc": 1,
        "command": [sys.executable, "-c", "import time; time.sleep(600)"],
    }
    two = lab.worker("", node="n1", members=[member]).start()
    pids = {node: started_on(lab, node) for node in ("n0", "n1")}
    one.process.kill()  # type: ignore[union-attr]
    one.process.wait()  # type: ignore[union-attr]
    one.reap()
    assert not alive(pids["n0"])
    assert alive(pids["n1"])
    lab.plane.order(kind="end", grace_ms=0, reason="enough", outcome="cancelled")
    assert two.end()["outcome"] == "cancelled"


@pytest.mark.parametrize("cgroups", [True, False])
def test_a_daemon_does_not_outlive_the_attempt(lab: Lab, cgroups: bool) -> None:
    worker = lab.worker(DAEMON, cgroups=cgroups).start()
    record = worker.end()
    assert (record["outcome"], record["survivors"]) == ("succeeded", [])
    assert not alive(int(_text(worker.directory / "out" / "daemon")))


def test_a_rank_that_ignores_the_warning_is_killed_after_the_grace(lab: Lab) -> None:
    code = TRAP + "import time; print('deaf', flush=True); time.sleep(600)"
    worker = lab.worker(code).start()
    until(lambda: b"deaf" in worker.logs())
    began = time.monotonic()
    lab.plane.order(kind="end", grace_ms=700, reason="cancelled by ada", outcome="cancelled")
    record = worker.end()
    assert 0.6 < time.monotonic() - began
    assert (record["outcome"], record["reason"]) == ("cancelled", "cancelled by ada")
    assert record["ranks"][0]["signal"] == signal.SIGKILL
    assert record["ranks"][0]["ended_by"] == "worker"


def test_the_grace_is_long_enough_for_a_child_of_a_shell_to_save(lab: Lab) -> None:
    saver = (
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(0.5)\n"
        "    open(os.environ['WINDLASS_OUTPUT_DIR'] + '/saved', 'w').close()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    shell = ["sh", "-c", f'{sys.executable} -c "$0"; true', saver]
    worker = lab.worker(shell, grace_ms=10_000).start()
    until(lambda: b"ready" in worker.logs())
    lab.plane.order(kind="end", grace_ms=None, reason="preempted", outcome="preempted")
    assert worker.end()["outcome"] == "preempted"
    assert (worker.directory / "out" / "saved").exists()


def test_a_terminated_worker_ends_its_ranks_with_grace(lab: Lab) -> None:
    worker = lab.worker("import time; time.sleep(600)").start()
    lab.plane.wait_for("started")
    os.kill(worker.pid, signal.SIGTERM)
    record = worker.end()
    assert record["outcome"] == "cancelled"
    assert record["ranks"][0]["signal"] == signal.SIGTERM


def test_a_worker_that_never_reached_the_server_can_be_stopped(lab: Lab) -> None:
    lab.plane.stop()
    worker = lab.worker("pass").start()
    until(lambda: (worker.directory / "processes.json").exists())
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.end()["outcome"] == "cancelled"


def test_a_fenced_worker_kills_its_ranks(lab: Lab) -> None:
    worker = lab.worker(TRAP + "import time; time.sleep(600)", grace_ms=600_000).start()
    pid = lab.plane.wait_for("started")["ranks"][0]["pid"]
    lab.plane.fenced = True
    record = worker.end()
    assert record["outcome"] == "lost"
    assert record["reason"].startswith("fenced")
    assert not alive(pid)


def test_a_worker_whose_lease_is_over_fences_itself(lab: Lab) -> None:
    worker = lab.worker("import time; time.sleep(600)", lease_seconds=3.0).start()
    lab.plane.wait_for("started")
    lab.plane.stop()
    record = worker.end()
    assert record["outcome"] == "lost"
    assert "lease" in record["reason"]


def test_a_server_that_is_away_costs_no_job_its_end(lab: Lab) -> None:
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"
    worker = lab.worker(code).start()
    lab.plane.wait_for("started")
    lab.plane.stop()
    (worker.directory / "work" / "go").touch()
    assert worker.end()["outcome"] == "succeeded"


def test_a_second_worker_on_the_same_directory_leaves(lab: Lab) -> None:
    worker = lab.worker("import time; time.sleep(600)").start()
    lab.plane.wait_for("started")
    first, worker.process = worker.process, None
    worker.start()
    assert worker.process.wait(60) == 0  # type: ignore[attr-defined]
    assert not (worker.directory / "exit.json").exists()
    worker.process = first
    lab.plane.order(kind="end", grace_ms=0, reason="", outcome="cancelled")
    worker.end()


def test_two_nodes_wait_for_each_other_and_share_one_world(lab: Lab) -> None:
    lab.plane.nodes = 2
    code = "import os; print(os.environ['WINDLASS_RANK'], os.environ['WINDLASS_WORLD_SIZE'])"
    one = lab.worker(code, node="n0", nproc=2).start()
    lab.plane.wait_for("register")
    member = {"role": "worker", "index": 1, "nproc": 1, "command": [sys.executable, "-c", code]}
    two = lab.worker("", node="n1", members=[member]).start()
    assert one.end()["outcome"] == two.end()["outcome"] == "succeeded"
    assert one.logs("worker-0-1.out") == b"1 3\n"
    assert two.logs("worker-1-0.out") == b"2 3\n"


def test_an_end_order_reaches_a_worker_that_waits_for_its_gang(lab: Lab) -> None:
    lab.plane.nodes = 2
    worker = lab.worker("print('never')").start()
    lab.plane.wait_for("rendezvous", where=lambda body: True)
    lab.plane.order(kind="end", grace_ms=1000, reason="stopped", outcome="cancelled")
    record = worker.end()
    assert (record["outcome"], record["ranks"]) == ("cancelled", [])


def test_a_role_that_never_ends_is_ended_with_the_deciding_one(lab: Lab) -> None:
    lab.plane.finish = {"ps": "never"}
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    members = [
        {"role": "worker", "index": 0, "nproc": 1, "command": [sys.executable, "-c", "pass"]},
        {"role": "ps", "index": 0, "nproc": 1, "command": sleep, "finish": "never"},
    ]
    record = lab.worker("", members=members).start().end()
    assert record["outcome"] == "succeeded"
    assert [rank["ended_by"] for rank in record["ranks"]] == ["itself", "worker"]


def test_a_node_whose_deciding_ranks_ended_tells_the_server_and_waits(lab: Lab) -> None:
    lab.plane.nodes = 2
    lab.plane.finish = {"ps": "never"}
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    one = lab.worker("pass", node="n0").start()
    ps = {"role": "ps", "index": 0, "nproc": 1, "command": sleep}
    quick = {"role": "worker", "index": 1, "nproc": 1, "command": [sys.executable, "-c", "pass"]}
    two = lab.worker("", node="n1", members=[ps, quick]).start()
    assert one.end()["outcome"] == "succeeded"
    lab.plane.wait_for("beat", where=lambda body: {"kind": "decided"} in body["notes"])
    ended = {"kind": "rank-ended", "rank": 1, "role": "worker", "index": 1, "local_rank": 0}
    ended.update(exit=0, signal=None)
    lab.plane.wait_for("beat", where=lambda body: ended in body["notes"])
    assert two.process is not None and two.process.poll() is None
    lab.plane.order(kind="end", grace_ms=1000, reason="all done", outcome="succeeded")
    assert two.end()["outcome"] == "succeeded"


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
