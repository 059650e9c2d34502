"""The rows of checkpoints in both databases, and what a crash at any point of a removal leaves."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from windlass.core.errors import Conflict, InvalidInput, NotFound
from windlass.core.jobs import JobSpec, StartSpec
from windlass.job.manifest import list_and_sync, name_of, newest, write_manifest
from windlass.server.checkpoints import catalogue, files, starting
from windlass.server.checkpoints.rules import Scores
from windlass.server.jobs import service
from windlass.server.jobs.tables import checkpoints, starts
from windlass.server.storage.reading import Shelf


class Ground:
    """A job with checkpoints on disk and in rows."""

    def __init__(self, tenancy: Any, home: Path) -> None:
        self.tenancy, self.home = tenancy, home

    def folder(self, job_id: str) -> Path:
        return self.home / "jobs" / job_id / "checkpoints"

    def job_folder(self, job_id: str) -> Path:
        return self.home / "jobs" / job_id

    def save(self, job_id: str, *steps: int) -> None:
        for step in steps:
            path = self.folder(job_id) / name_of(step, 1)
            path.mkdir(parents=True)
            (path / "model").write_bytes(b"weights %d" % step)
            entries = list_and_sync(path)
            digest = write_manifest(path, job_id=job_id, attempt=1, step=step, files=entries)
            values = {
                "job_id": job_id, "path": str(path), "attempt": 1, "step": step,
                "digest": digest, "bytes": 9, "registered_ms": 0, "source": "windlass",
                "ranks": 0,
            }  # fmt: skip
            self.tenancy.write(lambda conn: conn.execute(insert(checkpoints).values(**values)))  # noqa: B023

    def listed(self, job_id: str) -> list[int]:
        rows = self.tenancy.read(lambda conn: catalogue.listing(conn, job_id))
        return [row["step"] for row in rows]

    def prepare(self, **asked: Any) -> starting.Start:
        spec = StartSpec.model_validate(asked)
        return self.tenancy.read(  # type: ignore[no-any-return]
            lambda conn: starting.prepare(conn, self.tenancy.who, spec, self.folder, service.find)
        )

    def submit(self, name: str, start: starting.Start) -> str:
        spec = JobSpec.model_validate(
            {"run": "true", "name": name, "start_from": {"job": "any", "step": 1}}
        )
        return self.tenancy.write(  # type: ignore[no-any-return]
            lambda conn: service.submit(
                conn, self.tenancy.who, spec, "python", key=None, digest="", now_ms=1, start=start
            )
        ).job_id


@pytest.fixture
def ground(tenancy: Any, tmp_path: Path) -> Ground:
    return Ground(tenancy, tmp_path / "home")


def test_old_ones_are_marked_and_vanish_from_the_list_before_their_files(ground: Ground) -> None:
    job = ground.tenancy.submit("one", outputs={"keep": 2})
    ground.save(job, 1, 2, 3, 4)
    count = ground.tenancy.write(lambda conn: catalogue.mark_superfluous(conn, job, Scores({}), 5))
    assert count == 2 and ground.listed(job) == [4, 3]
    going = ground.tenancy.read(lambda conn: catalogue.going(conn, None))
    assert [row["step"] for row in going] == [1, 2] or [row["step"] for row in going] == [2, 1]
    for row in going:
        files.remove(ground.folder(job), row["path"], row["attempt"], row["step"])
        files.remove(ground.folder(job), row["path"], row["attempt"], row["step"])  # repeatable
    ground.tenancy.write(lambda conn: catalogue.gone(conn, going, 7))
    assert not ground.tenancy.read(lambda conn: catalogue.going(conn, None))
    assert sorted(path.name for path in ground.folder(job).iterdir()) == [
        name_of(3, 1), name_of(4, 1),
    ]  # fmt: skip


def test_a_start_holds_its_checkpoint_and_one_that_is_going_cannot_be_started_from(
    ground: Ground,
) -> None:
    job = ground.tenancy.submit("one", outputs={"keep": 2})
    ground.save(job, 1, 2, 3)
    first, second = ground.prepare(job="one", step=1), ground.prepare(job="one", step=1)
    holder = ground.submit("holder", first)
    marked = ground.tenancy.write(
        lambda conn: catalogue.mark_superfluous(conn, job, Scores({}), 5)
    )
    assert marked == 0, "it is held"
    row = ground.tenancy.read(lambda conn: catalogue.listing(conn, job))[-1]
    with pytest.raises(Conflict, match="is what holder starts from"):
        ground.tenancy.write(lambda conn: catalogue.mark(conn, job, row, "", 5))
    ground.tenancy.write(lambda conn: catalogue.mark_all(conn, job, 6))
    with pytest.raises(NotFound, match="is being removed"):
        ground.submit("late", second)
    with pytest.raises(InvalidInput, match="start_from: job one has no checkpoint 1"):
        ground.prepare(job="one", step=1)
    asyncio.run(
        starting.release(
            ground.tenancy.store, ground.job_folder, job, 7, Shelf(ground.tenancy.store, None)
        )
    )
    kept = ground.tenancy.read(
        lambda conn: conn.execute(select(starts).where(starts.c.job_id == holder)).mappings().one()
    )
    assert kept["path"] is None
    assert (Path(kept["root"]) / "model").read_bytes() == b"weights 1"
    spec = ground.tenancy.read(lambda conn: service.find(conn, ground.tenancy.who, holder))["spec"]
    assert spec["start_from"]["job"] == job and spec["start_from"]["step"] == 1


def test_another_projects_job_is_not_there(ground: Ground) -> None:
    job = ground.tenancy.submit("one")
    ground.save(job, 1)
    other = b"other".hex().ljust(32, "0")
    ground.tenancy.who = replace(ground.tenancy.who, project_id=other, project_name="other")
    for ref in ("one", job):
        with pytest.raises(InvalidInput, match="no job"):
            ground.prepare(job=ref)


@pytest.mark.parametrize(
    ("word", "step"), [("latest", 3), ("2", 2), ("2.1", 2), ("9", None), ("2.7", None)]
)
def test_words_for_a_checkpoint(ground: Ground, word: str, step: int | None) -> None:
    job = ground.tenancy.submit("one")
    ground.save(job, 1, 2, 3)
    rows = ground.tenancy.read(lambda conn: catalogue.listing(conn, job))
    if step is None:
        with pytest.raises(NotFound, match="job one has no checkpoint") as caught:
            catalogue.find(rows, "one", word, None, Scores({}))
        assert caught.value.hint == "it has those of step 3, 2, 1"
    else:
        assert catalogue.find(rows, "one", word, None, Scores({}))["step"] == step
    with pytest.raises(InvalidInput, match="a step such as 4000, latest or best"):
        catalogue.find(rows, "one", "../../etc", None, Scores({}))


def test_what_a_kill_leaves_of_a_removal_is_no_torn_checkpoint(tmp_path: Path) -> None:
    """The three places, without the server: marked, renamed, half removed."""
    folder = tmp_path / "checkpoints"
    path = folder / name_of(4, 2)
    path.mkdir(parents=True)
    (path / "a").write_bytes(b"1")
    entry = {"path": "a", "bytes": 1, "digest": "0" * 64}
    write_manifest(path, job_id="j", attempt=2, step=4, files=[entry])
    (folder / ".tmp-2-4-rm-abcd").mkdir()
    path.rename(folder / ".tmp-2-4-rm-abcd" / "inner")
    assert newest(folder).newest is None and not newest(folder).bad
    files.remove(folder, str(path), 2, 4)
    assert list(folder.iterdir()) == []


def test_nothing_outside_the_jobs_folder_is_read_or_removed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "checkpoints", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "canary").write_text("canary")
    (outside / "manifest.json").write_text(json.dumps({"files": []}))
    link = folder / name_of(1, 1)
    link.symlink_to(outside)
    for path in (str(outside), str(folder / ".." / "outside"), str(link), "/", "x"):
        with pytest.raises(NotFound):
            files.manifest(folder, path)
        files.remove(folder, path, 1, 1)
    assert (outside / "canary").read_text() == "canary" and not link.exists()


def test_links_give_the_holder_files_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "one"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "a").write_text("1")
    (root / "b").symlink_to("/etc/hostname")
    target = tmp_path / "holder" / "start" / "files"
    with pytest.raises(NotFound):
        files.link(root, [{"path": "b"}], target)
    assert not target.exists() and not list(target.parent.iterdir())
    files.link(root, [{"path": "deep/a"}], target)
    files.link(root, [{"path": "deep/a"}], target)
    (root / "deep" / "a").unlink()
    assert (target / "deep" / "a").read_text() == "1"


@pytest.mark.parametrize("text", [
    "[" * 100_000, '{"files": [{"path": "a", "bytes": 1e999, "digest": "%s"}]}' % ("a" * 64),
    '{"files": [{"path": "\\ud800", "bytes": 1, "digest": "%s"}]}' % ("a" * 64), "[]", "\0",
    '{"files": [{"path": "../a", "bytes": 1, "digest": "%s"}]}' % ("a" * 64),
    '{"files": [{"path": "a", "bytes": 1, "digest": "a\\r\\nSet-Cookie: b"}]}',
], ids=lambda text: text[:40])  # fmt: skip
def test_a_manifest_that_user_code_spoilt_is_not_there(tmp_path: Path, text: str) -> None:
    path = tmp_path / name_of(1, 1)
    path.mkdir()
    (path / "manifest.json").write_text(text)
    with pytest.raises(NotFound):
        files.manifest(tmp_path, str(path))
