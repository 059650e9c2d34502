"""How every benchmark here measures: contestants take turns, medians count, ratios are told.

A shared machine has no steady second. So what is compared runs in the same minute, in turns
(a b a b …, each once unmeasured before), and the claim is a ratio of medians, never a time.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    claim: str
    ours: str
    peer: str
    ratio: str
    goal: str
    met: bool | None
    """None: told, without a goal."""

    @property
    def verdict(self) -> str:
        return {True: "PASS", False: "MISS", None: "told"}[self.met]


def at_most(
    claim: str, ours: float, peer: float, goal: float, show: Callable[[float], str]
) -> Row:
    ratio = ours / peer
    return Row(claim, show(ours), show(peer), f"{ratio:.2f}x", f"≤ {goal:g}x", ratio <= goal)


def at_least(
    claim: str, ours: float, peer: float, goal: float, show: Callable[[float], str]
) -> Row:
    ratio = ours / peer
    return Row(claim, show(ours), show(peer), f"{ratio:.2f}x", f"≥ {goal:g}x", ratio >= goal)


def below(claim: str, value: float, goal: float, show: Callable[[float], str]) -> Row:
    return Row(claim, show(value), "", "", f"≤ {show(goal)}", value <= goal)


def interleave(
    contestants: Mapping[str, Callable[[], float]], rounds: int, *, warm: bool = True
) -> dict[str, list[float]]:
    """What each measured of itself, in turns."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    if warm:
        for run in contestants.values():
            run()
    for _ in range(rounds):
        for name, run in contestants.items():
            found[name].append(run())
    return found


def median(values: list[float]) -> float:
    return statistics.median(values)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2f} ms"


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def per_second(value: float) -> str:
    return f"{value:,.0f}/s"


def megabytes(value: float) -> str:
    return f"{value / 1e6:.1f} MB"


def cpu_seconds(pid: int, *, children: bool = False) -> float:
    """CPU time of all threads of a process, to the nanosecond; with its reaped children's."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    spent = sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
    if children:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent += (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return spent


def memory_bytes(pid: int, what: str = "VmRSS") -> int:
    """`VmRSS` now, or `VmHWM`: the most it ever was."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"process {pid} tells no {what}")


@contextmanager
def folder() -> Iterator[Path]:
    """A place on the disk this checkout is on, removed afterwards."""
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="bench-") as path:
        yield Path(path)


def table(rows: list[Row]) -> str:
    """Markdown, aligned so that it reads in a terminal too."""
    head = ("claim", "windlass", "peer or probe", "ratio", "goal", "")
    lines = [head, *((r.claim, r.ours, r.peer, r.ratio, r.goal, r.verdict) for r in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    drawn = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    ]
    drawn.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(drawn)


def machine() -> str:
    """What ran this, in words that say nothing of where."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}"
    )


def script(body: Callable[[], list[Row]]) -> None:
    """The `main` of each file."""
    print(table(body()))


def windlass(home: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    """The installed command as a user calls it, and its environment."""
    return [str(Path(sys.executable).with_name("windlass")), *words], {
        **{k: v for k, v in os.environ.items() if not k.startswith("WINDLASS_")},
        "WINDLASS_HOME": str(home),
    }


def first_line_seconds(
    command: list[str], wanted: str, *, env: Mapping[str, str], cwd: Path, limit: float = 120
) -> float:
    """Seconds from starting a process to reading `wanted` in a line of its stdout."""
    import time

    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=dict(env), cwd=cwd, text=True, errors="replace",
    )  # fmt: skip
    found = None
    heard = []
    assert process.stdout is not None
    for line in process.stdout:
        heard.append(line)
        if found is None and line.strip() == wanted:
            found = time.perf_counter() - began
    process.stdout.close()
    errors = process.stderr.read() if process.stderr else ""
    process.wait(limit)
    if found is None:
        raise RuntimeError(f"{command[0]} never said {wanted!r}: {''.join(heard)}{errors}"[-2000:])
    return found
