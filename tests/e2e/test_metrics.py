"""What a job told, read back: series, tables, comparisons."""

from __future__ import annotations

import csv
import io
import json
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from windlass.core.signing import sign
from windlass.testing.environments import Unavailable, environment
from windlass.testing.platform import Platform, wait_for

SCRIPT = """
    import math, sys
    import windlass
    lr = float(sys.argv[1])
    for step in range(300):
        loss = math.nan if step == 77 else 1 / (1 + step * lr)
        windlass.log(step=step, loss=loss, val_acc=1 - 1 / (1 + step * lr))
"""


class Two:
    """Two finished jobs that were given different rates."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform = platform
        (folder / "train.py").write_text(textwrap.dedent(SCRIPT))
        self.slow, self.fast = (
            platform.client.jobs.submit(
                run=[sys.executable, "train.py", "${lr}"], params={"lr": lr, "same": 1},
                code=folder, name=name,
                metrics={"goal": "max val_acc"},
            )
            for name, lr in (("slow", 0.1), ("fast", 0.5))
        )  # fmt: skip
        for job in (self.slow, self.fast):
            assert platform.wait(job).state == "succeeded", platform.logs(job)
            wait_for(lambda job=job: self.told(job.id), what="all that was logged is there")  # type: ignore[misc]

    def told(self, job_id: str) -> bool:
        run = self.platform.client.runs.of([job_id]).get(job_id)
        return run is not None and run.metrics.get("val_acc", {}).get("count") == 300

    def cli(self, *words: str) -> str:
        done = self.platform.cli(*words)
        assert done.returncode == 0, done.stderr
        out: str = done.stdout
        return out


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    with Platform(tmp_path_factory.mktemp("home")) as platform:
        yield Two(platform, tmp_path_factory.mktemp("code"))


def test_series_are_thinned_by_the_server_and_keep_what_matters(two: Two) -> None:
    [series] = two.platform.client.jobs.metrics(two.slow.id, key="loss", points=20)
    assert series["thinned"] and 5 < len(series["points"]) <= 30
    assert series["points"][0][::2] == [0, 1.0]
    assert "NaN" in [point[2] for point in series["points"]]
    [part] = two.platform.client.jobs.metrics(two.slow.id, key="loss", low=10, high=12)
    assert [point[0] for point in part["points"]] == [10, 11, 12]
    assert len(list(two.platform.client.jobs.points(two.slow.id, key="loss"))) == 300


def test_series_come_as_doubles_too(two: Two) -> None:
    path = f"/jobs/{two.slow.id}/metrics?key=val_acc&format=binary"
    raw = two.platform.call("GET", path).content
    head, _, _ = raw.partition(b"\n")
    [about] = json.loads(head)["series"]
    assert (about["key"], about["count"], (len(head) + 1) % 8) == ("val_acc", 300, 0)
    numbers = struct.unpack(f"<{3 * 300}d", raw[len(head) + 1 :])
    assert numbers[:3] == (0.0, 1.0, 2.0) and numbers[600] == 0.0


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("points=3", "points: from 4 to"),
        ("by=colour", "by: step or time"),
        ("from=soon", "from: a step"),
        ("by=time&to=soon", "to: an ISO-8601 time"),
        ("format=xml", "format: json, jsonl or binary"),
        ("keys=loss", "no query parameter"),
    ],
)
def test_a_wrong_question_is_answered_with_the_choices(two: Two, query: str, words: str) -> None:
    answer = two.platform.call("GET", f"/jobs/{two.slow.id}/metrics?{query}")
    assert answer.status_code == 422 and words in answer.json()["error"]["message"]


def test_a_table_of_runs_is_filtered_and_sorted(two: Two) -> None:
    page = two.platform.client.runs.page(filter="max.val_acc > 0.98", sort="metrics.loss")
    assert [run.name for run in page.items] == ["fast"]
    both = list(two.platform.client.runs.all(sort="-min.loss", page=1))
    assert [run.name for run in both] == ["slow", "fast"]
    wrong = two.platform.call("GET", "/runs?filter=loss%20%3C%203")
    assert wrong.status_code == 422 and "known: metrics" in wrong.json()["error"]["message"]


def test_metrics_shows_values_curves_and_where_they_come_from(two: Two) -> None:
    table = two.cli("metrics", "slow")
    assert "windlass.log" in table and "PICKED UP FROM" in table
    best = two.cli("metrics", "slow", "--best", "--key", "val_acc")
    assert best.splitlines()[1].split()[:3] == ["val_acc", "0.96764", "299"]
    assert "NaN at 1 point" in two.cli("metrics", "slow", "--key", "loss", "--plot")
    rows = list(csv.DictReader(io.StringIO(two.cli("metrics", "slow", "-o", "csv"))))
    assert len(rows) == 600 and rows[77]["value"] == "NaN"
    answer = json.loads(two.cli("metrics", "slow", "--last", "-o", "json"))
    assert {item["key"] for item in answer["metrics"]} >= {"loss", "val_acc"}


def test_compare_shows_what_differs_and_what_is_better(two: Two) -> None:
    shown = two.cli("compare", "slow", "fast")
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert "0.1" in lines["lr"] and "0.5" in lines["lr"]
    assert "same" not in lines and "same" in two.cli("compare", "slow", "fast", "--all")
    assert "0.99336*" in shown and "+2.7%" in shown
    rows = list(csv.DictReader(io.StringIO(two.cli("compare", "slow", "fast", "-o", "csv"))))
    assert [row["lr"] for row in rows] == ["0.1", "0.5"]
    chosen = two.cli(
        "compare", "--where", "params.lr > 0.3", "--sort", "metrics.loss", "-o", "csv"
    )
    assert [row["name"] for row in csv.DictReader(io.StringIO(chosen))] == ["fast"]


def test_what_cannot_be_compared_says_so(two: Two) -> None:
    done = two.platform.cli("compare", "slow", "nobody-knows")
    assert done.returncode == 102 and "no job 'nobody-knows'" in done.stderr
    done = two.platform.cli("compare")
    assert done.returncode == 2 and "name jobs, or choose them" in done.stderr


def test_any_job_can_be_written_as_event_files(two: Two, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    assert two.cli("tb", "slow", "fast", "--export", str(folder)).strip() == str(folder)
    assert len(list(folder.glob("*/events.out.tfevents.*"))) == 2


def test_where_tensorboard_is_not_installed_the_command_says_what_to_do(
    two: Two, tmp_path: Path
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    done = two.platform.cli("tb", "slow", "--local", "--python", str(bare))
    assert done.returncode != 0
    assert "is not installed" in done.stderr and "windlass[tb]" in done.stderr


@pytest.mark.frameworks
def test_tensorboard_shows_a_job_below_a_path_that_nobody_can_guess(two: Two) -> None:
    try:
        python = environment("tensorboard", "tensorboard==2.20.0")
    except Unavailable as err:
        pytest.skip(str(err))
    words = ("tb", "slow", "--local", "--python", str(python))
    command = [sys.executable, "-m", "windlass.cli.main", *words]
    board = subprocess.Popen(
        command, env=two.platform.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert board.stdout is not None
        address = board.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        host = "/".join(address.split("/")[:3])
        runs = f"slow-{two.slow.id[:6]}"
        wait_for(
            lambda: httpx.get(f"{address}data/runs").json() == [runs], what="it has read them"
        )
        asked = f"{address}data/plugin/scalars/scalars?run={runs}&tag=val_acc"
        assert len(wait_for(lambda: httpx.get(asked).json())) == 300
        assert httpx.get(f"{host}/data/runs").status_code == 404
    finally:
        board.send_signal(signal.SIGINT)
        try:
            assert board.wait(60) == 0
        finally:
            board.kill()
            board.wait()
            if board.stdout is not None:
                board.stdout.close()


def test_a_run_that_no_job_made_has_curves_too(shared: Platform) -> None:
    """What an MLflow client logged from elsewhere is compared like a job."""

    def mlflow(path: str, body: dict[str, object]) -> dict[str, dict[str, dict[str, str]]]:
        key, content = shared.credentials(), json.dumps(body).encode()
        address = f"{shared.url}/mlflow/default/api/2.0/mlflow/{path}"
        head = {"Host": f"127.0.0.1:{shared.port}", "Content-Type": "application/json"}
        now_ms = int(time.time() * 1000)
        head |= sign("POST", address, head, content, key["access_key"], key["secret_key"], now_ms)
        answer = httpx.post(address, content=content, headers=head, trust_env=False, timeout=60)
        assert answer.status_code == 200, answer.text
        found: dict[str, dict[str, dict[str, str]]] = answer.json()
        return found

    run = mlflow("runs/create", {"experiment_id": "0"})["run"]["info"]["run_id"]
    points = [{"key": "loss", "value": 1 / (n + 1), "step": n, "timestamp": n} for n in range(3)]
    mlflow("runs/log-batch", {"run_id": run, "metrics": points})
    (series,) = shared.call("GET", f"/jobs/{run}/metrics").json()["series"]
    assert [value for _, _, value in series["points"]] == [1, 1 / 2, 1 / 3]
    assert shared.call("GET", f"/jobs/{'0' * 32}/metrics").status_code == 404
