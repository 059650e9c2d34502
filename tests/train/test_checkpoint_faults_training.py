"""R-I5, R-F14 to R-F16 for trainings: a kill at any moment of a write, a disk that refuses, files
that were harmed: the checkpoint before is there, and is what a run goes on from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from alone import Alone, make

import windlass.train as wt
from windlass.job.manifest import in_order, newest, verify

HERE = Path(__file__).parent
IN_CHILDREN = '''
"""Trains in forked children, each with one harm more; prints what became of each as JSON."""
import json, os, resource, shutil, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from alone import Alone, make
import windlass.train as wt
import windlass.train.comm.torchdist.dcp
from windlass.job.manifest import in_order, newest, verify
from windlass.train.state.checkpoint import opened
from windlass.train.state.stored import read

points = range(1, 200, int(sys.argv[2]))
base = Path(sys.argv[1])

def train(folder, steps):
    wt.fit(make, Alone(), steps=steps, checkpoint=folder, save_every=2, keep=2, progress=False)

def die_at(folder, wanted):
    """SIGKILL at the n-th change of the folder: a file opened to write, a sync, a name changed."""
    seen = [0]
    def count():
        seen[0] += 1
        if seen[0] == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
    def hook(event, args):
        if event == "open" and isinstance(args[0], (str, os.PathLike)) and args[2] is not None:
            writes = args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and str(args[0]).startswith(str(folder)):
                count()
        elif event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir"):
            if str(args[0]).startswith(str(folder)):
                count()
    sys.addaudithook(hook)
    sync = os.fsync
    def fsync(descriptor):
        count()
        sync(descriptor)
    os.fsync = fsync

def child(work):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work() or 0
        except BaseException as err:
            print(type(err).__name__, err, file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def harmed(kind, folder, number):
    if kind == "kill":
        die_at(folder, number)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))
    train(folder, 6)

found = {"kill": [], "disk": []}
assert child(lambda: train(base / "0", 4)) == 0
for kind, number in [("disk", n) for n in (50, 2000, 8000)] + [("kill", n) for n in points]:
    folder = base / kind / str(number)
    shutil.copytree(base / "0", folder)
    code = child(lambda: harmed(kind, folder, number))
    for path in in_order(folder):
        verify(path)
    best = newest(folder).newest
    state = read(opened(best.path))
    assert state["windlass"]["steps"] == best.step and state["model"]
    found[kind].append({"number": number, "code": code, "step": best.step})
    if code == 0:
        break
print(json.dumps(found))
'''


Found = dict[str, list[dict[str, int]]]


@pytest.fixture(scope="module")
def children(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Found, str]:
    """At every point; at every third of them where slow tests are left out."""
    folder = tmp_path_factory.mktemp("runs")
    every = "3" if "not slow" in request.config.option.markexpr else "1"
    done = subprocess.run(
        [sys.executable, "-c", IN_CHILDREN, str(folder), every],
        capture_output=True, text=True, timeout=600, check=False, cwd=HERE,
        env={**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_a_kill_at_any_change_of_the_folder_leaves_a_good_newest(
    children: tuple[Path, Found, str],
) -> None:
    """R-F15."""
    folder, found, _ = children
    kills = [each for each in found["kill"] if each["code"] == -9]
    assert len(kills) >= 5 and found["kill"][-1]["code"] == 0, found
    steps = [each["step"] for each in kills]
    assert steps == sorted(steps) and set(steps) == {4, 6}, "before the commit, and after it"
    # and one of them goes on to the end
    one = folder / "kill" / str(kills[len(kills) // 2]["number"])
    again = wt.fit(make, Alone(), steps=6, checkpoint=one, save_every=2, progress=False)
    whole = wt.fit(make, Alone(), steps=6, progress=False)
    for name, value in whole.state.items():
        assert torch.equal(again.state[name], value), name


def test_a_disk_that_takes_no_more_ends_with_words_and_keeps_the_one_before(
    children: tuple[Path, Found, str],
) -> None:
    """R-F14."""
    _, found, told = children
    assert [(each["code"], each["step"]) for each in found["disk"]] == [(1, 4)] * 3, found
    lines = [line for line in told.splitlines() if line.startswith("CheckpointError")]
    assert len(lines) == 3, told[-3000:]
    for line in lines:
        assert "checkpoint of step 6 was not saved" in line, line
        assert "File too large" in line and "the one before it is untouched" in line, line


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(("harm", "target"), [
    (flip, "__0_0.distcp"), (flip, ".metadata"), (cut_short, "__0_0.distcp"),
    (cut_short, "worker-0.pt"), (Path.unlink, ".metadata"), (cut_short, "manifest.json"),
])  # fmt: skip
def test_a_harmed_newest_is_told_and_the_one_before_is_taken(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], harm: Any, target: str
) -> None:
    """R-F16."""
    on: dict[str, Any] = {"checkpoint": tmp_path, "save_every": 2, "progress": False}
    wt.fit(make, Alone(), steps=4, **on)
    harm(in_order(tmp_path)[0] / target)
    run = wt.fit(make, Alone(), steps=6, **on)
    told = capfd.readouterr().err
    assert "step-000000000004-000001 is not used" in told
    assert run.result.losses[0].step == 3, "from step 2 on"
    found = newest(tmp_path).newest
    assert found is not None and found.step == 6
    verify(found.path)
