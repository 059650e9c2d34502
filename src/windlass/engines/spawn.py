"""Start a worker so that it outlives us, and run its `reap` when it is gone."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from windlass.engines import needs
from windlass.engines.base import LaunchFailed
from windlass.engines.directory import Directory
from windlass.engines.processes import Identity, boot_id, identify

# What a worker, and through it a rank, may see of our environment (docs/internals/protocol.md).
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TERM")
_PASSED_ON_TOO = ("LD_LIBRARY_PATH", "SSL_CERT_FILE")
_PERMANENT = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR)


def worker_command(zipapp: Path, python: str = sys.executable) -> list[str]:
    """How the worker's zipapp is started.

    `-I`: no `PYTHON*` variable, user site or current directory may change what it imports.
    `-S`: it needs the standard library alone, so the search through site-packages and its `.pth`
    files, which grows with what is installed, is spared at each start.
    """
    return [python, "-I", "-S", str(zipapp)]


def minimal_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    names = (*_PASSED_ON, *_PASSED_ON_TOO)
    return {
        name: value for name, value in environ.items() if name in names or name.startswith("LC_")
    }


def spawn(command: Sequence[str], directory: Directory) -> Identity:
    """Start the worker of this directory, detached: own session, no descriptor of ours, nothing
    of our environment but the minimum. Raises LaunchFailed when there is no process."""
    log = os.open(
        directory.path / "worker.log",
        os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW,
        0o600,
    )
    try:
        # No preexec_fn: the interpreter may then use vfork, which costs the same in a small
        # process and in a big one, and is safe beside other threads.
        process = subprocess.Popen(
            [*command, "run", str(directory.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory.path,
            env=minimal_environment(),
            start_new_session=True,
            close_fds=True,
        )
    except OSError as err:
        raise launch_failed(f"{command[0]} cannot be started", err) from err
    finally:
        os.close(log)
    # Disowned: it is watched, and its status collected, through a pidfd, as for a worker that
    # another server started. Without this, Popen would warn when it is dropped.
    process.returncode = 0
    found = identify(process.pid)
    # Our child cannot be collected by anyone before we watch it, so it is there, if as a zombie.
    assert found is not None
    return Identity(process.pid, found.start_time, boot_id())


def reap(command: Sequence[str], directory: Directory, timeout_seconds: float) -> str:
    """Have the worker's own code kill what a dead worker left behind, and write a record if there
    is none. Empty when it did; else why not."""
    try:
        done = subprocess.run(
            [*command, "reap", str(directory.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env=minimal_environment(),
            timeout=timeout_seconds,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return f"clean-up did not finish within {timeout_seconds:g} s"
    except OSError as err:
        return f"clean-up could not be started: {err}"
    if done.returncode == 0:
        return ""
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"clean-up failed ({done.returncode}): {words[-1][:300] if words else 'no message'}"


def try_out(command: Sequence[str], attempts: Path) -> str:
    """Whether the worker can be started at all: it says what it takes. Empty, or why not."""
    try:
        done = subprocess.run(
            [*command, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, cwd=attempts, env=minimal_environment(), timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as err:
        return str(err)
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if done.returncode in (0, 2) else (words[-1][:300] if words else "it failed")


def launch_failed(what: str, err: OSError) -> LaunchFailed:
    need = needs.of(err)
    if need:
        return LaunchFailed(needs.sentence(need, err), need=need)
    return LaunchFailed(f"{what}: {err}", transient=err.errno not in _PERMANENT)
