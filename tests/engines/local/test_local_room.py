"""Real limits at a launch: what this process may open or start is used up, then there is room."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from local_kit import LocalKit

from windlass.engines import needs as here
from windlass.engines.spawn import worker_command
from windlass.testing.engines import STUB_WORKER
from windlass.worker import needs as there

ORDINARY_USER = "54321"
COMMAND = worker_command(STUB_WORKER)

# A server as an ordinary user (root is above a limit of processes), which comes to its limit.
_SERVER = """
import asyncio, json, os, resource, secrets, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from local_kit import LocalKit
from windlass.core.errors import Unavailable
from windlass.engines.base import LaunchFailed, LaunchPlan, NodeLaunch, Roomy, Sight

KIND = {"descriptors": resource.RLIMIT_NOFILE, "processes": resource.RLIMIT_NPROC}[sys.argv[2]]
kit = LocalKit(Path(sys.argv[3]), json.loads(sys.argv[4]))

def plan(gate):
    attempt_id = secrets.token_hex(16)
    launch = {**kit.launch(attempt_id, "fake-0"), "stub": {"until": str(gate)}}
    return LaunchPlan("0" * 32, attempt_id, 1, (NodeLaunch("fake-0", launch, "secret"),))

async def main():
    engine = kit.engine()
    assert isinstance(engine, Roomy)
    await engine.start(lambda _: None)
    gate = kit.gate()
    alive = plan(gate)
    await engine.launch(alive)
    wanted = [(alive.attempt_id, "fake-0")]
    while (await engine.observe(wanted))[0].sight is not Sight.ALIVE:
        await asyncio.sleep(0.01)
    refused = plan(gate)
    soft, hard = resource.getrlimit(KIND)
    resource.setrlimit(KIND, (3 if KIND == resource.RLIMIT_NOFILE else 1, hard))
    try:
        await engine.launch(refused)
        raise SystemExit("it was launched")
    except LaunchFailed as err:
        print(err.need, err.transient, sep="|")
    print(bool(await engine.lacks("fake-0")))
    try:
        print((await engine.observe(wanted))[0].sight)
    except Unavailable:
        print("not judged")
    resource.setrlimit(KIND, (soft, hard))
    print(await engine.lacks("fake-0") or "room")
    print((await engine.observe(wanted))[0].sight)
    print((await engine.observe([(refused.attempt_id, "fake-0")]))[0].sight)
    await engine.launch(refused)
    for each in (alive, refused):
        await engine.end(each.attempt_id, "fake-0")
    await engine.stop()

asyncio.run(main())
"""


def as_ordinary_user(folder: Path) -> list[str]:
    """How to start a program so that limits of processes hold for it; it may still read all."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv (util-linux) is not there to give up root's rights")
    shutil.chown(folder, int(ORDINARY_USER), int(ORDINARY_USER))
    kept = "+dac_read_search"
    return [
        "setpriv", "--reuid", ORDINARY_USER, "--regid", ORDINARY_USER, "--clear-groups",
        "--inh-caps", kept, "--ambient-caps", kept, "--bounding-set", "-all," + kept,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "need"), [("descriptors", "file descriptors"), ("processes", "processes")]
)
def test_a_launch_at_a_limit_says_what_is_lacking_and_judges_nobody(
    tmp_path: Path, limit: str, need: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    try:
        done = subprocess.run(
            [
                *as_ordinary_user(home), sys.executable, "-c", _SERVER,
                str(Path(__file__).parent), limit, str(home), json.dumps(COMMAND),
            ],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    finally:
        LocalKit(home, COMMAND).clean()
    assert done.returncode == 0, done.stderr
    said, lacks, seen, again, alive, refused = done.stdout.splitlines()
    assert said == f"{need}|True"
    assert lacks == "True"
    assert seen in ("alive", "not judged"), "a look that failed is no death"
    assert (again, alive, refused) == ("room", "alive", "absent")


def test_both_sides_know_the_same_needs() -> None:
    assert here.OF == there.OF
    assert here.INODES == there.INODES
