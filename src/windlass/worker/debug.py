"""Looking into ranks that run: stacks, flame graphs, a debugger. On demand, or when they hang.

py-spy where it can be found (beside the job's Python, beside ours, on PATH) and may trace; else
the hook that each Python of the job listens with (`hook`).
"""

from __future__ import annotations

import os
import signal
import sys
import time

from windlass.worker import processes
from windlass.worker.launch import Launch
from windlass.worker.ranks import Rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

_STACK_SECONDS = 10.0
_MAX_TEXT = 512 * 1024
if hasattr(signal, "SIGRTMAX"):
    STACK_SIGNAL = int(signal.SIGRTMAX) - 3
    ATTACH_SIGNAL = int(signal.SIGRTMAX) - 4
else:
    STACK_SIGNAL = int(signal.SIGUSR2)
    ATTACH_SIGNAL = 0


class Unable(Exception):
    """It cannot be done here; the message says what is missing."""


class Debugger:
    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._folder = launch.path("debug")

    def stacks(self, ranks: List[Rank]) -> List[Dict[str, Any]]:
        """Every Python stack of each rank's process and its children."""
        running = [rank for rank in ranks if rank.running]
        # All of them must fit into one report.
        most = max(2000, _MAX_TEXT // max(1, len(running)))
        return [{"rank": rank.number, "text": self._stack(rank)[:most]} for rank in running]

    def profile(self, ranks: List[Rank], seconds: int) -> List[Dict[str, Any]]:
        """A flame graph of each rank, as SVG. Raises Unable."""
        spy = self._py_spy()
        if spy is None:
            raise Unable("py-spy is not installed: pip install 'windlass[debug]'")
        import subprocess

        running = []
        for rank in ranks:
            if rank.running:
                path = os.path.join(self._folder, "profile-%d.svg" % rank.number)
                command = [spy, "record", "-f", "flamegraph", "-s", "-d", str(seconds), "-o", path]
                command += ["-p", str(rank.pid)]
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
                running.append((rank, path, process))
        results = []
        for rank, path, process in running:
            try:
                _, trouble = process.communicate(timeout=seconds + 20)
            except subprocess.TimeoutExpired:
                process.kill()
                _, trouble = process.communicate()
            try:
                with open(path, encoding="utf-8") as file:
                    results.append({"rank": rank.number, "svg": file.read()})
            except OSError:
                words = trouble.decode("utf-8", "replace").strip()[-500:]
                results.append({"rank": rank.number, "svg": "", "error": words})
        if not any(each["svg"] for each in results):
            raise Unable(
                "; ".join(str(each.get("error", "")) for each in results) or "no rank runs"
            )
        return results

    def attach(self, ranks: List[Rank]) -> List[Dict[str, Any]]:
        """Start debugpy in each rank; where an IDE can connect. Raises Unable."""
        results = []
        for rank in ranks:
            if rank.running:
                place = self._attach(rank)
                host, _, port = place.rpartition(":")
                results.append({"rank": rank.number, "host": host, "port": int(port)})
        return results

    def _stack(self, rank: Rank) -> str:
        parts = []
        for pid in self._pythons(rank):
            text = self._spied(pid) or self._hooked(pid)
            if text:
                parts.append("process %d\n%s" % (pid, text.rstrip()))
        return "\n\n".join(parts).replace(
            "\0", "?"
        ) or "no Python stack could be read (%s)" % _state(rank.pid)

    def _pythons(self, rank: Rank) -> List[int]:
        """The rank's process first, then those of its children that listen to the hook."""
        children = [each.pid for each in processes.descendants(rank.pid)]
        return [rank.pid, *(pid for pid in children if os.path.exists(self._stack_file(pid)))]

    def _spied(self, pid: int) -> str:
        spy = self._py_spy()
        if spy is None:
            return ""
        stopped = _state(pid) == "stopped"
        # A stopped process cannot be paused and resumed: read it as it lies.
        return _output([spy, "dump", *(["--nonblocking"] if stopped else []), "--pid", str(pid)])

    def _hooked(self, pid: int) -> str:
        path = self._stack_file(pid)
        try:
            before = os.stat(path).st_size
            os.kill(pid, STACK_SIGNAL)
        except OSError:
            return ""
        deadline = time.monotonic() + 2.0
        size = before
        while time.monotonic() < deadline:
            time.sleep(0.02)
            now = os.stat(path).st_size
            if now == size and now > before:
                break
            size = now
        with open(path, "rb") as file:
            file.seek(before)
            return file.read(_MAX_TEXT).decode("utf-8", "replace")

    def _attach(self, rank: Rank) -> str:
        answer = os.path.join(self._folder, "attach-%d.txt" % rank.pid)
        if os.path.exists(answer):
            os.unlink(answer)
        if ATTACH_SIGNAL and os.path.exists(self._stack_file(rank.pid)):
            os.kill(rank.pid, ATTACH_SIGNAL)
            deadline = time.monotonic() + 10.0
            while time.monotonic() < deadline:
                if os.path.exists(answer):
                    with open(answer) as file:
                        text = file.read()
                    if text == "missing":
                        raise Unable(
                            "debugpy is not in the job's Python: pip install 'windlass[debug]'"
                        )
                    if text.startswith("failed"):
                        raise Unable("debugpy did not start: %s" % text)
                    return text
                time.sleep(0.02)
        raise Unable(
            "rank %d does not listen for a debugger (not Python, or busy outside of it)"
            % rank.number
        )

    def _stack_file(self, pid: int) -> str:
        return os.path.join(self._folder, "stack-%d.txt" % pid)

    def _py_spy(self) -> Optional[str]:
        folders = os.environ.get("PATH", "").split(os.pathsep)
        for python in (sys.executable, self._launch.python):
            if python:
                folders.insert(0, os.path.dirname(os.path.abspath(python)))
        for folder in folders:
            path = os.path.join(folder, "py-spy")
            if os.access(path, os.X_OK):
                return path
        return None


def lay_hook(launch: Launch) -> str:
    """Write the hook where a rank's Python will find it; the folder for PYTHONPATH."""
    folder = launch.path("debug", "hook")
    os.makedirs(folder, 0o700, exist_ok=True)
    # Through the loader, since our own source may lie inside a zipapp.
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook.py")
    loader: Any = __spec__.loader
    with open(os.path.join(folder, "sitecustomize.py"), "wb") as file:
        file.write(loader.get_data(source))
    return folder


def _state(pid: int) -> str:
    found = processes.stat(pid)
    if found is None:
        return "gone"
    return {"T": "stopped", "t": "stopped", "D": "in the kernel", "Z": "ended"}.get(
        found.state, "running"
    )


def _output(command: List[str]) -> str:
    import subprocess

    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        found, _ = process.communicate(timeout=_STACK_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        found, _ = process.communicate()
    return found.decode("utf-8", "replace")
