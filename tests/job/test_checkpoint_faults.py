"""R-F13, R-F14, R-F15: kills and failing disks at every call of a save, by strace."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.job.manifest import in_order, name_of, newest, sweep, verify

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

SAVE = """
import windlass
with windlass.checkpoint({step}) as path:
    (path / "model.bin").write_bytes(b"weights of %d" % {step} * 1000)
    (path / "deep").mkdir()
    (path / "deep" / "optimizer.bin").write_bytes(b"state")
"""
RESUME = "import windlass; print(windlass.resume_from())"
CALLS = ["write", "fsync", "rename", "mkdir", "unlinkat", "rmdir"]
MOST = 40  # a save makes fewer of any one of these calls


def strace(*options: str) -> tuple[str, ...]:
    return ("strace", "-f", "-qq", *options)


def until_it_meets_none(job: Any, step: int, call: str, harm: str) -> Iterator[Any]:
    """Save under harm at the 1st, 2nd, … such call, each as a new attempt, while one is met."""
    trace = job.home / "trace"
    for count in range(1, MOST):
        inject = f"inject={call}:{harm}:when={count}"
        done = job.run(
            SAVE.format(step=step),
            before=strace("-o", str(trace), "-e", f"trace={call}", "-e", inject),
            check=False,
        )
        met = "(INJECTED)" in trace.read_text() or done.returncode == -9
        if not met:
            assert done.returncode == 0, done.stderr
            return
        yield done
        job.attempt += 1
    raise AssertionError(f"a save makes {MOST} calls of {call} or more")


def check_never_torn(job: Any, registry: Any) -> None:
    """R-I5: the newest registered one opens, and what would be resumed is at least as new."""
    scan = newest(job.checkpoints)
    for path in in_order(job.checkpoints):
        verify(path)  # nothing torn has a final name, not even an old one that is being removed
    assert scan.newest is not None
    registered = registry.taken[-1]
    assert verify(Path(registered["path"])).digest == registered["digest"]
    assert (scan.newest.attempt, scan.newest.step) >= (registered["attempt"], registered["step"])


@pytest.mark.parametrize("call", CALLS)
def test_a_kill_at_any_call_of_a_save_leaves_a_good_newest(
    job: Any, registry: Any, call: str
) -> None:
    """R-F15. The save also prunes, so that the kill hits the removal of an old one as well."""
    job.url, job.extra = registry.url, {"WINDLASS_CHECKPOINT_KEEP": "2"}
    for step in (1, 2):
        job.run(SAVE.format(step=step))
    kills = 0
    for done in until_it_meets_none(job, 3, call, "signal=KILL"):
        kills += 1
        assert done.returncode == -9, done.stderr
        check_never_torn(job, registry)
        sweep(job.checkpoints, job.attempt + 1)
        assert not list(job.checkpoints.glob(".tmp-*"))
        expected = newest(job.checkpoints).newest
        assert expected is not None
        job.extra["WINDLASS_RESUME_FROM"] = str(expected.path)
        assert job.run(RESUME).stdout.strip() == str(expected.path)
        check_never_torn(job, registry)
    assert kills > 0, f"a save makes no {call} call: the test proves nothing"
    check_never_torn(job, registry)


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("call", ["write", "fsync", "rename", "mkdir"])
def test_a_failing_disk_never_registers_a_torn_checkpoint(
    job: Any, registry: Any, call: str, error: str
) -> None:
    """R-F13, R-F14: the save fails aloud, the one before stays, nothing is left behind."""
    job.url = registry.url
    job.run(SAVE.format(step=1))
    failures = 0
    for done in until_it_meets_none(job, 2, call, f"error={error}"):
        failures += 1
        assert done.returncode == 1, "the disk refused and the save passed"
        assert "CheckpointError" in done.stderr or "OSError" in done.stderr
        assert registry.steps() == [1], "registered although the disk refused"
        assert [path.name for path in job.checkpoints.iterdir()] == [name_of(1, 3)]
        check_never_torn(job, registry)
    assert failures > 0
    assert registry.steps() == [1, 2]


def test_everything_is_on_the_disk_before_the_rename_and_the_rename_before_registration(
    job: Any, registry: Any, tmp_path: Path
) -> None:
    """A kill cannot show a missing fsync (the page cache survives it); the order of calls can."""
    job.url = registry.url
    trace = tmp_path / "trace"
    calls = "trace=openat,write,fsync,rename,connect"
    job.run(
        SAVE.format(step=5),
        before=("strace", "-f", "-qq", "-y", "-o", str(trace), "-e", calls),
    )
    text = trace.read_text()
    temporary = re.search(re.escape(str(job.checkpoints)) + r"/\.tmp-3-5-\w+", text)
    assert temporary is not None
    root = temporary[0]
    events = [
        (match[1], match[2])
        for line in text.splitlines()
        for match in [
            re.search(r"(fsync|write)\(\d+<([^>]*)>", line)
            or re.search(r"(rename|connect)\((?:\"([^\"]*)|\d+)", line)
        ]
        if match
    ]
    renamed = events.index(("rename", root))
    for path in ("model.bin", "deep/optimizer.bin", "deep", "manifest.json"):
        target = f"{root}/{path}"
        synced = events.index(("fsync", target))
        assert synced < renamed, f"{path} is renamed before it is on the disk"
        assert ("write", target) not in events[synced:], f"{path} is written after its fsync"
    assert ("fsync", root) in events[events.index(("fsync", f"{root}/manifest.json")) : renamed]
    parent = events.index(("fsync", str(job.checkpoints)), renamed)
    assert parent < [kind for kind, _ in events].index("connect"), "registered before durable"
    manifest = events.index(("write", f"{root}/manifest.json"))
    assert manifest > events.index(("fsync", f"{root}/model.bin")), "the manifest is not last"


def test_a_full_disk_does_not_end_training_and_is_told_when_there_is_room(job: Any) -> None:
    """R-F13 for metrics: calls 3 to 5 find no room; stderr is told once."""
    code = """
import windlass
for step in range(8):
    windlass.log(step=step, loss=1.0)
"""
    done = job.run(
        code,
        before=strace(
            "-o",
            "/dev/null",
            "-P",
            str(job.run_dir / "spool-0.jsonl"),
            "-e",
            "trace=write",
            "-e",
            "inject=write:error=ENOSPC:when=3..5",
        ),
    )
    assert [(line["kind"], line.get("step"), line.get("lines")) for line in job.lines()] == [
        ("metric", 0, None),
        ("metric", 1, None),
        ("dropped", None, 3),
        *(("metric", step, None) for step in (5, 6, 7)),
    ]
    assert done.stderr.count("No space left on device") == 1


def test_a_really_full_file_system_ends_no_training(job: Any, tmp_path: Path) -> None:
    """A tmpfs of 64 kB, in a mount namespace of its own where the kernel allows one."""
    unshare = ("unshare", "--user", "--map-root-user", "--mount")
    if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    job.run_dir.mkdir()
    code = """
import json, os, subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", "run"], check=True)
import windlass
for step in range(3000):
    windlass.log(step=step, loss=1.0)
with open("run/spool-0.jsonl", "r+") as file:
    lines = file.read().splitlines()
    file.truncate(0)
windlass.log(step=9999, loss=2.0)
bad = 0
for line in lines:
    try: json.loads(line)
    except ValueError: bad += 1
assert bad <= 1, bad
last = open("run/spool-0.jsonl").read().splitlines()
assert json.loads(last[-1])["step"] == 9999, last
assert json.loads(last[-2])["kind"] == "dropped", last
print("trained")
"""
    done = job.run(code, before=unshare)
    assert "trained" in done.stdout
    assert done.stderr.count("training goes on") == 1
