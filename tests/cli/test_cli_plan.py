"""`windlass plan`: from a saved profile without a model or torch, and from a script."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from standin import Call

from windlass.train.planning.plan import Plan

VGG = str(Path(__file__).parents[1] / "train" / "profiles" / "vgg16.txt")
ALONE_MS = 672.535
"""One batch of VGG-16 on one worker, Input dropped."""

SCRIPT = """
import torch
from torch.nn import Linear, ReLU, Sequential
from torch.nn.functional import mse_loss
import windlass.train as wt

def make():
    model = Sequential(Linear(8, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 1))
    return wt.Task(model, wt.sum_loss(mse_loss, reduction="sum"),
                   torch.optim.Adam(model.parameters()),
                   wt.Data((torch.rand(64, 8), torch.rand(64, 1)), global_batch=16))

if __name__ == "__main__":
    raise SystemExit("not run")
"""


def plan(cli: Call, *words: str) -> dict[str, Any]:
    done = cli("plan", "--profile", VGG, *words, "-o", "json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.mark.parametrize(
    ("workers", "replicas", "speed_up"),
    [(4, [3, 1], 3.92), (8, [7, 1], 7.57), (16, [15, 1], 15.23)],
)
def test_vgg_16_gets_its_published_plan(
    cli: Call, workers: int, replicas: list[int], speed_up: float
) -> None:
    """Section 3: 3-1, 7-1, 15-1 at 10 Gbit/s with overlap."""
    found = plan(cli, "--workers", str(workers), "--link", "10Gbit")
    assert [stage["replicas"] for stage in found["stages"]] == replicas
    alone = 1000 * found["batch"] / ALONE_MS
    assert found["samples_per_s"] / alone == pytest.approx(speed_up, abs=0.005)
    assert found["strategy"] == "pipedream" and found["overlap"] is True
    assert found["stages"][0]["blocks"][0] == 0 and found["stages"][1]["blocks"][1] == 39
    assert found["runner_up"]["strategy"] == "allreduce" and found["runner_up"]["why"]


def test_vgg_16_on_16_is_2_35_times_data_parallel(cli: Call) -> None:
    found = plan(cli, "--workers", "16", "--link", "10Gbit")
    assert found["ratio_to_dp"] == pytest.approx(2.35, abs=0.005)
    assert set(found) >= {
        "workers", "link", "overlap", "stages", "samples_per_s", "ratio_to_dp", "strategy",
        "runner_up", "batch",
    }  # fmt: skip
    assert set(found["stages"][0]) == {
        "blocks", "replicas", "compute_ms", "sync_ms", "memory_bytes",
    }  # fmt: skip
    assert found["link"] == "10Gbit" and found["workers"] == 16 and found["batch"] == 64


def test_on_fast_links_vgg_16_is_plain_data_parallel(cli: Call) -> None:
    found = plan(cli, "--workers", "16", "--link", "80Gbit")
    assert [stage["replicas"] for stage in found["stages"]] == [16]
    assert found["strategy"] == "allreduce" and found["ratio_to_dp"] == 1


def test_what_is_asked_for_changes_the_answer(cli: Call) -> None:
    words = ("--workers", "16", "--link", "10Gbit")
    usual = plan(cli, *words)
    assert plan(cli, *words, "--no-overlap")["samples_per_s"] < usual["samples_per_s"]
    assert plan(cli, *words, "--batch", "128")["samples_per_s"] == pytest.approx(
        2 * usual["samples_per_s"]
    )
    small = plan(cli, *words, "--memory", "16G")
    assert max(stage["memory_bytes"] for stage in small["stages"]) <= 16e9
    near = plan(cli, *words, "--per-node", "4", "--node-link", "100Gbit")
    assert near["per_node"] == 4 and near["node_link"] == "100Gbit"
    assert plan(cli, *words, "--only", "fsdp,allreduce")["strategy"] == "allreduce"


def test_people_get_words_and_a_clock_table(cli: Call) -> None:
    done = cli("plan", "--profile", VGG, "--workers", "4", "--link", "10Gbit", "--draw")
    assert done.code == 0, done.err
    assert "pipedream 3-1 on 4 workers" in done.out
    assert "1.94x of data parallel" in done.out and "runner-up: allreduce" in done.out
    assert "rank 3  stage 1" in done.out and "F0" in done.out


def test_a_plan_is_written_where_asked(cli: Call, home: Path) -> None:
    done = cli("plan", "--profile", VGG, "--workers", "4", "--link", "10Gbit", "-O", "p.yaml")
    assert done.code == 0 and "plan written to p.yaml" in done.err
    assert Plan.load("p.yaml").replicas == (3, 1)


def test_how_many_are_enough_is_told(cli: Call) -> None:
    words = ("--profile", VGG, "--link", "1Gbit")
    done = cli("plan", *words, "--workers", "1..8", "--servers", "1..4")
    assert done.code == 0, done.err
    assert "4 SERVERS" in done.out and "adds at least 25%" in done.out
    for drawn in ("no server", "1 server", "2 servers", "3 servers", "4 servers"):
        assert re.search(rf"│.* {drawn}\b", done.out), f"no curve of {drawn}"
    data = json.loads(cli("plan", *words, "--workers", "1..8", "-o", "json").out)
    assert len(data["points"]) == 8 and 1 <= data["enough"]["workers"] <= 8
    assert cli("plan", *words, "--workers", "1..8", "-q").out.strip() == str(
        data["enough"]["workers"]
    )


def test_where_servers_do_not_pay_this_is_said(cli: Call) -> None:
    """Once it said of 4 servers that nothing was faster, beside a column that was, five times."""
    words = ("--profile", VGG, "--link", "10Gbit", "--workers", "1..16", "--servers", "1..4")
    done = cli("plan", *words)
    assert "4 workers and 4 servers: 289 samples/s, 3.0x of one worker" in done.out
    assert "16 workers and no server: 1,449 samples/s, 15.2x of one worker" in done.out
    found = json.loads(cli("plan", *words, "-o", "json").out)
    assert (found["enough"]["workers"], found["enough"]["servers"]) == (4, 4)
    without = found["enough_without_servers"]
    assert (without["workers"], without["servers"], without["replicas"]) == (16, 0, [15, 1])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--workers", "4", "--link", "10Gbit"), "a SCRIPT or --profile FILE: one is needed"),
        (("train.py", "--profile", VGG), "one of them"),
        (("--profile", VGG, "--workers", "4"), "--link: how fast the links are"),
        (("--profile", VGG, "--link", "10gbit"), "--link: a rate above 0 with its unit"),
        (("--profile", VGG, "--link", "1Gbit", "--workers", "0"), "--workers: a number from 1"),
        (("--profile", VGG, "--link", "1Gbit", "--memory", "1X"), "--memory: a size is"),
        (("--profile", VGG, "--link", "1Gbit", "--memory", "0"), "--memory: more than nothing"),
        (("--profile", VGG, "--link", "1Gbit", "--only", "magic"), "--only: one of allreduce"),
        (("--profile", VGG, "--link", "1Gbit", "--per-node", "2"), "both or neither"),
        (("--profile", "nothing.txt", "--link", "1Gbit"), "nothing.txt: it cannot be read"),
        (("--profile", VGG, "--link", "80Gbit", "--draw"), "allreduce is not a pipeline"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    cli: Call, home: Path, words: tuple[str, ...], told: str
) -> None:
    done = cli("plan", *words)
    assert done.code == 2 and told in done.err, (done.out, done.err)
    assert "Traceback" not in done.err


def test_what_fits_nowhere_says_by_how_much(cli: Call) -> None:
    done = cli("plan", "--profile", VGG, "--workers", "4", "--link", "1Gbit", "--memory", "100M")
    assert done.code == 104
    assert "nothing fits in 100 MB a worker" in done.err and "too much" in done.err


def test_the_page_shows_what_the_command_prints(
    cli: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(VGG).parent)
    page = (Path(VGG).parents[3] / "docs" / "how-to" / "plan.md").read_text(encoding="utf-8")
    shown = [
        block.split("\n", 1)
        for block in re.findall(
            r"```console\n\$ (windlass plan --profile .*?)\n```", page, re.DOTALL
        )
    ]
    assert len(shown) == 3
    for line, printed in shown:
        found = cli(*shlex.split(line)[1:]).out
        # How a clock is drawn is told by tests of its own.
        words, told = (each.partition("\n\npipedream: ")[0] for each in (found, printed))
        assert words.rstrip() == told.rstrip(), line


def test_a_profile_is_planned_in_a_moment_without_torch() -> None:
    """In a process that would fail at `import torch`."""
    program = (
        "import sys, time\n"
        "sys.modules['torch'] = None\n"
        "from windlass.cli.main import main\n"
        f"main(['plan', '--profile', {VGG!r}, '--workers', '16', '--link', '10Gbit', '--draw', "
        "'-o', 'json'])\n"
    )
    before = psutil.Process().cpu_times()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    after = psutil.Process().cpu_times()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stages"][0]["replicas"] == 15
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    assert spent < 20, "it takes half a second; of its own time, the machine may be busy"


def test_a_script_is_measured_and_planned(home: Path) -> None:
    Path("train.py").write_text(SCRIPT)
    words = [
        sys.executable,
        "-c",
        "from windlass.cli.main import main; main()",
        "plan",
        "train.py",
    ]

    def call(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, *more], capture_output=True, text=True, timeout=120)

    done = call("--workers", "2", "--link", "10Gbit", "--save-profile", "p.json", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["batch"] == 16 and found["workers"] == 2
    assert "plan written to plan.yaml" in done.stderr and "hides behind compute" in done.stderr
    assert Plan.load("plan.yaml").strategy == found["strategy"]
    Path("plan.yaml").write_text("pinned")
    again = call("--workers", "1..2", "--servers", "1", "--link", "10Gbit", "--overlap")
    assert again.returncode == 0 and "1 SERVER" in again.stdout
    assert Path("plan.yaml").read_text() == "pinned"
