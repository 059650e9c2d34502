"""What an operator may say of a Kubernetes engine."""

from __future__ import annotations

import pytest

from windlass.core.errors import InvalidInput
from windlass.engines.kubernetes.offers import Choice, Toleration
from windlass.engines.kubernetes.options import KNOWN, checked
from windlass.engines.kubernetes.pods import Share, Volume


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"imgae": "x"}, "options.imgae"),
        ({"image": "a b"}, "options.image.*'a b'"),
        ({"namespace": "Jobs"}, "options.namespace.*'Jobs'"),
        ({"share": "disk"}, "options.share: host, none, pvc.*'disk'"),
        ({"share": "pvc:"}, "options.share"),
        ({"share": "nfs:files:relative"}, "options.share"),
        ({"share": "nfs:files:/a/../b"}, "options.share"),
        ({"volumes": "/data"}, "options.volumes: host:/PATH"),
        ({"volumes": "host:/"}, "options.volumes"),
        ({"volumes": "host:data"}, "options.volumes"),
        ({"node-selector": "gpu"}, "options.node-selector: KEY=VALUE"),
        ({"tolerations": "gpu:Never"}, "options.tolerations.*NoSchedule"),
        ({"tolerations": "=x"}, "options.tolerations"),
        ({"gpu-resource": "gpu"}, "options.gpu-resource.*nvidia.com/gpu"),
        ({"devices": "rdma/hca=0"}, "options.devices"),
        ({"devices": "rdma=1"}, "options.devices"),
        ({"pod-group": "slurm"}, "options.pod-group: one of volcano, coscheduling, kueue"),
        ({"owner": "Deployment/x"}, "options.owner"),
        ({"kubeconfig": "config"}, "options.kubeconfig: a full path"),
        ({"url": "ftp://x"}, "options.url"),
        ({"lease": "1"}, "options.lease: seconds from 5 to 3600"),
        ({"poll": "nan"}, "options.poll"),
        ({"python": "a b"}, "options.python"),
    ],
)
def test_what_cannot_be_is_told_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        checked(given)


def test_options_are_read_as_they_are_meant() -> None:
    found = checked({
        "share": "pvc:home:/shared", "volumes": "host:/data:ro, pvc:sets:/sets", "poll": "5",
        "tolerations": "gpu=yes:NoSchedule,:NoExecute", "node-selector": "a.b/c=d,empty=",
        "url": "http://10.0.0.1:7400/",
    })  # fmt: skip
    ask = found["ask"]
    assert ask.share == Share("pvc", "home", "/shared")
    assert ask.volumes == (
        Volume(Share("host"), "/data", True),
        Volume(Share("pvc", "sets"), "/sets"),
    )
    assert ask.choice == Choice(
        (("a.b/c", "d"), ("empty", "")),
        (Toleration("gpu", "yes", "NoSchedule"), Toleration("", None, "NoExecute")),
    )
    assert found["poll_seconds"] == 5.0 and found["url"] == "http://10.0.0.1:7400"


def test_every_option_is_on_the_page() -> None:
    from pathlib import Path

    page = Path(__file__).parents[3] / "docs" / "how-to" / "kubernetes.md"
    text = page.read_text()
    assert [key for key in KNOWN if f"`{key}`" not in text] == []
