"""Tracking without any import, end to end: printed numbers, arguments, usage, offline runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Job
from windlass.core.errors import InvalidInput
from windlass.testing.platform import Platform, wait_for

TRAIN = """
import os, time
for step in range(3):
    print(f"step {step} loss={1 / (step + 1)}", flush=True)
while not os.path.exists(GATE):
    time.sleep(0.02)
print("step 3 loss=0.125")
"""
LOGGING = """
import sys, windlass
for step in range(int(sys.argv[-1])):
    windlass.log(step=step, loss=1 / (step + 1))
windlass.log(step=99, loss=float("nan"))
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("pickup") / "home") as made:
        yield made


def series(platform: Platform, job: Job | str, key: str) -> list[dict[str, Any]]:
    ref = job if isinstance(job, str) else job.id
    found = platform.client.http.get(f"/jobs/{ref}/metrics", {"key": key})["series"]
    return list(found)


def submit(platform: Platform, gate: Path, *words: str, **spec: Any) -> Job:
    code = TRAIN.replace("GATE", repr(str(gate)))
    return platform.submit([sys.executable, "-c", code, *words], **spec)


def test_a_script_that_only_prints_has_curves_parameters_and_usage(platform: Platform) -> None:
    gate = platform.gate("first")
    job = submit(platform, gate, "--lr", "0.1", "--amp")
    wait_for(lambda: series(platform, job, "loss"), 60, "the first points")
    (line,) = series(platform, job, "loss")
    assert line["source"] == "stdout key=value"
    assert [point[::2] for point in line["points"]][:2] == [[0, 1.0], [1, 0.5]]

    def used() -> list[dict[str, Any]]:
        return list(platform.client.http.get(f"/jobs/{job.id}/system")["series"])

    found = wait_for(used, 60, "what it uses")
    assert {"memory_bytes", "node_memory_bytes"} <= {each["key"] for each in found}
    text = scraped(platform)
    assert f'windlass_job_memory_bytes{{job="{job.name}",id="{job.id}",rank="0"}}' in text
    gate.touch()
    assert platform.wait(job).state == "succeeded"
    (line,) = series(platform, job, "loss")
    assert [point[::2] for point in line["points"]] == [[0, 1.0], [1, 0.5], [2, 1 / 3], [3, 0.125]]
    (run,) = platform.client.runs.page(ids=[job.id]).items
    assert run.params["lr"] == {"value": "0.1", "source": "argv"}
    assert run.params["amp"] == {"value": "true", "source": "argv"}


def scraped(platform: Platform) -> str:
    """What Prometheus would get, with a token."""
    token = platform.client.http.call(
        "POST", "/tokens", body={"name": "scrape", "scopes": ["read"], "expires": "1d"}
    )["token"]
    done = subprocess.run(
        ["curl", "-sS", "-H", f"Authorization: Bearer {token}", platform.url + "/metrics"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    bare = subprocess.run(
        ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", platform.url + "/metrics"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert bare.stdout == "401"
    assert "windlass_jobs{" in done.stdout and "# TYPE windlass_node_gpus gauge" in done.stdout
    counted = 'windlass_http_requests_total{route="/api/v1/jobs",method="POST",status="2xx"} '
    assert counted in done.stdout and "windlass_http_request_seconds_bucket{" in done.stdout
    return done.stdout


def test_what_is_asked_of_usage_is_checked(platform: Platform) -> None:
    job = platform.submit([sys.executable, "-c", "pass"])
    platform.wait(job)
    for query in ({"points": 0}, {"from": "yesterday"}, {"rank": "x"}):
        with pytest.raises(InvalidInput):
            platform.client.http.get(f"/jobs/{job.id}/system", query)
    assert platform.client.http.get(f"/jobs/{job.id}/system", {"key": "cpu_percent"}) == {
        "series": []
    }


def test_the_job_file_turns_it_off_and_brings_patterns_of_its_own(platform: Platform) -> None:
    code = "print('a' * 200 + '!'); print('loss=0.5'); print('gen 3 best 12.5')"
    slow = r"(?P<slow>(a+)+)b"  # `re` would try every way to part the first line
    spec = {"pickup": False, "parse": [slow, r"gen (?P<step>\d+) best (?P<best>[0-9.]+)"]}
    job = platform.submit([sys.executable, "-c", code, "--lr", "0.1"], metrics=spec)
    platform.wait(job)
    found = series(platform, job, "best,loss")
    assert [(each["key"], each["source"]) for each in found] == [("best", "stdout pattern")]
    assert found[0]["points"][0][::2] == [3, 12.5]
    for wrong in ("(", "loss=[0-9]+", "(?P<step>[0-9]+)"):
        with pytest.raises(InvalidInput, match="metrics.parse"):
            platform.submit([sys.executable, "-c", code], metrics={"parse": [wrong]})


def test_what_was_told_while_the_server_was_dead_is_there_when_it_is_back(
    platform: Platform,
) -> None:
    gate = platform.gate("dead")
    job = submit(platform, gate)
    wait_for(lambda: series(platform, job, "loss"), 60, "the first points")
    (folder,) = platform.attempts(job)
    platform.kill()
    gate.touch()
    wait_for(lambda: (folder / "exit.json").exists(), 60, "the worker's record")
    wait_for(lambda: platform.worker_pid(folder) is None, 60, "the worker to have gone")
    platform.start()
    assert platform.wait(job).state == "succeeded"
    (line,) = series(platform, job, "loss")
    assert [point[0] for point in line["points"]] == [0, 1, 2, 3]


def runs(platform: Platform, key: str) -> list[Any]:
    return [run for run in platform.client.runs.page(limit=100).items if run.metrics.get(key)]


def test_a_run_made_without_a_platform_is_brought_in_once(
    platform: Platform, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(LOGGING.replace("loss=", "offline_loss="))
    env = {**platform.env, "PYTHONPATH": str(tmp_path)}
    subprocess.run(
        [sys.executable, "train.py", "--lr", "0.5", "20"], cwd=tmp_path, env=env, check=True
    )
    (folder,) = (tmp_path / "windlass-runs").iterdir()
    for new in (21, 0, 0):
        done = platform.cli("sync", "-o", "json", cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        (told,) = json.loads(done.stdout)["items"]
        assert told["lines"] == new
    (run,) = runs(platform, "offline_loss")
    assert run.id == json.loads((folder / "run.json").read_text())["id"]
    assert run.metrics["offline_loss"]["count"] == 21
    assert run.params["lr"] == {"value": "0.5", "source": "argv"}
    with open(folder / "spool-0.jsonl", "ab") as file:
        file.write(b'{"t":1,"kind":"metric","step":100,"values":{"offline_loss":3}}\n{"torn')
    done = platform.cli("sync", str(folder), cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    (run,) = runs(platform, "offline_loss")
    assert run.metrics["offline_loss"]["count"] == 22


def test_run_offline_keeps_what_the_command_prints(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('epoch 1 printed_loss=0.5')\nraise SystemExit(3)")
    done = platform.cli("run", "--offline", "train.py", "--lr", "0.5", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "epoch 1 printed_loss=0.5\n"), done.stderr
    done = platform.cli("sync", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = runs(platform, "printed_loss")
    assert run.metrics["printed_loss"]["source"] == "stdout key=value"
    assert run.params["lr"]["value"] == "0.5"
    done = platform.cli("run", "--offline", "--gpus", "1", "train.py", cwd=tmp_path)
    assert done.returncode != 0 and "--gpus" in done.stderr
