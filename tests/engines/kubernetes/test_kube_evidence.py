"""What follows from a worker's folder and from its pod."""

from __future__ import annotations

from pathlib import Path

from windlass.engines.base import NodeLaunch, Sight
from windlass.engines.directory import Directory
from windlass.engines.kubernetes.evidence import Places


def test_a_pod_that_was_made_after_the_cluster_was_asked_is_not_deleted(tmp_path: Path) -> None:
    places = Places(tmp_path, "kubernetes", 60.0)
    place = Directory(tmp_path, "a" * 32, "node1")
    places.lay_down([place], [NodeLaunch("node1", {"api": 1}, "token")])
    before = places.launched([place])
    places.remember([place])  # the pod is made now
    assert places.see(place, None, {}, before).sight is Sight.STARTING
    after = places.launched([place])
    seen = places.see(place, None, {}, after)
    assert seen.sight is Sight.DEAD and seen.reason == "its pod was deleted"
