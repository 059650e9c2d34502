"""A job without a network still speaks with the server, and its gang meets on one node."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from windlass.engines.local import isolation
from windlass.testing.platform import Platform

pytestmark = pytest.mark.slow
ABLE = isolation.look()
CODE = """
import os, socket, urllib.request, windlass
print("health", urllib.request.urlopen(os.environ["WINDLASS_URL"] + "/api/v1/health").status)
print("links", [name for _, name in socket.if_nameindex()], os.environ["WINDLASS_WORLD_SIZE"])
if os.environ["WINDLASS_RANK"] == "0":
    with windlass.checkpoint(3) as path:
        open(os.path.join(path, "weights"), "w").close()
windlass.log(step=3, loss=0.5)
"""


@pytest.mark.skipif(not ABLE.network, reason="; ".join(ABLE.missing) or "no network namespaces")
@pytest.mark.parametrize("level", [0, 1])
def test_a_gang_without_network_meets_on_one_node_and_is_heard(tmp_path: Path, level: int) -> None:
    if level > ABLE.level:
        pytest.skip("isolation level 1: " + "; ".join(ABLE.missing))
    with Platform(tmp_path / "home", "--fake-nodes", "2") as platform:
        job = platform.submit(
            [sys.executable, "-c", CODE],
            workers=2,
            isolation={"level": level, "network": "none"},
        )
        assert platform.wait(job).state == "succeeded", platform.logs(job)
        said = platform.logs(job).splitlines()
        assert said.count("health 200") == 2 and said.count("links ['lo'] 2") == 2
        detail = platform.call("GET", f"/jobs/{job.id}").json()
        (node,) = detail["attempts"][0]["nodes"]
        assert detail["attempts"][0]["isolation"][node]["network"] == "none"
        (saved,) = platform.call("GET", f"/jobs/{job.id}/checkpoints").json()["items"]
        assert saved["step"] == 3
        series = platform.call("GET", f"/jobs/{job.id}/metrics").json()["series"]
        assert {each["key"] for each in series} == {"loss"}


@pytest.mark.skipif(not ABLE.network, reason="; ".join(ABLE.missing) or "no network namespaces")
def test_a_gang_without_network_that_no_node_can_hold_is_refused(tmp_path: Path) -> None:
    with Platform(tmp_path / "home", "--fake-nodes", "2", "--fake-gpus", "1") as platform:
        roles = {"worker": {"count": 2, "gpus": 1}}
        spec = {"run": ["true"], "roles": roles, "isolation": {"network": "none"}}
        answer = platform.call("POST", "/jobs", {"spec": spec})
        assert answer.status_code == 422 and answer.json()["error"]["code"] == "never-fits"
        spec["isolation"] = {"network": "host"}
        assert platform.call("POST", "/jobs", {"spec": spec}).status_code == 201
