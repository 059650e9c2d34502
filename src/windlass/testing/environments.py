"""A virtual environment for each real framework, made once and kept.

    python = environment("xgboost", "xgboost==3.2.0", "numpy")

What pip chooses is held by a lock, `tests/locks/<name>.txt`, where there is one;
`WINDLASS_TEST_LOCKS=write` takes the newest that the requirements allow and writes it anew.

They lie in `$WINDLASS_TEST_CACHE`, or in `.cache/envs` of the checkout, one folder a name. The
stamp beside each folder says what is in it: another list of requirements, or a half-made folder,
makes it anew. A lock makes the second of two tests wait for the first instead of building twice.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

INSTALL_SECONDS = 900.0
LOCKS = Path(__file__).parents[3] / "tests" / "locks"


class Unavailable(Exception):
    """The environment cannot be made here; the message says why, for a test to skip with."""


def cache() -> Path:
    """The folder that holds all environments."""
    named = os.environ.get("WINDLASS_TEST_CACHE")
    return Path(named) if named else Path(__file__).parents[3] / ".cache" / "envs"


def environment(
    name: str,
    *requirements: str,
    python: str = sys.executable,
    pip_args: Sequence[str] = (),
) -> Path:
    """The Python of the environment `name` with these requirements. Raises Unavailable."""
    folder = cache() / name
    stamp = folder.with_name(name + ".stamp")
    # A Python has several names, and a new environment stands on the real one.
    base = os.path.realpath(shutil.which(python) or python)
    locked = LOCKS / f"{name}.txt"
    writes = os.environ.get("WINDLASS_TEST_LOCKS") == "write" and bool(requirements)
    holds = locked.exists() and not writes
    lock = locked.read_text() if holds else ""
    wanted = "\n".join([base, *pip_args, *requirements, lock]) + "\n"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_name(name + ".lock")):
        inside = folder / "bin" / "python"
        if stamp.exists() and stamp.read_text() == wanted and inside.exists():
            return inside
        stamp.unlink(missing_ok=True)
        if folder.exists():
            shutil.rmtree(folder)
        print(f"{name}: installing {' '.join(requirements)}", flush=True)
        started = time.monotonic()
        bare = [] if requirements else ["--without-pip"]
        _run(name, [python, "-m", "venv", *bare, str(folder)])
        pip = [str(inside), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        if requirements:
            held = ["--constraint", str(locked)] if holds else []
            _run(name, [*pip, "--retries", "2", *pip_args, *held, *requirements])
        if writes:
            locked.parent.mkdir(exist_ok=True)
            locked.write_text(_chosen(inside))
        stamp.write_text(wanted)
        print(f"{name}: ready after {time.monotonic() - started:.0f} s", flush=True)
        return inside


def _chosen(python: Path) -> str:
    """What is installed there, a line each; a build of its own version counts as its release."""
    words = [str(python), "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"]
    listed = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    lines = (line.partition("+")[0] for line in listed.splitlines())
    return "".join(f"{line}\n" for line in lines if not line.startswith(("pip==", "setuptools==")))


def _run(name: str, command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=INSTALL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"environment {name!r}: {error}") from error
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        told = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
        raise Unavailable(f"environment {name!r}: {' '.join(told) or 'pip failed'}")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
