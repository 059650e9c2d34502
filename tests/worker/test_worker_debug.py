"""Looking into ranks: the hang watch, stacks, profiles, a debugger."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from worker_lab import Lab, until

from windlass.worker.hang import Hang, HangWatch, Sample

HANG = """
import time
def stuck_here():
    print("up", flush=True)
    time.sleep(600)
stuck_here()
"""


def hung_note(lab: Lab) -> dict[str, Any]:
    def has_note(body: Any) -> bool:
        return any(note["kind"] == "hung" for note in body["notes"])

    body = lab.plane.wait_for("beat", where=has_note)
    found: dict[str, Any] = body["notes"][0]
    return found


def test_a_silent_gang_is_reported_with_every_stack(lab: Lab) -> None:
    worker = lab.worker(HANG, nproc=2, idle_ms=5000).start()  # both have begun by then
    note = hung_note(lab)
    assert [each["rank"] for each in note["stacks"]] == [0, 1]
    assert all("stuck_here" in each["text"] for each in note["stacks"])
    assert note["idle_ms"] >= 5000
    assert worker.process is not None and worker.process.poll() is None, "it is only reported"


def test_a_hung_gang_is_ended_when_the_job_says_restart(lab: Lab) -> None:
    worker = lab.worker(HANG, idle_ms=500, on_idle="restart").start()
    record = worker.end()
    assert record["outcome"] == "hung"
    assert "rank 0 made no progress" in record["reason"]
    hung_note(lab)


def test_a_stopped_rank_is_found_while_the_other_goes_on(lab: Lab) -> None:
    code = "import os, time\nwhile True: print('step', flush=True); time.sleep(0.05)"
    worker = lab.worker(code, nproc=2, idle_ms=5000, on_idle="restart").start()
    pid = lab.plane.wait_for("started")["ranks"][1]["pid"]
    until(lambda: worker.logs("worker-0-1.out"))
    os.kill(pid, signal.SIGSTOP)
    record = worker.end()
    assert record["outcome"] == "hung"
    assert hung_note(lab)["rank"] == 1


def answer(lab: Lab, **order: Any) -> dict[str, Any]:
    lab.plane.order(**order)
    number = len(lab.plane.orders)
    found: dict[str, Any] = lab.plane.wait_for(f"orders/{number}")
    return found


def test_a_stack_is_read_without_py_spy_through_the_hook(lab: Lab, tmp_path: Path) -> None:
    """A worker whose Python and PATH have no py-spy."""
    worker = lab.worker(HANG)
    python = Path(os.path.realpath(sys.executable))
    worker.start(python=str(python))
    until(lambda: b"up" in worker.logs())
    if (python.parent / "py-spy").exists():
        pytest.skip("py-spy lies beside the base Python")
    found = answer(lab, kind="stack")
    assert found["ok"] and "stuck_here" in found["result"]["ranks"][0]["text"]


def test_the_hook_leaves_the_sitecustomize_of_the_user_alone(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("import sys; sys.mine = True\n")
    worker = lab.worker(
        "import sys; print(sys.mine, [p for p in sys.path if 'debug' in p])",
        vars={"PYTHONPATH": str(tmp_path / "mine")},
    ).start()
    assert worker.end()["outcome"] == "succeeded"
    assert worker.logs() == b"True []\n"
    assert list((worker.directory / "debug" / "ranks").glob("stack-*")) == []


def test_a_program_that_is_no_python_survives_being_asked(lab: Lab) -> None:
    worker = lab.worker(["sleep", "600"]).start()
    found = answer(lab, kind="stack")
    assert found["ok"] and "no Python stack" in found["result"]["ranks"][0]["text"]
    assert worker.process is not None and worker.process.poll() is None


def test_a_profile_is_a_flame_graph(lab: Lab) -> None:
    code = (
        "print('up', flush=True)\ndef busy_here():\n    while True: sum(range(1000))\nbusy_here()"
    )
    worker = lab.worker(code).start()
    until(lambda: b"up" in worker.logs())
    found = answer(lab, kind="profile", seconds=1)
    assert found["ok"], found
    assert "<svg" in found["result"]["ranks"][0]["svg"]
    assert "busy_here" in found["result"]["ranks"][0]["svg"]


def test_a_debugger_can_be_attached_to_a_rank_that_runs(lab: Lab) -> None:
    pytest.importorskip("debugpy")
    code = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.05)"
    worker = lab.worker(code).start()
    until(lambda: b"up" in worker.logs())
    found = answer(lab, kind="attach")
    assert found["ok"], found
    assert found["result"]["ranks"][0]["host"] == "127.0.0.1"
    assert found["result"]["ranks"][0]["port"] > 0


def test_a_missing_debugger_is_named_with_its_extra(lab: Lab) -> None:
    code = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.05)"
    python = os.path.realpath(sys.executable)
    if subprocess.run([python, "-c", "import debugpy"], capture_output=True).returncode == 0:
        pytest.skip("the base Python has debugpy")
    worker = lab.worker([python, "-c", code]).start()
    until(lambda: b"up" in worker.logs())
    found = answer(lab, kind="attach")
    assert not found["ok"] and "windlass[debug]" in found["result"]["error"]


def test_a_signal_reaches_every_rank(lab: Lab) -> None:
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('got it', flush=True))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.05)"
    )
    worker = lab.worker(code, nproc=2).start()
    until(lambda: b"up" in worker.logs() and b"up" in worker.logs("worker-0-1.out"))
    lab.plane.order(kind="signal", number=int(signal.SIGUSR1))
    until(lambda: b"got it" in worker.logs() and b"got it" in worker.logs("worker-0-1.out"))


def sample(rank: int, evidence: int, cpu_ms: int, serves: bool = False) -> Sample:
    return Sample(rank, evidence, cpu_ms, serves)


def test_a_rank_that_only_computes_is_not_hung_while_another_prints() -> None:
    watch = HangWatch(10)
    for now in range(100):
        assert watch.look([sample(0, now, 0), sample(1, 0, now * 900)], now) is None


def test_silence_of_all_is_a_hang_told_once_until_it_moves_again() -> None:
    watch = HangWatch(10)
    busy = [[sample(0, 0, now * 900), sample(1, 0, now * 900)] for now in range(100)]
    told = [now for now in range(100) if watch.look(busy[now], now)]
    assert told == [10]
    moved = [sample(0, 1, 0), sample(1, 1, 0)]
    assert watch.look(moved, 100) is None
    assert watch.look(moved, 110) == Hang(0, 10, False)


def test_a_server_that_waits_for_work_is_not_hung() -> None:
    watch = HangWatch(10)
    for now in range(100):
        assert watch.look([sample(0, 0, 0, serves=True)], now) is None
