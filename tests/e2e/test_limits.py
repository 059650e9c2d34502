"""What refuses and what lets wait, against a real server over HTTP (R-S17)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from windlass.core.errors import LimitExceeded
from windlass.testing.platform import Platform, wait_for


@pytest.fixture
def wide(tmp_path, dialect, database_url):
    url = "" if dialect == "sqlite" else database_url
    nodes = ("--fake-nodes", "2", "--fake-gpus", "8")
    with Platform(tmp_path / "home", *nodes, database=url) as platform:
        yield platform


def at_once(platform, count, **spec):
    """So many submits in parallel; the jobs, and the errors."""

    def one(number):
        client = platform.new_client()
        try:
            return client.jobs.submit({"run": "sleep 600", "name": f"job-{number}", **spec})
        except LimitExceeded as err:
            return err
        finally:
            client.close()

    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(one, range(count)))
    errors = [each for each in found if isinstance(each, LimitExceeded)]
    return [each for each in found if not isinstance(each, LimitExceeded)], errors


def test_a_limit_of_ten_lets_ten_in_of_a_hundred_and_a_quota_of_six_gpus_lets_six_run(wide):
    done = wide.cli("limit", "set", "default", "--jobs", "10")
    assert done.returncode == 0, done.stderr
    held, refused = at_once(wide, 100, hold=True)
    assert (len(held), len(refused)) == (10, 90)
    assert refused[0].details["limit"] == 10
    words = wide.cli("submit", "--no-code", "true")
    assert words.returncode == 104
    assert "may have 10 live jobs, and has them" in words.stderr
    [mine] = json.loads(wide.cli("limit", "ls", "-o", "json").stdout)["items"]
    assert mine["limits"][0]["live"] == 10

    assert wide.cli("limit", "rm", "default").returncode == 0
    wide.client.quotas.set("default", nominal={"gpus": 6})
    one_gpu = {"worker": {"gpus": 1, "nproc": 1}}
    queued, refused = at_once(wide, 40, roles=one_gpu)
    assert (len(queued), len(refused)) == (40, 0)

    def states():
        found = [wide.client.jobs.get(job.id).state for job in queued]
        return Counter("holds" if s in ("starting", "running") else s for s in found)

    wait_for(lambda: states()["holds"] >= 6, seconds=60)
    assert states() == {"holds": 6, "queued": 34}
    waits = next(j.id for j in queued if wide.client.jobs.get(j.id).state == "queued")
    wide.wait_why(waits, "1 GPU short")
    assert "quota" in wide.cli("why", waits).stdout


def test_a_job_that_fills_the_disk_is_ended_by_the_lower_of_two_bounds(tmp_path):
    fill = "import os, time\nfor n in range(60): open(f'f{n}', 'wb').write(os.urandom(1 << 20))\n"
    run = [sys.executable, "-c", fill + "time.sleep(600)"]
    with Platform(tmp_path / "home", "--job-disk", "50MiB") as platform:
        greedy = platform.submit(run, name="greedy", limits={"disk": "1GiB"})
        modest = platform.submit(run, name="modest", limits={"disk": "10MiB"})
        fine = platform.submit(["sleep", "600"], name="fine")
        for job, bound in ((greedy, "50.0 MiB"), (modest, "10.0 MiB")):
            over = platform.wait(job)
            assert over.state == "failed" and over.reason.endswith(
                f"of disk, more than its limit of {bound} (limits.disk)"
            )
        platform.wait_state(fine, "running")
