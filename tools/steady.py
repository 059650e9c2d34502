"""Runs tests many times on a machine that is kept busy, and counts what failed.

    python tools/steady.py [--times 20] tests/worker/test_worker_services.py …

Two busy loops and a `dd` that writes stand for the neighbours that a test has elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from suite import SUITES, Run
from suite_left import Room

_BUSY = "while True: pass"
_WRITING = "while :; do dd if=/dev/zero of={} bs=1M count=200 conv=fsync status=none; done"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--lanes", type=int, default=3)
    asked, tests = parser.parse_known_args()
    failed: Counter[str] = Counter()
    said: dict[str, str] = {}
    for turn in range(1, asked.times + 1):
        room = Room()
        with busy():
            found = Run(room, SUITES["test"], tests).once(asked.lanes)
        for test, why in found.items():
            failed[test] += 1
            said[test] = why
        print(f"turn {turn} of {asked.times}: {len(found)} failed", flush=True)
        room.close()
    for test, times in failed.most_common():
        print(f"{times} of {asked.times}  {test}\n    {said[test]}")
    return 1 if failed else 0


@contextlib.contextmanager
def busy() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        commands = [[sys.executable, "-c", _BUSY]] * 2
        commands.append(["sh", "-c", _WRITING.format(Path(folder) / "written")])
        running = [subprocess.Popen(each, start_new_session=True) for each in commands]
        try:
            yield
        finally:
            for each in running:
                subprocess.run(["kill", "-KILL", "--", f"-{each.pid}"], check=False)
                each.wait()


if __name__ == "__main__":
    sys.exit(main())
