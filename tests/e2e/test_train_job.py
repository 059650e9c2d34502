"""`windlass.train` in a job: the script that runs alone runs as a gang with nothing changed."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.testing.platform import Platform, wait_for

pytestmark = pytest.mark.slow

SCRIPT = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    import windlass.train as wt

    def make():
        x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
        model = nn.Linear(8, 1)
        return wt.Task(model, wt.sum_loss(F.mse_loss, reduction="sum"),
                       torch.optim.SGD(model.parameters(), 0.05), wt.Data((x, x[:, :1]), 16))

    run = wt.fit(make, {strategy!r}, steps={steps}{more})
    print("members", len(run.result.members), "steps", run.result.steps, flush=True)
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("home")
    with Platform(home, "--fake-nodes", "2", "--fake-gpus", "2") as platform:
        yield platform


def script(folder: Path, strategy: str, steps: int = 20, more: str = "") -> Path:
    path = folder / "mine.py"
    path.write_text(textwrap.dedent(SCRIPT).format(strategy=strategy, steps=steps, more=more))
    return path


def test_a_gang_on_two_nodes_trains_and_its_loss_is_tracked(
    nodes: Platform, tmp_path: Path
) -> None:
    script(tmp_path, "allreduce", 200, ', device="cpu"')
    job = nodes.client.jobs.submit(
        run=[sys.executable, "mine.py"], code=tmp_path, framework="pytorch",
        roles={"worker": {"count": 2, "gpus": 2, "nproc": 1}},
    )  # fmt: skip
    done = nodes.wait(job, 120)
    assert done.state == "succeeded", nodes.logs(job)
    assert "members 2 steps 200" in nodes.logs(job)
    series = nodes.call("GET", f"/jobs/{job.id}/metrics").json()["series"]
    assert {"loss", "samples_per_s"} <= {each["key"] for each in series}


def test_sizes_are_the_gangs_and_a_mismatch_says_so(nodes: Platform, tmp_path: Path) -> None:
    script(tmp_path, "allreduce", 5, ', device="cpu", workers=4')
    job = nodes.client.jobs.submit(
        run=[sys.executable, "mine.py"], code=tmp_path, framework="pytorch", workers=2
    )
    assert nodes.wait(job, 120).state == "failed"
    assert "workers: 4 asked for, but this gang has 2" in nodes.logs(job)


def test_a_restart_goes_on_from_the_checkpoint(nodes: Platform, tmp_path: Path) -> None:
    script(tmp_path, "allreduce", 100_000_000, ', device="cpu", save_every=50')
    job = nodes.client.jobs.submit(
        run=[sys.executable, "mine.py"], code=tmp_path, framework="pytorch", workers=2
    )

    def saved() -> list[dict[str, object]]:
        items: list[dict[str, object]] = nodes.call("GET", f"/jobs/{job.id}/checkpoints").json()[
            "items"
        ]
        return items

    wait_for(saved, 90, "a checkpoint is there")
    nodes.client.jobs.restart(job.id)
    wait_for(
        lambda: any(each["attempt"] == 2 for each in saved()), 90, "the next attempt saves too"
    )
    found = saved()
    last = max(int(str(each["step"])) for each in found if each["attempt"] == 1)
    first = min(int(str(each["step"])) for each in found if each["attempt"] == 2)
    assert first > last, found
    nodes.client.jobs.stop(job.id)
    assert nodes.wait(job).state == "cancelled"
