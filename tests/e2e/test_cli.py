"""The command line against a real server, as a user would use it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.testing.platform import Platform, wait_for

WAITS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(
        "import sys\nprint('args', *sys.argv[1:])\nprint('oops', file=sys.stderr)\n"
        "sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)\n"
    )
    (tmp_path / "wait.py").write_text(WAITS)
    return tmp_path


def test_run_passes_on_the_command_its_output_and_its_exit_code(
    shared: Platform, folder: Path
) -> None:
    done = shared.cli("run", "--name", "passing", "train.py", "7", "--lr", "0.1", cwd=folder)
    assert done.returncode == 7
    assert done.stdout == "args 7 --lr 0.1\n"
    assert "oops\n" in done.stderr
    assert "passing failed: it exited with 7" in done.stderr


def test_a_job_runs_where_one_stands_and_says_what_was_not_sent(
    shared: Platform, tmp_path: Path
) -> None:
    mnist = tmp_path / "mnist"
    (tmp_path / "data").mkdir()
    mnist.mkdir()
    (tmp_path / "data/x.txt").write_text("the data")
    (mnist / "main.py").write_text("print(open('../data/x.txt').read())")
    cells = [{"cell_type": "code", "source": "%magic\nprint(open('../data/x.txt').read())"}]
    (mnist / "x.ipynb").write_text(json.dumps({"cells": cells}))
    for words in (["main.py"], ["cat ../data/x.txt && echo"], ["x.ipynb"]):
        done = shared.cli("run", "--code", "..", *words, cwd=mnist)
        assert (done.returncode, done.stdout) == (0, "the data\n"), done.stderr
    alone = shared.cli("run", "--name", "alone", "main.py", cwd=mnist)
    assert alone.returncode == 1
    assert "../data/x.txt lies outside what was sent" in shared.cli("why", "alone").stdout


def test_here_runs_in_the_users_own_folder(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("open('made', 'w').write(open('x.txt').read())")
    (tmp_path / "x.txt").write_text("mine")
    with Platform(tmp_path / "home", "--isolation", "0") as platform:
        done = platform.cli("run", "--here", "main.py", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "made").read_text() == "mine"


def test_submit_wait_logs_show_events(shared: Platform, folder: Path) -> None:
    job_id = shared.cli("submit", "-q", "train.py", cwd=folder).stdout.strip()
    assert len(job_id) == 32
    assert shared.cli("wait", job_id).returncode == 0
    assert shared.cli("logs", "--stdout", job_id).stdout == "args\n"
    assert shared.cli("logs", "-f", "-n", "1", "--stderr", job_id).stderr.startswith("oops")
    shown = json.loads(shared.cli("show", "-o", "json", job_id[:8]).stdout)
    assert (shown["state"], shown["attempts"][0]["outcome"]) == ("succeeded", "succeeded")
    events = json.loads(shared.cli("events", "-o", "json", job_id).stdout)
    assert [event["kind"] for event in events["items"]][0] == "submitted"
    assert job_id in shared.cli("ps", "-a", "-q").stdout


def test_rerun_changes_a_parameter_or_a_flag(shared: Platform, folder: Path) -> None:
    job = shared.cli("submit", "-q", "--param", "lr=1", "--", "train.py", "0", "${lr}", cwd=folder)
    first = job.stdout.strip()
    assert shared.cli("wait", first).returncode == 0
    again = json.loads(shared.cli("rerun", first, "lr=2", "-o", "json").stdout)
    assert shared.cli("wait", again["id"]).returncode == 0
    assert shared.cli("logs", "--stdout", again["id"]).stdout == "args 0 2\n"
    assert again["rerun_of"] == first


def test_apply_a_job_file_with_a_plan_and_a_dry_run(shared: Platform, folder: Path) -> None:
    (folder / "job.yaml").write_text("kind: job\nname: filed\nrun: python3 train.py 0\n")
    tried = shared.cli("apply", "-f", "job.yaml", "--dry-run", cwd=folder)
    assert tried.returncode == 0, tried.stderr
    assert shared.cli("show", "filed").returncode == 102
    assert shared.cli("apply", "-y", "-f", "job.yaml", cwd=folder).returncode == 0
    assert shared.cli("wait", "filed").returncode == 0
    (folder / "bad.yaml").write_text("kind: job\nrun: x\nworkerz: 2\n")
    bad = shared.cli("apply", "-y", "-f", "bad.yaml", cwd=folder)
    assert bad.returncode == 2
    assert "did you mean 'workers'?" in bad.stderr


def test_hold_release_stop_restart_and_rm(shared: Platform, folder: Path) -> None:
    held = shared.cli("submit", "-q", "--hold", "wait.py", cwd=folder).stdout.strip()
    assert "release" in shared.cli("why", held).stdout
    assert shared.cli("release", held).returncode == 0
    shared.wait_state(held, "running")
    wait_for(lambda: "up" in shared.logs(held))
    assert shared.cli("restart", held).returncode == 0
    wait_for(lambda: shared.client.jobs.get(held).attempt == 2)
    shared.wait_state(held, "running")
    assert shared.cli("rm", "-y", held).returncode != 0
    assert shared.cli("stop", "--now", held).returncode == 0
    assert shared.cli("wait", held).returncode == 103
    assert shared.cli("rm", "-y", held).returncode == 0
    assert shared.cli("show", held).returncode == 102


@pytest.mark.parametrize(("presses", "state"), [(1, "running"), (2, "cancelled")])
def test_ctrl_c_detaches_and_twice_stops(
    shared: Platform, folder: Path, presses: int, state: str
) -> None:
    name = f"pressed-{presses}"
    command = [sys.executable, "-m", "windlass.cli.main", "run", "--name", name, "wait.py"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    following = subprocess.Popen(command, env=shared.env, cwd=folder, **pipes)  # type: ignore[call-overload]
    assert following.stdout is not None
    assert following.stdout.readline() == "up\n"
    os.kill(following.pid, signal.SIGINT)
    if presses == 2:
        assert following.stderr is not None
        while "Ctrl-C again" not in following.stderr.readline():
            pass
        os.kill(following.pid, signal.SIGINT)
    _, words = following.communicate(timeout=60)
    if presses == 1:
        assert f"windlass logs -f {name}" in words
        assert following.returncode == 101
        shared.wait_state(name, state)
        shared.client.jobs.stop(name, now=True)
    else:
        assert shared.wait(name).state == state


def test_up_is_harmless_when_up_and_down_leaves_jobs_running(tmp_path: Path, folder: Path) -> None:
    platform = Platform(tmp_path / "own")
    try:
        assert platform.cli("up", "--port", "0").returncode == 0
        first = json.loads(platform.cli("status", "-o", "json").stdout)
        assert platform.cli("up", "--port", "0").returncode == 0
        assert json.loads(platform.cli("status", "-o", "json").stdout)["pid"] == first["pid"]
        job = platform.cli("submit", "-q", "wait.py", cwd=folder).stdout.strip()
        wait_for(lambda: "up" in platform.cli("logs", job).stdout, what="it runs")
        mode = (platform.home / "credentials.json").stat().st_mode & 0o777
        assert mode == 0o600
        assert platform.cli("down").returncode == 0
        assert platform.cli("status", "--url", first["url"]).returncode == 105
        assert platform.cli("up", "--port", "0").returncode == 0
        shown = json.loads(platform.cli("show", "-o", "json", job).stdout)
        assert (shown["state"], shown["attempt"]) == ("running", 1)
        assert platform.cli("stop", "--now", job).returncode == 0
        assert platform.cli("wait", job).returncode == 103
    finally:
        platform.cli("down", "--kill")
        platform.clean()


def on_a_terminal(shared: Platform, *words: str) -> str:
    """What a terminal is sent by a command."""
    mine, its = pty.openpty()
    command = [sys.executable, "-m", "windlass.cli.main", *words]
    with subprocess.Popen(
        command, env={**shared.env, "TERM": "xterm"}, stdin=its, stdout=its, stderr=its
    ) as process:
        os.close(its)
        held = b""
        with contextlib.suppress(OSError):  # EIO: nobody writes any more
            while piece := os.read(mine, 65536):
                held += piece
        process.wait(60)
    os.close(mine)
    return held.decode()


def test_no_order_that_somebody_wrote_reaches_a_terminal(shared: Platform, folder: Path) -> None:
    """The title, the clipboard, a cleared screen: from output, from reasons, from parameters."""
    order = "\x1b]52;c;aGk=\x07\x1b[2J\x9b1m\u202e[red]"
    wrote = f"\x1b[31mred\x1b[0m {order} end\x1b[8mhidden"
    (folder / "orders.py").write_text(f"print({wrote!r}, flush=True)\ninput()\n")
    spec = {"kind": "job", "name": "orders", "params": {"lr": order}}
    (folder / "job.yaml").write_text(json.dumps({**spec, "run": ["python3", "orders.py", order]}))
    done = shared.cli("apply", "-y", "-f", "job.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    shared.wait("orders")
    kept = shared.submit("true", hold=True, name="refused")
    shared.client.jobs.stop(kept.id, reason=f"because {order}")
    shared.wait(kept)
    raw = on_a_terminal(shared, "logs", "--raw", "orders")
    assert order in raw
    seen = on_a_terminal(shared, "logs", "orders")
    assert "\x1b[31mred\x1b[0m" in seen and "end" in seen
    piped = shared.cli("logs", "orders").stdout
    assert piped.rstrip("\n") == wrote, "a pipe passes on every byte"
    shown = [seen, on_a_terminal(shared, "logs", "-f", "orders")]
    for verb in ("why", "show", "events"):
        shown += [on_a_terminal(shared, verb, name) for name in ("orders", "refused")]
    shown += [on_a_terminal(shared, *words) for words in (["ps"], ["queue"], ["ps", "-o", "json"])]
    shown.append(on_a_terminal(shared, "show", "no\x1b[2Jbody"))
    for text in shown:
        left = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert not re.search(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]", left), left
        assert "\x1b[8m" not in text
    because = shared.cli("why", "refused").stdout
    assert "because \\x1b]52" in because and "[red]" in because, "shown, not obeyed"


def test_a_pattern_for_which_re_takes_for_ever_holds_up_neither_job_nor_server(
    shared: Platform, folder: Path
) -> None:
    (folder / "long.py").write_text("import sys\nprint('a' * 200 + '!')\nsys.exit(3)\n")
    rules = ("--retries", "1", "--retry-on", "log:(a+)+b", "--retry-on", "log:(a+)+!$")
    done = shared.cli("run", "--name", "long", *rules, "long.py", cwd=folder)
    assert done.returncode == 3, done.stderr
    assert shared.client.jobs.get("long").attempt == 2, "the second rule was seen"
    assert shared.cli("logs", "--grep", "(a+)+$", "long").stdout == ""
    assert shared.cli("logs", "--grep", "(a+)+!$", "long").stdout.strip() == "a" * 200 + "!"
    followed = shared.cli("logs", "-f", "--grep", "(a+)+!?!?$", "long", timeout=120)
    assert followed.returncode == 3 and followed.stdout.strip() == "a" * 200 + "!"
    assert shared.cli("logs", "-f", "--grep", "(a+)+$", "long", timeout=120).stdout == ""
    for follow in ([], ["-f"]):
        refused = shared.cli("logs", *follow, "--grep", "a(?=b)", "long")
        assert refused.returncode == 2 and "lookahead" in refused.stderr
