"""What the command line says is true where one looks: why a job waits, when, in what order."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.testing.platform import Platform, wait_for


@pytest.fixture(scope="module")
def one_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(
        tmp_path_factory.mktemp("one") / "home", "--fake-nodes", "1", "--fake-gpus", "1"
    ) as platform:
        yield platform


def test_a_waiting_job_says_why_and_when_in_run_ps_and_show(one_gpu: Platform) -> None:
    gate = one_gpu.gate("until")
    holds = one_gpu.witness("until", gate, name="holds", roles={"worker": {"gpus": 1}})
    one_gpu.wait_state(holds, "running")
    command = [sys.executable, "-m", "windlass.cli.main", "run", "--gpus", "1", "--name", "waits"]
    run = subprocess.Popen(
        [*command, "--", "true"], env=one_gpu.env, cwd=one_gpu.home.parent,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stderr is not None
    told = next(line for line in run.stderr if "waits waits:" in line)
    assert "needs 1 GPU" in told and "(start unknown)" in told  # no limit, no earlier run

    shown = json.loads(one_gpu.cli("show", "waits", "-o", "json").stdout)
    assert "needs 1 GPU" in shown["waits"] and shown["expected_start"] is None
    assert "needs 1 GPU" in one_gpu.cli("show", "waits").stdout
    narrow = one_gpu.cli("ps", env={**one_gpu.env, "COLUMNS": "80"}).stdout
    assert "needs 1 GPU" in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    for words in (("queue", "show"), ("top",), ("show", "waits")):
        out = one_gpu.cli(*words, env={**one_gpu.env, "COLUMNS": "80"}).stdout
        assert max(map(len, out.splitlines())) <= 80, words
    assert "unknown" in one_gpu.cli("why", "waits").stdout
    gate.touch()
    assert run.wait(60) == 0
    run.stderr.close()


def test_an_expected_start_rests_on_a_limit(one_gpu: Platform) -> None:
    gate = one_gpu.gate("limited")
    holds = one_gpu.witness(
        "until", gate, name="limited", roles={"worker": {"gpus": 1}}, limits={"time": "1h"}
    )
    one_gpu.wait_state(holds, "running")
    behind = one_gpu.submit("true", roles={"worker": {"gpus": 1}})
    found = wait_for(lambda: one_gpu.client.jobs.get(behind.id).expected_start)
    assert found > (holds.submitted or "")
    gate.touch()
    assert one_gpu.wait(behind).state == "succeeded"


def test_run_with_json_prints_json_alone_and_the_newest_job_is_meant(
    one_gpu: Platform, tmp_path: Path
) -> None:
    (tmp_path / "says.py").write_text("print('said')\n")
    done = one_gpu.cli("run", "--name", "says", "-o", "json", "says.py", cwd=tmp_path)
    assert json.loads(done.stdout)["name"] == "says"
    assert "said" in done.stderr
    for words in (("show",), ("why",), ("logs",), ("wait",)):
        out = one_gpu.cli(*words, "-o", "json")
        assert out.returncode == 0, out.stderr
    assert one_gpu.cli("logs").stdout == "said\n"
    assert one_gpu.cli("rerun", "-q").returncode == 0
    module = subprocess.run(
        [sys.executable, "-m", "windlass", "version"], capture_output=True, text=True, check=True
    )
    assert module.stdout.strip()


def test_what_an_attempt_wrote_comes_before_the_word_that_it_is_over(one_gpu: Platform) -> None:
    script = "import os, sys; print('try ' + os.environ['WINDLASS_ATTEMPT']); sys.exit(3)"
    job = one_gpu.submit(
        [sys.executable, "-c", script], retry={"times": 1, "on": ["exit:3"], "backoff": "1s"}
    )
    seen = []
    for message in one_gpu.client.jobs.stream(job.id):
        if message.event == "log":
            seen.append(message.json()["text"].strip())
        elif message.event == "event" and message.json()["kind"] == "moved":
            seen.append(message.json()["state"])
    ends = [word for word in seen if word and word not in ("starting", "running")]
    assert ends == ["try 1", "queued", "try 2", "failed"]


def test_without_a_server_every_command_exits_with_105(tmp_path: Path) -> None:
    platform = Platform(tmp_path / "none")
    platform.home.mkdir()
    with_port = {**platform.env, "WINDLASS_URL": "http://127.0.0.1:9"}
    for words in (("ps",), ("logs",), ("status",)):
        assert platform.cli(*words, env=with_port).returncode == 105, words


def test_both_streams_come_in_the_order_they_were_written(one_gpu: Platform) -> None:
    script = (
        "import sys, time\n"
        "for n in range(3):\n"
        "    print('out', n, flush=True); time.sleep(0.15)\n"
        "    print('err', n, file=sys.stderr, flush=True); time.sleep(0.15)\n"
    )
    job = one_gpu.submit([sys.executable, "-c", script])
    one_gpu.wait(job)
    both = one_gpu.cli("logs", job.id, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       capture_output=False).stdout  # fmt: skip
    assert both.split("\n")[:6] == ["out 0", "err 0", "out 1", "err 1", "out 2", "err 2"]
    assert one_gpu.cli("logs", "--stderr", job.id).stderr == "err 0\nerr 1\nerr 2\n"
