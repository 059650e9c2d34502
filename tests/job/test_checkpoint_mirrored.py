"""Checkpoints in a folder that only this node sees: the server is asked, the worker sends them."""

from __future__ import annotations

from typing import Any

from windlass.job.manifest import name_of

SAVE = """
import windlass
with windlass.checkpoint({step}{words}) as path:
    (path / "model.bin").write_bytes(b"weights")
"""
GATHERED = """
from windlass.job.checkpoint import gathered
known = {}
with gathered(3, known) as path:
    (path / "mine.bin").write_bytes(b"mine")
    known["rank-1/theirs.bin"] = {"path": "rank-1/theirs.bin", "bytes": 4, "digest": "0" * 64}
"""


def test_one_that_is_still_to_be_sent_is_said_to_be_so(job: Any, registry: Any) -> None:
    job.url, job.extra = registry.url, {"WINDLASS_MIRRORED": "1"}
    job.run(SAVE.format(step=4, words=""))
    assert [(each["step"], each["mirrored"]) for each in registry.taken] == [(4, True)]
    job.url = "http://127.0.0.1:9"  # discard: nobody listens
    job.run(SAVE.format(step=5, words=""))
    notes = [line for line in job.lines() if line["kind"] == "checkpoint"]
    assert [(note["step"], note["mirrored"]) for note in notes] == [(5, True)]


def test_ranks_of_several_nodes_cannot_save_together_there(job: Any, registry: Any) -> None:
    job.url = registry.url
    job.extra = {"WINDLASS_MIRRORED": "1", "WINDLASS_NUM_NODES": "2"}
    done = job.run(SAVE.format(step=4, words=', ranks="all"'), check=False)
    assert done.returncode == 1 and "all 2 nodes share" in done.stderr
    assert not registry.taken


def test_a_part_that_is_not_there_is_no_part_of_a_checkpoint(job: Any, registry: Any) -> None:
    """Another process wrote it on a disk of its own: what is here would be half of it."""
    job.url = registry.url
    done = job.run(GATHERED, check=False)
    assert done.returncode == 1 and "rank-1/theirs.bin" in done.stderr
    assert not registry.taken and not (job.checkpoints / name_of(3, 3)).exists()
