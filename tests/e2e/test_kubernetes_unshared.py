"""Jobs in pods that see nothing of the server's home (`share=none`): what they say is sent."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from windlass.testing import invariants
from windlass.testing.kubernetes import Cluster
from windlass.testing.platform import Platform, wait_for

pytestmark = pytest.mark.slow
BASE = "/api/v1/namespaces/default"


@pytest.fixture(scope="module")
def platform(kubernetes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("unshared-platform") / "home"
    listen = ("--host", "0.0.0.0", "--insecure", "--allow-host", kubernetes.address)
    with Platform(home, *listen) as running:
        options = {
            "kubeconfig": str(kubernetes.kubeconfig), "image": kubernetes.image,
            "python": sys.executable, "share": "none",
            "volumes": ",".join(f"host:{path}:ro" for path in kubernetes.host_paths),
            "url": f"http://{kubernetes.address}:{running.port}", "poll": "1", "lease": "15",
        }  # fmt: skip
        running.client.engines.add("unshared", "kubernetes", options)
        wait_for(
            lambda: any(each["nodes"] == 2 for each in running.client.engines.list()),
            what="its nodes are offered",
        )
        yield running
        invariants.check(running)


def test_output_and_exit_code_come_home_and_nothing_stays(
    platform: Platform, kubernetes: Cluster
) -> None:
    said = platform.submit([sys.executable, "-c", "print('last line')"], engine="unshared")
    failed = platform.submit(
        [sys.executable, "-c", "raise SystemExit(7)"], engine="unshared", retry={"times": 0}
    )
    assert platform.wait(said, 120).state == "succeeded", platform.client.jobs.why(said.id)
    assert "last line" in platform.logs(said)
    assert platform.wait(failed, 120).state == "failed"
    assert "7" in platform.client.jobs.why(failed.id)["sentence"]

    def left() -> list[str]:
        return [
            each["metadata"]["name"]
            for kind in ("pods", "secrets")
            for job in (said, failed)
            for each in kubernetes.api.get(
                f"{BASE}/{kind}", labelSelector=f"windlass.dev/job={job.id}"
            )["items"]
        ]

    wait_for(lambda: not left(), 60, "pods and secrets are gone")
