"""Looking into ranks that run: stacks, flame graphs, a debugger. On demand, or when they hang.

py-spy where it can be found (beside the job's Python, beside ours, on PATH) and may trace; else
the hook that each Python of the job listens with (`hook`).
"""

from __future__ import annotations

import base64
import os
import re
import signal
import stat
import sys
import time

from windlass.worker import beneath, processes
from windlass.worker.launch import Launch
from windlass.worker.ranks import Rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

_STACK_SECONDS = 10.0
_TRACE_SECONDS = 60.0
"""For a profiler to begin, and to write what it saw: on a busy machine each takes long."""
_MAX_TEXT = 512 * 1024
_MAX_TRACE = 8 * 2**20
"""All of them in one answer; a larger one stays among the job's files."""
_TRACE_NAME = re.compile(
    r"torch-[0-9]{1,12}-[0-9]{1,12}\.pt\.trace\.json\.gz"
    r"|tf-[0-9]{1,12}-[0-9]{1,12}/plugins/profile/[0-9_]{1,40}/[A-Za-z0-9._-]{1,200}\.xplane\.pb"
)
if hasattr(signal, "SIGRTMAX"):
    STACK_SIGNAL = int(signal.SIGRTMAX) - 3
    ATTACH_SIGNAL = int(signal.SIGRTMAX) - 4
    TRACE_SIGNAL = int(signal.SIGRTMAX) - 5
else:
    STACK_SIGNAL = int(signal.SIGUSR2)
    ATTACH_SIGNAL = TRACE_SIGNAL = 0


class Unable(Exception):
    """It cannot be done here; the message says what is missing."""


class Debugger:
    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._folder = launch.path("debug")
        # What the ranks write into; we only read there, and follow nothing.
        self._theirs = launch.path("debug", "ranks")

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
        if self._launch.network == "none":
            raise Unable("the job has no network: nothing outside could reach its debugger")
        results = []
        for rank in ranks:
            if rank.running:
                place = self._attach(rank)
                host, _, port = place.rpartition(":")
                results.append({"rank": rank.number, "host": host, "port": int(port)})
        return results

    def trace(self, ranks: List[Rank], seconds: int) -> List[Dict[str, Any]]:
        """What the profiler of torch or TensorFlow saw in each process of the ranks that uses one:
        the name of its file among the job's, and its bytes where they are few. Raises Unable."""
        asked = {
            pid: rank
            for rank in ranks
            if rank.running and TRACE_SIGNAL
            for pid in self._pythons(rank)
            if os.path.exists(self._stack_file(pid))
        }
        answers = self._toggle(list(asked), _TRACE_SECONDS)
        begun = [pid for pid in asked if answers[pid] == "begun"]
        if not begun:
            raise Unable(
                "no rank listens that has imported torch or TensorFlow, and is in Python now and "
                "then"
            )
        time.sleep(seconds)
        room = _MAX_TRACE
        results: List[Dict[str, Any]] = []
        for pid, name in self._toggle(begun, _TRACE_SECONDS).items():
            found: Dict[str, Any] = {"rank": asked[pid].number, "pid": pid}
            if _TRACE_NAME.fullmatch(name):
                data = self._trace_of(name, room)
                room -= len(data)
                found["file"] = "profiles/" + name
                found["data"] = base64.b64encode(data).decode()
            else:
                found["error"] = name[:500] or "it did not answer in time"
            results.append(found)
        return results

    def _toggle(self, pids: List[int], seconds: float) -> Dict[int, str]:
        """Tell the profiler of each process to begin or to end; what they answer until then."""
        answers: Dict[int, str] = {}
        for pid in pids:
            answers[pid] = ""
            path = self._trace_answer(pid)
            if os.path.lexists(path):
                os.unlink(path)
            os.kill(pid, TRACE_SIGNAL)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not all(answers.values()):
            for pid in pids:
                if not answers[pid] and os.path.lexists(self._trace_answer(pid)):
                    answers[pid] = _text_of(self._trace_answer(pid))
            time.sleep(0.02)
        return answers

    def _trace_answer(self, pid: int) -> str:
        return os.path.join(self._theirs, "trace-%d.txt" % processes.inner_pid(pid))

    def _trace_of(self, name: str, most: int) -> bytes:
        opened = beneath.opened(self._launch.path("out"), ["profiles", *name.split("/")])
        if opened is None:
            return b""
        with open(opened, "rb") as file:
            found = os.fstat(opened)
            plain = stat.S_ISREG(found.st_mode) and found.st_size <= most
            return file.read(most) if plain else b""

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
            before = os.lstat(path).st_size
            os.kill(pid, STACK_SIGNAL)
        except OSError:
            return ""
        deadline = time.monotonic() + 2.0
        size = before
        while time.monotonic() < deadline:
            time.sleep(0.02)
            now = os.lstat(path).st_size
            if now == size and now > before:
                break
            size = now
        return _text_of(path, before)

    def _attach(self, rank: Rank) -> str:
        pid = processes.inner_pid(rank.pid)
        answer = os.path.join(self._theirs, "attach-%d.txt" % pid)
        if os.path.lexists(answer):
            os.unlink(answer)
        if ATTACH_SIGNAL and os.path.exists(self._stack_file(rank.pid)):
            os.kill(rank.pid, ATTACH_SIGNAL)
            deadline = time.monotonic() + 10.0
            while time.monotonic() < deadline:
                if os.path.lexists(answer):
                    text = _text_of(answer)
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
        return os.path.join(self._theirs, "stack-%d.txt" % processes.inner_pid(pid))

    def _py_spy(self) -> Optional[str]:
        folders = os.environ.get("PATH", "").split(os.pathsep)
        # One beside the job's Python may be the job's own: never to be run by root.
        theirs = None if self._launch.level else self._launch.python
        for python in (sys.executable, theirs):
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
    os.makedirs(launch.path("debug", "ranks"), 0o700, exist_ok=True)
    # Through the loader, since our own source may lie inside a zipapp.
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook.py")
    loader: Any = __spec__.loader
    with open(os.path.join(folder, "sitecustomize.py"), "wb") as file:
        file.write(loader.get_data(source))
        os.fchmod(file.fileno(), 0o644)
    return folder


def _text_of(path: str, offset: int = 0) -> str:
    """What a rank has written; nothing of what is no plain file."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return ""
        return os.pread(opened, _MAX_TEXT, offset).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(opened)


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
