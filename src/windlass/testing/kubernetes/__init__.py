"""A real Kubernetes of several nodes on this machine, for tests.

    if why := missing(): pytest.skip(why)
    with Cluster(tmp_path, nodes=2) as cluster:      # about 20 s
        cluster.api.get("/api/v1/nodes")
        cluster.power_off("node2")

`tools/kubernetes-build` builds its programs, once.
"""

from windlass.testing.kubernetes.cluster import Cluster
from windlass.testing.kubernetes.programs import missing

__all__ = ["Cluster", "missing"]
