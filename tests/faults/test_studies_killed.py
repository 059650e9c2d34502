"""A study whose server dies, at the worst moments too: no trial is lost, none is run twice."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for


def study(platform: Platform, name: str, trials: int, parallel: int) -> dict[str, object]:
    """Trials that say in a file of their own that they began, then log their value."""
    script = (
        "import os, sys, time, windlass\n"
        "here = windlass.context()\n"
        "line = here.job_name + chr(10)\n"
        "file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)\n"
        "os.write(file, line.encode())\n"
        "time.sleep(0.3)\n"
        "windlass.log(step=1, loss=here.params['x'])\n"
    )
    platform.evidence.mkdir(parents=True, exist_ok=True)
    path = platform.evidence / f"{name}.py"
    path.write_text(script)
    return {
        "name": name, "trials": trials, "parallel": parallel, "sampler": "random",
        "space": {"x": "float:0..1"}, "minimize": "loss", "give": "environment",
        "job": {"run": [sys.executable, str(path), str(platform.evidence / f"{name}.began")]},
    }  # fmt: skip


def whole(platform: Platform, name: str, trials: int) -> None:
    """Exactly so many results, each of a job that began exactly once."""
    done = platform.client.studies
    found = done.wait(name, timeout_seconds=240)
    assert found.state == "finished", found
    assert found.counts == {"succeeded": trials}
    rows = done.trials(name)
    assert [row["number"] for row in rows] == list(range(trials))
    began = Counter((platform.evidence / f"{name}.began").read_text().split())
    assert began == {f"{name}-{number}": 1 for number in range(trials)}
    named = [job for job in platform.client.jobs.list(limit=1000) if job.name.startswith(name)]
    assert sorted(job.id for job in named) == sorted(row["job"] for row in rows)
    assert all(row["values"] == [row["params"]["x"]] for row in rows)


def dead(platform: Platform) -> bool:
    return platform.process is not None and platform.process.poll() is not None


@pytest.mark.parametrize("place", ["before-trial-commit", "after-trial-commit"])
def test_a_server_that_dies_around_the_birth_of_a_trial_loses_and_doubles_none(
    tmp_path, place
) -> None:
    platform = Platform(tmp_path / "home")
    platform.env["WINDLASS_FAILPOINT"] = f"{place}:kill@2"
    with platform:
        platform.client.studies.create(study(platform, "born", 5, 2))
        wait_for(lambda: dead(platform), 120, "it dies at the second birth")
        platform.kill()
        platform.env.pop("WINDLASS_FAILPOINT")
        platform.start()
        whole(platform, "born", 5)
        invariants.check(platform)


def ended(platform: Platform) -> int:
    """How many workers have written down how theirs ended."""
    return len(list(platform.home.glob("attempts/*/*/exit.json")))


@pytest.mark.slow
def test_fifty_trials_and_two_kills_give_exactly_fifty_results(tmp_path) -> None:
    with Platform(tmp_path / "home") as platform:
        platform.client.studies.create(study(platform, "fifty", 50, 4))

        def under_way(results: int) -> tuple[int] | None:
            before = ended(platform)
            if platform.client.studies.get("fifty").results < results:
                return None
            runs = any(job.state == "running" for job in platform.client.jobs.list(limit=50))
            return (before,) if runs else None

        for results in (10, 30):
            (before,) = wait_for(lambda: under_way(results), 200, f"{results} results")  # noqa: B023
            platform.kill()
            # One that ran then ends while nobody is there to hear of it.
            wait_for(lambda: ended(platform) > before, 60, "one ends unheard")  # noqa: B023
            platform.start()
        whole(platform, "fifty", 50)
        invariants.check(platform)
