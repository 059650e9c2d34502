"""Where a process stands: on the platform, off it, below launchers; how it is asked to stop."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import windlass.job
from windlass.job.context import read


def nowhere(name: str, world_size: int) -> Path:
    return Path("local") / name


def test_on_the_platform_the_environment_is_the_truth(job: Any) -> None:
    environment = {
        **job.environment(rank=2, world_size=4),
        "WINDLASS_ROLE": "chief",
        "WINDLASS_DEADLINE": "1700000000000",
        "WINDLASS_TOKEN": "secret",
        "RANK": "9",
    }
    here = read(environment, nowhere)
    assert here.on_platform and (here.job_name, here.attempt) == ("brisk-otter", 3)
    assert (here.role, here.rank, here.world_size, here.local_rank) == ("chief", 2, 4, 2)
    assert (here.run_dir, here.checkpoint_dir) == (job.run_dir, job.checkpoints)
    assert here.deadline_ms == 1700000000000
    left = here.seconds_left()
    assert left is not None and left < 0
    assert "secret" not in repr(here)


def test_off_the_platform_ranks_come_from_the_launcher() -> None:
    here = read({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, nowhere)
    assert not here.on_platform
    assert (here.rank, here.world_size, here.local_rank, here.spool_rank) == (1, 2, 1, 1)
    assert read({}, nowhere).world_size == 1


def test_a_senseless_variable_is_named() -> None:
    with pytest.raises(ValueError, match="WINDLASS_RANK should be an integer, found 'one'"):
        read({"WINDLASS_RANK": "one"}, nowhere)


def alone(code: str, folder: Path, **extra: str) -> str:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WINDLASS_")}
    script = folder / "train.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**kept, **extra},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_off_the_platform_nothing_is_created_before_something_is_written(tmp_path: Path) -> None:
    alone("import windlass; windlass.context(); windlass.resume_from(local=True)", tmp_path)
    assert not (tmp_path / "windlass-runs").exists()
    alone("import windlass; windlass.log(loss=1)", tmp_path)
    (folder,) = (tmp_path / "windlass-runs").iterdir()
    assert "-train-" in folder.name
    assert {path.name for path in folder.iterdir()} == {"run.json", "spool-0.jsonl"}


def test_off_the_platform_a_run_resumes_only_when_asked(tmp_path: Path) -> None:
    save = "import windlass\nwith windlass.checkpoint({0}) as p: (p / 'f').write_text('{0}')\n"
    alone(save.format(1), tmp_path)
    alone(save.format(2), tmp_path)
    show = "import windlass; found = windlass.resume_from({}); print(found and found.name)"
    assert alone(show.format(""), tmp_path) == "None\n"
    assert alone(show.format("local=True"), tmp_path) == "step-000000000002-000001\n"


def test_the_ranks_of_a_local_gang_share_one_folder(tmp_path: Path) -> None:
    code = """
import os, subprocess, sys
if "RANK" not in os.environ:
    os.environ["WORLD_SIZE"] = "2"
    children = [
        subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": rank})
        for rank in "01"
    ]
    assert [child.wait() for child in children] == [0, 0]
else:
    import windlass
    windlass.log(step=1, loss=1)
    with windlass.checkpoint(5, ranks="all", timeout_seconds=30) as path:
        (path / "part").write_text(os.environ["RANK"])
"""
    alone(code, tmp_path)
    (folder,) = (tmp_path / "windlass-runs").iterdir()
    assert sorted(path.name for path in folder.glob("spool-*")) == [
        "spool-0.jsonl",
        "spool-1.jsonl",
    ]
    saved = folder / "checkpoints" / "step-000000000005-000001"
    assert [(saved / f"rank-{rank}" / "part").read_text() for rank in range(2)] == ["0", "1"]


def test_a_forked_child_may_have_another_rank_but_has_the_same_folder(tmp_path: Path) -> None:
    code = """
import os, windlass
windlass.log(step=1, loss=1)
if os.fork() == 0:
    os.environ["RANK"] = "1"
    windlass.log(step=1, loss=1)
    os._exit(0)
assert os.wait()[1] == 0
"""
    alone(code, tmp_path)
    (folder,) = (tmp_path / "windlass-runs").iterdir()
    assert len(list(folder.glob("spool-*"))) == 2


LOOP = """
import signal, sys, windlass
{before}
windlass.context(watch_stop=True)
print("ready", flush=True)
while not windlass.should_stop():
    signal.pause()
with windlass.checkpoint(1) as path:
    (path / "file").write_text("saved in the grace")
print("left")
"""


@pytest.mark.parametrize(
    ("before", "printed"),
    [
        ("", "left\n"),
        (
            "signal.signal(signal.SIGTERM, lambda *_: print('theirs', flush=True))",
            "theirs\nleft\n",
        ),
    ],
)
def test_a_loop_that_watches_saves_and_leaves_on_sigterm(
    job: Any, before: str, printed: str
) -> None:
    process = job.start(LOOP.format(before=before), 0, 1)
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (0, printed, "")
    assert (job.checkpoints / "step-000000000001-000003" / "file").exists()


def test_without_watching_sigterm_is_the_users_own(job: Any) -> None:
    done = job.run(
        "import os, signal, windlass; windlass.context(); os.kill(os.getpid(), signal.SIGTERM)",
        check=False,
    )
    assert done.returncode == -signal.SIGTERM


def test_watching_from_another_thread_is_an_error_with_words(job: Any) -> None:
    code = """
import threading, windlass
def watch():
    try: windlass.context(watch_stop=True)
    except RuntimeError as error: print(error)
thread = threading.Thread(target=watch); thread.start(); thread.join()
"""
    assert "must be called from the main thread" in job.run(code).stdout


def test_importing_windlass_imports_nothing_else() -> None:
    code = """
import sys
before = set(sys.modules)
import windlass
print(sorted(set(sys.modules) - before))
windlass.log; windlass.context; windlass.checkpoint; windlass.should_stop
loaded = {name.partition(".")[0] for name in set(sys.modules) - before} - {"windlass"}
print(sorted(loaded - set(sys.stdlib_module_names)))
ours = {name.split(".")[1] for name in sys.modules if name.startswith("windlass.")}
print(sorted(ours - {"job"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['__future__', 'windlass']", "[]", "[]"]


def test_the_public_names_are_the_documented_ones() -> None:
    assert [name for name in dir(windlass) if not hasattr(windlass, name)] == []
    assert dir(windlass) == sorted(
        "CheckpointError CheckpointFenced Client Context __version__ checkpoint context log "
        "predictions progress resume_from should_stop".split()
    )
    with pytest.raises(AttributeError, match="no attribute 'logg'"):
        _ = windlass.logg  # type: ignore[attr-defined]


def test_every_module_parses_as_python_3_8() -> None:
    for path in [Path(windlass.__file__), *Path(windlass.job.__file__).parent.glob("*.py")]:
        ast.parse(path.read_text(), feature_version=(3, 8))
