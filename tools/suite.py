"""Runs one of the suites: side by side in lanes, then what wants the machine to itself, then once
more, alone, what failed.

    python tools/suite.py test [--lanes 3] [PYTEST ARGUMENTS…]

What passes only the second time is UNSTEADY: a defect of the test or of the code, and named with
what it said. Up to three of them do not fail the suite; a failure that repeats does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from suite_left import Room
from suite_record import DURATIONS

NAMED = ("frameworks", "engines", "browser", "training", "gpu", "soak")
"""Suites of their own: a marker each. What bears none of them is in `make test`."""
SUITES = {
    "test": " and ".join(f"not {name}" for name in NAMED),
    "quick": " and ".join(f"not {name}" for name in ("slow", *NAMED)),
    **{name: name if name == "soak" else f"{name} and not soak" for name in NAMED},
    "all": "",
}
QUICK_S = 160.0
"""Of tests one after the other, for two minutes of three lanes and of looking for tests."""
MOST_UNSTEADY = 3
MOST_RUN_AGAIN = 20
_ROOT = Path(__file__).resolve().parent.parent
_NOTHING_TO_RUN = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--lanes", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help=f"write {DURATIONS.name} anew")
    asked, more = parser.parse_known_args()
    began = float(os.environ.get("SUITE_BEGAN", time.time()))
    installed = time.time() - began
    room = Room()
    run = Run(room, SUITES[asked.suite], more + (quick() if asked.suite == "quick" else []))
    status = run.all(asked.lanes)
    left, doubtful = room.left()
    if left and not status:
        status = 1  # a test ends what it started
    print(run.summary())
    for each in left:
        print(f"LEFT BEHIND {each}")
    for each in doubtful:
        print(f"left behind, perhaps by others who test here: {each}")
    print(f"{asked.suite}: {_clock(time.time() - began)}, of which {_clock(installed)} to set up")
    if asked.keep:
        run.keep(asked.suite)
    room.close()
    return status


def quick() -> list[str]:
    """The files that took least, as many as fit."""
    files, left = [], QUICK_S
    known: dict[str, float] = json.loads(DURATIONS.read_text())["test"]
    for file, took in sorted(known.items(), key=lambda each: each[1]):
        left -= took
        if left < 0:
            break
        files.append(file)
    return files


class Run:
    def __init__(self, room: Room, marked: str, more: list[str]) -> None:
        self._folder = room.folder
        self._environment = room.environment()
        self._marked = marked
        self._more = more
        self._broken = 0
        self._unsteady: list[str] = []
        self._seconds: Counter[str] = Counter()

    def all(self, lanes: int) -> int:
        failed = self.once(lanes)
        if self._broken or not failed:
            return self._broken
        if len(failed) > MOST_RUN_AGAIN:
            print(f"{len(failed)} tests failed: too many to be a matter of luck")
            return 1
        return self._again(failed)

    def once(self, lanes: int) -> dict[str, str]:
        """What failed, and what it said."""
        beside = ["-n", str(lanes), "--dist", "loadfile", "--no-loadscope-reorder"]
        failed: dict[str, str] = {}
        phases = [("beside", "not alone", beside if lanes > 1 else [])]
        if alone := _files_with("pytest.mark.alone"):  # only to look for them takes long
            phases.append(("alone", "alone", [] if self._more else alone))
        for name, marker, how in phases:
            marked = f"({self._marked}) and {marker}" if self._marked else marker
            status = self._pytest(name, ["-m", marked, *how, *self._more])
            failed |= self._failures(name)
            if status not in (0, 1, _NOTHING_TO_RUN) or (status == 1 and not failed):
                self._broken = status
                break
        return failed

    def _again(self, failed: dict[str, str]) -> int:
        print(f"\nonce more, alone, what failed ({len(failed)}):", flush=True)
        self._pytest("again", list(failed))
        again, seen = self._failures("again"), self._tests("again")
        self._unsteady = [
            f"UNSTEADY {test}\n    first: {why}\n    then: passed"
            for test, why in failed.items()
            if test in seen and test not in again
        ]
        if len(self._unsteady) < len(failed):
            return 1
        if len(self._unsteady) > MOST_UNSTEADY:
            print(f"more than {MOST_UNSTEADY} tests are unsteady")
            return 1
        return 0

    def _pytest(self, name: str, words: list[str]) -> int:
        temporary = self._folder / "t"
        command = [sys.executable, "-m", "pytest", "-p", "tools.suite_record"]
        command += [f"--rootdir={_ROOT}", f"--basetemp={temporary}"]
        command += [f"--record={self._folder / name}", *words]
        done = subprocess.run(command, cwd=_ROOT, env=self._environment)
        for line in self._lines(name):
            self._seconds[line["test"].partition("::")[0]] += line["seconds"]
        return done.returncode

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self._folder / name
        return (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )

    def _tests(self, name: str) -> set[str]:
        return {line["test"] for line in self._lines(name)}

    def _failures(self, name: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in self._lines(name):
            if line["outcome"] == "failed":
                found.setdefault(line["test"], f"{line['when']}: {line['why']}")
        return found

    def summary(self) -> str:
        whole = sum(self._seconds.values())
        slowest = [f"{took:8.1f} s  {file}" for file, took in self._seconds.most_common(10)]
        return "\n".join(
            ["", f"the ten slowest files of {whole:.0f} s of tests:", *slowest, *self._unsteady]
        )

    def keep(self, suite: str) -> None:
        """For `suite_record`, which starts the longest files first, and for `test_durations`. A
        run of some files keeps what is known of the others."""
        known = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
        others = known.get(suite, {}) if self._more else {}
        took = others | {file: round(seconds, 1) for file, seconds in self._seconds.items()}
        known[suite] = dict(sorted(took.items()))
        DURATIONS.write_text(json.dumps(known, indent=0) + "\n")


def _files_with(words: str) -> list[str]:
    files = (_ROOT / "tests").rglob("test_*.py")
    return [str(path.relative_to(_ROOT)) for path in sorted(files) if words in path.read_text()]


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


if __name__ == "__main__":
    sys.exit(main())
