"""Four real ranks on one folder: all parts in one manifest, or no checkpoint."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from windlass.job import context
from windlass.job.gang import Gang
from windlass.job.manifest import name_of, newest, sweep

SAVE = """
import os, signal, sys, windlass
rank = windlass.context().rank
for step in (10, 20):
    # Ranks come to the first one as far apart as processes start.
    patience = 60 if step == 10 else {timeout}
    with windlass.checkpoint(step, ranks="all", timeout_seconds=patience) as path:
        (path / "shard.bin").write_bytes(b"%d of %d" % (rank, step) * 500)
        if (rank, step) == ({rank}, 20):
            {harm}
    print("saved", step, flush=True)
"""
NONE = "pass"


def gang(job: Any, code: str, world_size: int = 4) -> list[tuple[int, str, str]]:
    processes = [job.start(code, rank, world_size) for rank in range(world_size)]
    try:
        return [
            (process.returncode, *output)
            for process in processes
            for output in [process.communicate(timeout=120)]
        ]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("first-try") / "checkpoints"


@pytest.fixture
def tried(job: Any, kept: Path) -> Any:
    """A job whose rank 3 was killed at step 20; who wants it finds what the first one left."""
    if kept.exists():
        shutil.copytree(kept, job.checkpoints)
        return job
    gang(job, SAVE.format(timeout=3, rank=3, harm="os.kill(os.getpid(), signal.SIGKILL)"))
    shutil.copytree(job.checkpoints, kept)
    return job


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.startswith("step-"))


def test_all_ranks_make_one_checkpoint(job: Any, registry: Any) -> None:
    job.url = registry.url
    results = gang(job, SAVE.format(timeout=60, rank=-1, harm=NONE))
    assert [(code, out) for code, out, _ in results] == [(0, "saved 10\nsaved 20\n")] * 4, results
    found = newest(job.checkpoints).newest
    assert found is not None and found.step == 20
    manifest = json.loads((found.path / "manifest.json").read_text())
    assert [entry["path"] for entry in manifest["files"]] == [
        f"rank-{rank}/shard.bin" for rank in range(4)
    ]
    assert registry.steps() == [10, 20], "registered once, by rank 0"
    # The record of the last save stays for ranks that still read it; of earlier ones nothing.
    assert [path.name for path in job.checkpoints.glob(".tmp-*")] == [".tmp-3-20-gang"]
    assert len(sweep(job.checkpoints, 4)) == 1


@pytest.mark.parametrize("killed", [1, 3])
def test_a_rank_killed_in_the_middle_leaves_no_manifest(
    job: Any, registry: Any, killed: int
) -> None:
    job.url = registry.url
    harm = "os.kill(os.getpid(), signal.SIGKILL)"
    results = gang(job, SAVE.format(timeout=3, rank=killed, harm=harm))
    for rank, (code, _, err) in enumerate(results):
        if rank == killed:
            assert code == -9
        else:
            assert code == 1 and "CheckpointError" in err, err
    assert f"no part came within 3 s from rank {killed} of 4" in results[0][2]
    assert names(job.checkpoints) == [name_of(10, 3)]
    assert registry.steps() == [10]


def test_rank_0_killed_in_the_middle_leaves_no_manifest(job: Any) -> None:
    harm = "os.kill(os.getpid(), signal.SIGKILL)"
    results = gang(job, SAVE.format(timeout=3, rank=0, harm=harm))
    assert [code for code, _, _ in results] == [-9, 1, 1, 1]
    assert all("rank 0 did not commit within 3 s" in err for _, _, err in results[1:])
    assert names(job.checkpoints) == [name_of(10, 3)]


@pytest.mark.parametrize("failed", [0, 2])
def test_an_exception_on_one_rank_is_told_to_all_at_once(job: Any, failed: int) -> None:
    """With a limit of 600 s: only being told ends this within the test's patience."""
    results = gang(job, SAVE.format(timeout=600, rank=failed, harm="raise KeyError('mine')"))
    for rank, (code, _, err) in enumerate(results):
        assert code == 1
        expected = "KeyError: 'mine'" if rank == failed else f"rank {failed} failed: KeyError"
        assert expected in err
    assert names(job.checkpoints) == [name_of(10, 3)]


def test_all_ranks_learn_that_they_are_fenced(job: Any, registry: Any) -> None:
    job.url, registry.status = registry.url, 409
    results = gang(job, SAVE.format(timeout=60, rank=-1, harm=NONE))
    assert all("CheckpointFenced" in err for _, _, err in results)
    assert names(job.checkpoints) == []


def test_what_a_first_try_of_the_same_step_left_is_never_mixed_in(tried: Any) -> None:
    """Same attempt, same step again (an elastic gang): old parts carry another nonce."""
    job = tried
    left = job.checkpoints / ".tmp-3-20-gang"
    assert (left / "part-1.json").exists(), "the first try left parts behind"
    (left / "data" / "rank-7").mkdir()
    (left / "data" / "rank-7" / "shard.bin").write_text("from a larger gang")
    again = SAVE.replace("(10, 20)", "(20,)").replace("500", "700")
    results = gang(job, again.format(timeout=60, rank=-1, harm=NONE), world_size=3)
    assert [code for code, _, _ in results] == [0, 0, 0], results
    found = newest(job.checkpoints).newest
    assert found is not None and found.step == 20
    assert sorted(path.name for path in found.path.iterdir()) == [
        "manifest.json",
        "rank-0",
        "rank-1",
        "rank-2",
    ]
    for rank in range(3):
        shard = (found.path / f"rank-{rank}" / "shard.bin").read_bytes()
        assert shard == b"%d of 20" % rank * 700


def test_rank_0_counts_no_part_of_an_earlier_try(tried: Any) -> None:
    job = tried
    again = SAVE.replace("(10, 20)", "(20,)").format(timeout=0.5, rank=-1, harm=NONE)
    alone = job.start(again, 0, 4)
    _, err = alone.communicate(timeout=60)
    assert alone.returncode == 1
    assert "no part came within 0.5 s from rank 1, 2, 3 of 4" in err
    assert names(job.checkpoints) == [name_of(10, 3)]


def test_who_begins_the_next_save_at_once_loses_nothing_to_the_end_of_this_one(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 still tidies up when the others, whom it has told, save again."""

    def side(rank: int, step: int) -> Gang:
        return Gang(context.read(job.environment(rank, 2), lambda *_: job.run_dir), step, 60)

    (job.checkpoints / ".tmp-3-5-gang").mkdir(parents=True)
    first, other = side(0, 10), side(1, 10)
    first.enter(), other.enter()
    began: list[Path] = []
    publish = Gang._publish

    def publish_and_go_on(gang: Gang, name: str, record: dict[str, Any]) -> None:
        publish(gang, name, record)
        if gang is first and record.get("saved"):
            (side(1, 20).enter() / "shard.bin").touch()
            began.extend(job.checkpoints.glob(".tmp-3-20-gang/data/rank-1/shard.bin"))

    monkeypatch.setattr(Gang, "_publish", publish_and_go_on)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(other.leave, lambda tree, files: None)
        first.leave(lambda tree, files: None)
        waits.result(60)
    assert len(began) == 1 and began[0].exists()
    left = sorted(path.name for path in job.checkpoints.glob(".tmp-*-gang"))
    assert left == [".tmp-3-10-gang", ".tmp-3-20-gang"], "what was before is gone"


def test_a_gang_of_one_uses_the_same_layout(job: Any) -> None:
    ((code, _, err),) = gang(job, SAVE.format(timeout=60, rank=-1, harm=NONE), world_size=1)
    assert code == 0, err
    assert (job.checkpoints / name_of(20, 3) / "rank-0" / "shard.bin").exists()


def test_ranks_that_all_save_for_themselves_leave_one_good_checkpoint(job: Any) -> None:
    """A script that forgot `if rank == 0`: wasteful, told on stderr, harmless."""
    code = """
import windlass
with windlass.checkpoint(5) as path:
    (path / "model.bin").write_bytes(b"%d" % windlass.context().rank * 10000)
"""
    results = gang(job, code)
    assert [returned for returned, _, _ in results] == [0] * 4, results
    assert names(job.checkpoints) == [name_of(5, 3)]
    assert newest(job.checkpoints).bad == []
    assert sum("was already saved" in err for _, _, err in results) == 3
    assert not list(job.checkpoints.glob(".tmp-*"))
