"""The writer and the reader of checkpoints, in real processes, against a real server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import windlass.job.manifest
from windlass.job.manifest import BadCheckpoint, name_of, newest, sweep, verify

SAVE = """
import windlass
for step in {steps}:
    with windlass.checkpoint(step) as path:
        (path / "model.bin").write_bytes(b"weights of %d" % step * 1000)
        (path / "deep").mkdir()
        (path / "deep" / "optimizer.bin").write_bytes(b"state")
"""
RESUME = "import windlass; print(windlass.resume_from())"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_checkpoint_is_whole_named_digested_and_registered(job: Any, registry: Any) -> None:
    job.url = registry.url
    job.run(SAVE.format(steps=[40]))
    path = job.checkpoints / "step-000000000040-000003"
    manifest = json.loads((path / "manifest.json").read_text())
    assert [entry["path"] for entry in manifest["files"]] == ["deep/optimizer.bin", "model.bin"]
    assert (manifest["api"], manifest["job_id"], manifest["attempt"]) == (1, "a" * 32, 3)
    assert names(job.checkpoints) == [path.name]
    found = verify(path)
    assert registry.taken == [
        {
            "path": str(path),
            "step": 40,
            "attempt": 3,
            "digest": manifest["digest"],
            "bytes": found.size_bytes,
        }
    ]
    assert registry.tokens == ["Bearer secret"]


def test_the_three_newest_are_kept(job: Any, registry: Any) -> None:
    job.url = registry.url
    job.run(SAVE.format(steps=[1, 2, 3, 4, 5]))
    assert names(job.checkpoints) == [name_of(step, 3) for step in (3, 4, 5)]


def test_keep_is_a_setting_and_never_below_two(job: Any, registry: Any) -> None:
    job.url, job.extra = registry.url, {"WINDLASS_CHECKPOINT_KEEP": "1"}
    job.run(SAVE.format(steps=[1, 2, 3]))
    assert names(job.checkpoints) == [name_of(2, 3), name_of(3, 3)]


def test_with_the_server_away_the_newest_registered_one_stays(job: Any, registry: Any) -> None:
    job.url = registry.url
    job.run(SAVE.format(steps=[1]))
    job.url = "http://127.0.0.1:9"  # discard: nobody listens
    job.attempt = 4
    job.extra = {"WINDLASS_RESUME_FROM": str(job.checkpoints / name_of(1, 3))}
    job.run(SAVE.format(steps=[2, 3, 4, 5]))
    assert names(job.checkpoints) == [name_of(1, 3), *(name_of(step, 4) for step in (3, 4, 5))]
    notes = [line for line in job.lines() if line["kind"] == "checkpoint"]
    assert [(note["step"], note["attempt"]) for note in notes] == [(2, 4), (3, 4), (4, 4), (5, 4)]
    assert notes[-1]["digest"] == verify(Path(notes[-1]["path"])).digest


@pytest.mark.parametrize("status", [409, 401])
def test_a_fenced_checkpoint_leaves_nothing_visible(job: Any, registry: Any, status: int) -> None:
    job.url = registry.url
    job.run(SAVE.format(steps=[1]))
    registry.status = status
    done = job.run(SAVE.format(steps=[2]), check=False)
    assert "CheckpointFenced: checkpoint of step 2 refused: attempt 3" in done.stderr
    assert names(job.checkpoints) == [name_of(1, 3)]


def test_a_server_error_is_not_a_fence(job: Any, registry: Any) -> None:
    job.url, registry.status = registry.url, 503
    job.run(SAVE.format(steps=[1]))
    assert names(job.checkpoints) == [name_of(1, 3)]
    assert [line["kind"] for line in job.lines()] == ["checkpoint"]


def test_an_exception_in_the_block_passes_through_and_leaves_nothing(job: Any) -> None:
    code = """
import windlass
with windlass.checkpoint(1) as path:
    (path / "half").write_text("x")
    raise KeyError("mine")
"""
    done = job.run(code, check=False)
    assert "KeyError: 'mine'" in done.stderr
    assert names(job.checkpoints) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("pass", "nothing was written into its folder"),
        ("(path / 'manifest.json').write_text('x')", "choose another name"),
        ("(path / 'link').symlink_to('/etc/hostname')", "files and folders only, found link"),
    ],
)
def test_what_is_no_checkpoint_is_refused_with_words(job: Any, body: str, words: str) -> None:
    done = job.run(
        f"import windlass\nwith windlass.checkpoint(1) as path:\n    {body}", check=False
    )
    assert "CheckpointError" in done.stderr and words in done.stderr
    assert names(job.checkpoints) == []


def test_saving_a_step_twice_keeps_the_first_and_says_so(job: Any) -> None:
    code = """
import windlass
for text in ("first", "second"):
    with windlass.checkpoint(7) as path:
        (path / "file").write_text(text)
"""
    done = job.run(code)
    assert "step 7 was already saved" in done.stderr
    assert names(job.checkpoints) == [name_of(7, 3)]
    assert (job.checkpoints / name_of(7, 3) / "file").read_text() == "first"


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("harm", "target"),
    [
        (_flip, "model.bin"),
        (_flip, "manifest.json"),
        (_truncate, "model.bin"),
        (_truncate, "manifest.json"),
        (Path.unlink, "model.bin"),
        (Path.unlink, "manifest.json"),
        (shutil.rmtree, "deep"),
    ],
)
def test_a_harmed_newest_falls_back_to_the_previous(job: Any, harm: Any, target: str) -> None:
    """R-F16."""
    job.run(SAVE.format(steps=[1, 2]))
    bad = job.checkpoints / name_of(2, 3)
    harm(bad / target)
    job.attempt, job.extra = 4, {"WINDLASS_RESUME_FROM": str(bad)}
    done = job.run(RESUME)
    assert done.stdout.strip() == str(job.checkpoints / name_of(1, 3))
    assert f"{bad} is not used" in done.stderr
    assert [(line["kind"], line["path"]) for line in job.lines()] == [("bad-checkpoint", str(bad))]
    scan = newest(job.checkpoints)
    assert scan.newest is not None and scan.newest.step == 1
    assert [found.path for found in scan.bad] == [bad]


def test_a_manifest_that_points_outside_is_bad(job: Any) -> None:
    job.run(SAVE.format(steps=[1]))
    path = job.checkpoints / name_of(1, 3)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][0]["path"] = "../../secret"
    manifest["digest"] = windlass.job.manifest.digest_of_list(manifest["files"])
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadCheckpoint, match="outside"):
        verify(path)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", '{"api": 1}', '{"files": [1]}', '{"files": 5, "step": 1}']
)
def test_a_senseless_manifest_is_bad_and_no_crash(tmp_path: Path, text: str) -> None:
    path = tmp_path / name_of(1, 1)
    path.mkdir()
    (path / "manifest.json").write_text(text)
    assert [bad.path for bad in newest(tmp_path).bad] == [path]


def test_without_resume_from_the_platform_starts_afresh(job: Any) -> None:
    job.run(SAVE.format(steps=[1]))
    assert job.run(RESUME).stdout.strip() == "None"


def test_newest_means_the_newest_attempt_before_the_highest_step(job: Any) -> None:
    job.run(SAVE.format(steps=[60]))
    job.attempt = 4
    job.run(SAVE.format(steps=[50]))
    found = newest(job.checkpoints).newest
    assert found is not None and (found.attempt, found.step) == (4, 50)


def test_sweep_removes_only_what_older_attempts_left(tmp_path: Path) -> None:
    for name in (".tmp-2-10-ab", ".tmp-3-10-cd", ".tmp-10-1-gang", name_of(1, 2), ".other"):
        (tmp_path / name).mkdir()
    assert [path.name for path in sweep(tmp_path, 3)] == [".tmp-2-10-ab"]
    assert names(tmp_path) == [".other", ".tmp-10-1-gang", ".tmp-3-10-cd", name_of(1, 2)]
    assert sweep(tmp_path / "none", 3) == []


def test_the_format_runs_alone_as_one_file(job: Any, tmp_path: Path) -> None:
    job.run(SAVE.format(steps=[1, 2]))
    alone = tmp_path / "alone.py"
    shutil.copy(windlass.job.manifest.__file__, alone)
    command = [sys.executable, "-I", "-S", str(alone)]

    def answer(*arguments: str) -> Any:
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    assert answer("newest", str(job.checkpoints))["newest"]["step"] == 2
    (job.checkpoints / ".tmp-1-1-x").mkdir()
    assert answer("sweep", str(job.checkpoints), "3") == {
        "removed": [str(job.checkpoints / ".tmp-1-1-x")]
    }
    _flip(job.checkpoints / name_of(2, 3) / "model.bin")
    done = subprocess.run(
        [*command, "verify", str(job.checkpoints / name_of(2, 3))], capture_output=True, text=True
    )
    assert done.returncode == 1 and "digest of model.bin does not match" in done.stderr
