"""Clean-up of files that scripts wrote: nothing outside the job's folder is ever touched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from windlass.server.checkpoints import files


def test_a_file_goes_and_with_the_last_one_its_folder(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for name in ("one", "two"):
        (inner / name).touch()
    files.unlink(tmp_path, ["a", "b", "one"])
    assert (inner / "two").exists()
    files.unlink(tmp_path, ["a", "b", "two"])
    assert not inner.exists() and (tmp_path / "a").exists()
    (tmp_path / "top").touch()
    files.unlink(tmp_path, ["top"])
    files.unlink(tmp_path, ["nothing", "x"])
    assert tmp_path.exists() and not (tmp_path / "top").exists()


def test_a_folder_that_a_job_swaps_for_a_link_meanwhile_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = tmp_path / "job", tmp_path / "other"
    (job / "a" / "b").mkdir(parents=True)
    (job / "a" / "b" / "file").touch()
    (other / "b").mkdir(parents=True)
    really = os.unlink

    def unlink(*words: Any, **named: Any) -> None:
        really(*words, **named)
        (job / "a").rename(job / "gone")
        (job / "a").symlink_to(other)

    monkeypatch.setattr(files.os, "unlink", unlink)
    files.unlink(job, ["a", "b", "file"])
    assert (other / "b").is_dir(), "another's empty folder stays"
    assert not (job / "gone" / "b").exists()
