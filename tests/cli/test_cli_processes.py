"""With real processes: starting and stopping a server, Ctrl-C once and twice, a closed pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from standin import Call, StandIn

from windlass.cli import local
from windlass.core.errors import Internal, Unavailable
from windlass.worker.ports import HeldPorts

STANDIN = Path(__file__).parent / "standin.py"


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


@pytest.fixture
def started(home: Path) -> Iterator[local.Server]:
    found = local.start([sys.executable, str(STANDIN), "--home", str(home)])
    yield found
    try:
        local.stop(found)
    finally:
        assert not psutil.pid_exists(found.pid)


def test_a_server_is_started_apart_found_again_and_stopped(started: local.Server) -> None:
    assert local.find() == started
    assert os.getsid(started.pid) != os.getsid(0), "a closed terminal does not end it"
    local.stop(started)
    assert local.find() is None


def test_a_server_that_dies_at_its_start_shows_its_last_words(home: Path) -> None:
    with pytest.raises(Internal, match="the disk is on fire") as caught:
        local.start([sys.executable, str(STANDIN), "--home", str(home), "--fail"])
    assert "server.log" in caught.value.hint


def test_a_left_over_file_is_not_a_server(home: Path) -> None:
    (home / "server.json").write_text('{"pid": 1, "url": "http://127.0.0.1:9"}')
    assert local.find() is None


def test_a_pid_used_again_by_a_stranger_is_never_stopped(
    home: Path, server: StandIn, cli: Call
) -> None:
    """Once `down` believed a left-over file because another home's server had its port."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        about = {"pid": stranger.pid, "start_time": 1, "boot_id": "", "url": server.url}
        (home / "server.json").write_text(json.dumps(about))
        assert local.find() is None
        assert "nothing to stop" in cli("down").err
        assert stranger.poll() is None
        stranger.communicate(b"\n", timeout=60)


def test_up_is_harmless_when_up_and_down_when_down(started: local.Server, cli: Call) -> None:
    up = cli("up")
    assert up.code == 0 and started.url in up.out and "was up already" in up.out
    assert "this machine: 2 CPU" in up.out
    down = cli("down")
    assert down.code == 0 and "stopped the server" in down.err
    again = cli("down")
    assert again.code == 0 and "nothing to stop" in again.err


@pytest.fixture
def hanging(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[local.Server]:
    """A true server that was stopped in its tracks."""
    found = local.start(local.command({"port": 0}))
    try:
        os.kill(found.pid, signal.SIGSTOP)
        monkeypatch.setattr(local, "ANSWER_SECONDS", 1.0)
        yield found
    finally:
        local.end_by_force(found)
        until(lambda: not psutil.pid_exists(found.pid))


def test_a_server_that_hangs_is_not_one_that_is_away(hanging: local.Server, cli: Call) -> None:
    for words in (["down"], ["status"], ["up", "--port", "0"]):
        told = cli(*words)
        assert told.code == 105, (words, told)
        assert f"pid {hanging.pid}" in told.err and "has not answered" in told.err
        assert "windlass down --force" in told.err and f"kill -CONT {hanging.pid}" in told.err
    with pytest.raises(Unavailable, match="has not answered"):
        local.start(local.command({"port": 0}))  # as `run` would
    assert "down --force" in cli("doctor").out
    refused = cli("down", "--kill", "--force")
    assert refused.code == 2 and "stops no jobs" in refused.err
    assert psutil.pid_exists(hanging.pid), "words end nothing"
    forced = cli("down", "--force")
    assert forced.code == 0 and f"pid {hanging.pid}" in forced.err
    assert not psutil.pid_exists(hanging.pid)
    assert "nothing to stop" in cli("down", "--force").err


def test_force_ends_our_server_and_nobody_else(home: Path, cli: Call) -> None:
    """A pid that was used again, in a note that a killed server left behind."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        note = {"pid": stranger.pid, "start_time": 1, "boot_id": "", "url": "http://127.0.0.1:9"}
        (home / "server.json").write_text(json.dumps(note))
        assert "nothing to stop" in cli("down", "--force").err
        local.end_by_force(local.Server(stranger.pid, note["url"], "", home, answers=False))
        assert stranger.poll() is None
        stranger.communicate(b"\n", timeout=60)


def test_run_starts_the_server_of_this_machine_when_it_is_not_up(
    cli: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [sys.executable, str(STANDIN), "--home", str(home)]
    monkeypatch.setattr(local, "command", lambda settings: words)
    try:
        done = cli("submit", "-q", "--", "true")
        assert done.code == 0 and len(done.out.strip()) == 32
    finally:
        server = local.find()
        assert server is not None
        local.stop(server)


def follower(server: StandIn, job: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "windlass.cli.main", "logs", "-f", job]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def test_ctrl_c_detaches_and_says_how_to_come_back(server: StandIn) -> None:
    job = server.job("running")
    server.say(job["id"], "log", {"rank": "worker-0-0", "stream": "out", "text": "tick\n"})
    with follower(server, job["id"]) as process:
        assert process.stdout is not None and process.stdout.readline() == "tick\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 101
    assert f"windlass logs -f {job['name']}" in err and f"windlass stop {job['name']}" in err
    assert job["state"] == "running"
    server.finish(job["id"], "succeeded")


def test_ctrl_c_twice_stops_the_job(server: StandIn) -> None:
    job = server.job("running")
    server.say(job["id"], "log", {"rank": "worker-0-0", "stream": "out", "text": "tick\n"})
    with follower(server, job["id"]) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "tick\n"
        process.send_signal(signal.SIGINT)
        for line in process.stderr:
            if "stop:" in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 103
    assert job["state"] == "cancelled" and job["reason"] == "Ctrl-C"


def test_a_reader_that_goes_away_ends_us_without_a_word(server: StandIn) -> None:
    job = server.job("succeeded")
    line = {"rank": "worker-0-0", "stream": "out", "at": "", "offset": 0, "text": "x" * 1000}
    server.lines = [line] * 2000
    words = [sys.executable, "-m", "windlass.cli.main", "logs", job["id"]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_the_demo_trains_over_two_real_processes(tmp_path: Path) -> None:
    script = Path(local.__file__).parent / "demos" / "train.py"
    held = HeldPorts(1)  # nobody else is given it before rank 0 listens there
    port = str(held.numbers[0])
    base = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "HOME": "/"}
    with ExitStack() as stack:
        stack.callback(held.close)
        ranks = []
        for rank in range(2):
            process = subprocess.Popen(
                [sys.executable, str(script)],
                env={**base, "RANK": str(rank)}, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            ranks.append(stack.enter_context(process))
            stack.callback(process.kill)
        outs = [process.communicate(timeout=60)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0]
    assert outs[0] == outs[1], "every worker has the same loss"
    losses = [float(line.split("loss=")[1]) for line in outs[0].splitlines()]
    assert losses[-1] < losses[0] / 2
