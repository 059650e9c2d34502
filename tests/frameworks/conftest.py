"""One `windlass run` of an example, by a user who has activated the framework's environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from windlass.client import Job
from windlass.testing.environments import Unavailable, environment
from windlass.testing.platform import Platform

EXAMPLES = Path(__file__).parents[2] / "examples"
LINE = re.compile(r"rank (\d+) of (\d+) loss ([0-9.]+) -> ([0-9.]+) (?:model|weights) (.*)")


class Told(NamedTuple):
    """What a rank of an example prints when it has trained."""

    rank: int
    world_size: int
    first_loss: float
    last_loss: float
    model: str


class Ran(NamedTuple):
    job: Job
    out: str
    err: str

    @property
    def told(self) -> list[Told]:
        """By rank."""
        return sorted(
            Told(int(rank), int(size), float(first), float(last), model.strip())
            for rank, size, first, last, model in LINE.findall(self.out)
        )

    def trained_together(self, world_size: int) -> None:
        """Each rank once, all of one size, a falling loss, and one model."""
        assert [(each.rank, each.world_size) for each in self.told] == [
            (rank, world_size) for rank in range(world_size)
        ]
        for each in self.told:
            assert each.last_loss < 0.6 * each.first_loss
        assert len({each.model for each in self.told}) == 1, self.told


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A server with two fake nodes, shared by the tests of a module."""
    with Platform(tmp_path_factory.mktemp("home") / "home", "--fake-nodes", "2") as platform:
        yield platform


@pytest.fixture(scope="session")
def made() -> Callable[..., Path]:
    """`environment`, but a test that cannot have it is skipped with the reason."""

    def make(name: str, *requirements: str, pip_args: tuple[str, ...] = ()) -> Path:
        try:
            return environment(name, *requirements, pip_args=pip_args)
        except Unavailable as why:
            pytest.skip(str(why))

    return make


@pytest.fixture
def run(laboratory: Platform) -> Callable[..., Ran]:
    """`run(python, example, *words)`: the job succeeded at once."""

    def do(python: Path, example: str, *words: str) -> Ran:
        env = {**laboratory.env, "VIRTUAL_ENV": str(python.parents[1])}
        before = {job.id for job in laboratory.client.jobs.list()}
        done = laboratory.cli("run", *words, cwd=EXAMPLES / example, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        (job,) = [job for job in laboratory.client.jobs.list() if job.id not in before]
        assert job.state == "succeeded" and job.attempt == 1
        return Ran(job, done.stdout, done.stderr)

    return do
