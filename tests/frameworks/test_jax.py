"""JAX for real: two processes, gloo between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def python(made: Callable[..., Path]) -> Path:
    return made("jax", "jax==0.10.2", "jaxlib==0.10.2")


def test_two_processes_train_one_model(python: Path, run: Run) -> None:
    found = run(python, "jax", "--workers", "2", "train.py")
    assert found.job.framework == "jax"
    found.trained_together(2)
    assert found.told[0].model == "2.00 10.00"
    assert "proxy" not in found.err


def test_a_proxy_in_the_jobs_variables_does_not_hang_it(python: Path, run: Run) -> None:
    """Without `no_grpc_proxy` the processes ask the proxy for each other, and wait for ever."""
    nowhere = "http://127.0.0.1:9"
    found = run(
        python, "jax", "--workers", "2", "--env", f"http_proxy={nowhere}",
        "--env", f"https_proxy={nowhere}", "train.py",
    )  # fmt: skip
    found.trained_together(2)


def test_the_one_line_helper_is_enough(python: Path, run: Run) -> None:
    code = (
        "from windlass.job import collective; collective.jax(); import jax;"
        "print('process', jax.process_index(), 'of', jax.process_count())"
    )
    source = Path(__file__).parents[2] / "src"
    found = run(
        python, "jax", "--framework", "jax", "--workers", "2", "--env", f"PYTHONPATH={source}",
        "--", "python", "-c", code,
    )  # fmt: skip
    assert "process 0 of 2" in found.out and "process 1 of 2" in found.out
