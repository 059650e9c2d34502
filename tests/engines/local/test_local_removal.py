"""Whatever user code planted in its directory, it is removed, and nothing else is."""

from __future__ import annotations

import os
import socket
import traceback
from pathlib import Path

import pytest

from windlass.core.errors import InvalidInput
from windlass.engines.directory import remove_attempt, sweep
from windlass.engines.removal import remove_tree

ATTEMPT = "cd" * 16
NOBODY = 65534


def test_links_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("stay")
    attempts = tmp_path / "attempts"
    work = attempts / ATTEMPT / "local" / "work"
    work.mkdir(parents=True)
    (work / "directory").symlink_to(outside)
    (work / "file").symlink_to(outside / "precious")
    (work / "up").symlink_to("../../..")
    os.link(outside / "precious", work / "hard")
    remove_attempt(attempts, ATTEMPT)
    assert os.listdir(attempts) == []
    assert (outside / "precious").read_text() == "stay"


def test_an_attempt_that_is_a_link_is_only_unlinked(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    (attempts / ATTEMPT).symlink_to(outside)
    remove_attempt(attempts, ATTEMPT)
    assert os.listdir(attempts) == [] and (outside / "precious").exists()


def test_depth_odd_names_and_odd_kinds_do_not_matter(tmp_path: Path) -> None:
    local = tmp_path / ATTEMPT / "local"
    local.mkdir(parents=True)
    (local / ".lifted-0").mkdir()
    (local / ".lifted-1").touch()
    os.mkfifo(local / "pipe")
    with socket.socket(socket.AF_UNIX) as endpoint:
        here = os.getcwd()
        os.chdir(local)
        try:
            endpoint.bind("socket")
            (Path(os.fsdecode(b"\xff\xfe"))).touch()
            for _ in range(3000):  # far beyond the recursion limit and the longest path
                os.mkdir("deeper")
                os.chdir("deeper")
        finally:
            os.chdir(here)
    remove_attempt(tmp_path, ATTEMPT)
    assert os.listdir(tmp_path) == []


def test_directories_without_permissions_go_too(tmp_path: Path) -> None:
    """Root may do anything, so the removal is tried as an ordinary user, in a child."""
    if os.geteuid() == 0:
        os.chown(tmp_path, NOBODY, NOBODY)
    parent = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.fchdir(parent)
            os.makedirs("tree/closed/inner/deep")
            for name in ("tree/closed/inner/deep/file", "tree/closed/file"):
                Path(name).touch()
            os.chmod("tree/closed/inner/deep", 0)
            os.chmod("tree/closed/inner", 0)
            os.chmod("tree/closed", 0o500)
            remove_tree("tree", parent)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(parent)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.listdir(tmp_path) == []


def test_what_was_left_half_done_is_swept(tmp_path: Path) -> None:
    (tmp_path / f".trash-{ATTEMPT}-1234" / "local").mkdir(parents=True)
    (tmp_path / ATTEMPT / ".new-1234").mkdir(parents=True)
    (tmp_path / ("ef" * 16) / "local").mkdir(parents=True)
    (tmp_path / "not-ours").mkdir()
    sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(["ef" * 16, "not-ours"])


@pytest.mark.parametrize("name", ["..", ".", "", "x/y", "/", "../" + "a" * 29])
def test_only_an_attempts_id_is_ever_removed(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        remove_attempt(tmp_path, name)
