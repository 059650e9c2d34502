"""The programs in the docs do what the docs say."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.testing.platform import Platform

DOCS = Path(__file__).parents[2] / "docs"


def program(page: str) -> str:
    """The longest Python block of a page."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return max(blocks, key=len)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("tutorial") / "home") as platform:
        yield platform


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "sklearn")),
    reason="torch and scikit-learn are not installed",
)
def test_the_first_job_goes_on_from_its_checkpoint(platform, tmp_path):
    source = program("tutorial/first-job.md")
    assert "time.sleep(1)" in source
    dies = "if epoch == 6 and begun == 0 and rank == 1: os.kill(os.getpid(), 9)"
    quick = source.replace("time.sleep(1)  ", dies.ljust(15))
    assert dies in quick
    (tmp_path / "train.py").write_text(quick)
    job = platform.client.jobs.submit(
        run=[sys.executable, "train.py"], workers=2, framework="pytorch", code=tmp_path,
        name="digits", retry={"backoff": "50ms"},
    )  # fmt: skip
    job = platform.wait(job, 120)
    assert job.state == "succeeded", platform.client.jobs.why(job.id)
    assert job.attempt == 2 and job.step == 20
    text = platform.logs(job)
    assert re.search(r"resumed after epoch [456]", text)
    assert "epoch 20 loss=" in text and "epoch 1 loss=" not in text


def test_the_page_on_the_python_client_is_a_program(platform, tmp_path):
    (tmp_path / "train.py").write_text(
        "import windlass\nwindlass.log(step=1, loss=0.5)\nprint(7)\n"
    )
    (tmp_path / "page.py").write_text(
        program("how-to/python-client.md").replace("python train.py", f"{sys.executable} train.py")
    )
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=180,
        env={**os.environ, **platform.env},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stdout and "worker-0-0 7" in done.stdout
    assert "never-fits" in done.stdout


def test_the_page_on_scripts_is_a_program_off_the_platform(tmp_path):
    (tmp_path / "page.py").write_text("loss = 0.5\n" + program("how-to/in-a-script.md"))
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=180,
        env={name: text for name, text in os.environ.items() if "WINDLASS" not in name},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 1 False\n"
    assert list(tmp_path.glob("windlass-runs/*/checkpoints/step-*"))
