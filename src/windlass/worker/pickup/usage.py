"""What ranks and their node use, second by second, seen from outside: nothing in the job helps.

A minute of a rank is one thing: names, and for each 60 numbers (float32, NaN where nothing was
seen), since a row for each number would be a thousand rows a minute. It is sent whole with every
beat until it is over, so a repeat is the same, and one that is lost is made good by the next. What
the server could not take yet waits on disk.
"""

from __future__ import annotations

import array
import base64
import json
import math
import os
import sys
import time

from windlass.worker import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from windlass.worker.pickup.nvml import Nvml
    from windlass.worker.ranks import Rank

SECONDS = 60
LOOK_SECONDS = 5.0
"""How often all processes are looked through for children of the ranks."""
MOST_SENT = 64


class Minute:
    def __init__(self, rank: int, start: int) -> None:
        self.rank = rank
        self.start = start
        self.values: Dict[str, array.array[float]] = {}

    def put(self, second: int, found: Dict[str, float]) -> None:
        for name, value in found.items():
            series = self.values.get(name)
            if series is None:
                series = self.values[name] = array.array("f", [math.nan] * SECONDS)
            series[second] = value

    def wire(self) -> Dict[str, Any]:
        names = sorted(self.values)
        packed = array.array("f")
        for name in names:
            packed.extend(self.values[name])
        if sys.byteorder == "big":
            packed.byteswap()
        data = base64.b64encode(packed.tobytes()).decode("ascii")
        return {"rank": self.rank, "minute_ms": self.start * 1000, "names": names, "data": data}


class Kept:
    """Minutes on their way: the current ones in memory, those that wait for long on disk. `put`
    comes from one thread, `sending` and `taken` from another."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._open: Dict[int, Minute] = {}
        self._closed: List[Minute] = []
        self._changed = False
        self._sent: List[Minute] = []
        self._sent_files: List[str] = []

    def put(self, rank: int, now: int, found: Dict[str, float]) -> None:
        start = now - now % SECONDS
        minute = self._open.get(rank)
        if minute is None or minute.start != start:
            if minute is not None:
                self._closed.append(minute)
            minute = self._open[rank] = Minute(rank, start)
        minute.put(now % SECONDS, found)
        self._changed = True
        if len(self._closed) > 4 * max(1, len(self._open)):
            self._put_aside()

    @property
    def waiting(self) -> bool:
        return self._changed or bool(self._closed)

    def sending(self) -> List[Dict[str, Any]]:
        """What a beat is to carry; call `taken` when it has arrived."""
        self._changed = False
        self._sent = self._closed[:MOST_SENT]
        found = [minute.wire() for minute in [*self._sent, *self._open.values()]]
        self._sent_files = []
        for path in self._files()[: max(0, MOST_SENT - len(found))]:
            try:
                with open(path, encoding="ascii") as file:
                    found.append(json.load(file))
            except (OSError, ValueError):
                pass  # cut short by a full disk: it is of no use
            self._sent_files.append(path)
        return found

    def taken(self) -> None:
        self._closed = [minute for minute in self._closed if minute not in self._sent]
        for path in self._sent_files:
            try:
                os.unlink(path)
            except OSError:
                pass
        self._sent, self._sent_files = [], []

    def _put_aside(self) -> None:
        """The server is away: what is over goes to disk, so that memory stays as it is."""
        minutes = [each for each in self._closed if each not in self._sent]
        for minute in minutes:
            path = os.path.join(self._folder, "%d-%d.json" % (minute.start, minute.rank))
            try:
                os.makedirs(self._folder, 0o700, exist_ok=True)
                with open(path, "w", encoding="ascii") as file:
                    json.dump(minute.wire(), file)
            except OSError:
                pass
        self._closed = [each for each in self._closed if each in self._sent]

    def _files(self) -> List[str]:
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return []
        return [os.path.join(self._folder, name) for name in names if name.endswith(".json")]


class Sampler:
    """Looks at the ranks, once a second. For one thread."""

    def __init__(self, kept: Kept, nvml: Optional[Nvml]) -> None:
        self._kept = kept
        self._nvml = nvml
        self._trees: Dict[int, List[int]] = {}
        self._next_look = 0.0
        self._before: Dict[int, Tuple[int, int, int]] = {}
        self._node_before: Dict[str, float] = {}
        self._at = 0.0

    def sample(self, ranks: List[Rank], node: bool) -> None:
        """`node`: what the whole machine uses too, with the first of the ranks."""
        now, second = time.monotonic(), int(time.time())
        running = [rank for rank in ranks if rank.running]
        if not running or not processes.LINUX:
            return
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            present = processes.everyone()
            self._trees = {
                rank.pid: [
                    rank.pid,
                    *(each.pid for each in processes.descendants(rank.pid, present)),
                ]
                for rank in running
            }
        elapsed = now - self._at if self._at else 0.0
        self._at = now
        seen: Dict[int, Tuple[int, int, int]] = {}
        for rank in running:
            found = self._of_tree(self._trees.get(rank.pid) or [rank.pid], elapsed, seen)
            for place, gpu in enumerate(rank.member.gpu_ids if self._nvml else ()):
                assert self._nvml is not None
                for name, value in self._nvml.of(gpu).items():
                    found["gpu%d_%s" % (place, name)] = value
            if node and rank is running[0]:
                found.update(self._of_node(elapsed))
            self._kept.put(rank.number, second, found)
        self._before = seen

    def _of_tree(
        self, pids: List[int], elapsed: float, seen: Dict[int, Tuple[int, int, int]]
    ) -> Dict[str, float]:
        """Of a process with all below it: rates since the last look, and what it holds now."""
        cpu_ms = read = written = rss = count = 0
        for pid in pids:
            about = processes.stat(pid)
            if about is None or about.state in "ZX":
                continue
            count += 1
            rss += about.rss_bytes
            bytes_read, bytes_written = _disk_of(pid)
            seen[pid] = now = (about.cpu_ms, bytes_read, bytes_written)
            before = self._before.get(pid, (0, 0, 0) if self._before else now)
            cpu_ms += max(0, now[0] - before[0])
            read += max(0, now[1] - before[1])
            written += max(0, now[2] - before[2])
        found = {"memory_bytes": float(rss), "processes": float(count)}
        if elapsed > 0:
            most = 100.0 * (os.cpu_count() or 1)
            found["cpu_percent"] = min(most, cpu_ms / elapsed / 10)
            found["disk_read_bytes"] = read / elapsed
            found["disk_write_bytes"] = written / elapsed
        return found

    def _of_node(self, elapsed: float) -> Dict[str, float]:
        counted = {**_network(), **_processors()}
        before, self._node_before = self._node_before, counted
        found = _memory()
        if elapsed > 0 and before:
            for name, value in counted.items():
                if name in before:
                    found[name] = max(0.0, value - before[name]) / elapsed
        return found


def _disk_of(pid: int) -> Tuple[int, int]:
    """Bytes that a process has had read from and written to disks so far."""
    try:
        with open("/proc/%d/io" % pid, "rb") as file:
            lines = file.read().split(b"\n")
        numbers = {name: value for name, _, value in (line.partition(b": ") for line in lines)}
        return int(numbers[b"read_bytes"]), int(numbers[b"write_bytes"])
    except (OSError, KeyError, ValueError):
        return 0, 0


def _network() -> Dict[str, float]:
    """Bytes of all interfaces but the loopback, since they came up."""
    received = sent = 0
    try:
        with open("/proc/net/dev", encoding="ascii") as file:
            for line in file.readlines()[2:]:
                name, _, numbers = line.partition(":")
                if name.strip() != "lo":
                    words = numbers.split()
                    received += int(words[0])
                    sent += int(words[8])
    except (OSError, ValueError, IndexError):
        return {}
    return {"node_network_in_bytes": float(received), "node_network_out_bytes": float(sent)}


def _processors() -> Dict[str, float]:
    """Time that the machine's processors were busy, so that its rate is in percent of one."""
    try:
        with open("/proc/stat", "rb") as file:
            words = file.readline().split()
    except OSError:
        return {}
    user, nice, system, _, _, interrupts, soft = (int(word) for word in words[1:8])
    ticks = user + nice + system + interrupts + soft
    return {"node_cpu_percent": 100.0 * ticks / os.sysconf("SC_CLK_TCK")}


def _memory() -> Dict[str, float]:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split()[:2] for line in file)
        return {
            "node_memory_bytes": (int(found["MemTotal:"]) - int(found["MemAvailable:"])) * 1024.0
        }
    except (OSError, KeyError, ValueError):
        return {}
