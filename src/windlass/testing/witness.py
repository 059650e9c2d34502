"""A workload that bears witness, for fault tests. Runs as a script, in a rank.

    witness.py FOLDER until GATE [CODE]          wait until the file GATE is there, exit with CODE
    witness.py FOLDER exit CODE                  at once
    witness.py FOLDER silent                     print nothing, for ever
    witness.py FOLDER flood GATE                 print as fast as it can until GATE is there
    witness.py FOLDER clock GATE                 print the time every 50 ms until GATE is there
    witness.py FOLDER escape                     leave hard-to-kill processes, wait for ever
    witness.py FOLDER train STEPS SECONDS        a checkpoint after every step; resumes, and on
                                                 SIGTERM saves and leaves with 0

Each rank holds a lock of its own for (job, rank) from its first moment to its death and writes
lines to FOLDER/<job>.jsonl: who began, when, on the boot clock, and who found the lock taken: two
attempts of one job alive at once, which must never be (R-I2). `invariants.py` reads them.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VIOLATION = 99
POLL_SECONDS = 0.02


class Witness:
    def __init__(self, folder: Path) -> None:
        self.rank = int(os.environ["WINDLASS_RANK"])
        self.attempt = int(os.environ["WINDLASS_ATTEMPT"])
        job = os.environ["WINDLASS_JOB_ID"]
        folder.mkdir(parents=True, exist_ok=True)
        self._log = os.open(folder / f"{job}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._lock = os.open(folder / f"{job}-{self.rank}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.say("violation", why="the lock is held by an earlier attempt")
            sys.exit(VIOLATION)
        self.say("began")

    def say(self, what: str, **facts: Any) -> None:
        line = {
            "what": what,
            "attempt": self.attempt,
            "rank": self.rank,
            "pid": os.getpid(),
            "at": time.clock_gettime(time.CLOCK_BOOTTIME),
            **facts,
        }
        os.write(self._log, (json.dumps(line) + "\n").encode())


def main(words: list[str]) -> int:
    witness = Witness(Path(words[0]))
    verb, rest = words[1], words[2:]
    if verb == "until":
        code = _until(Path(rest[0]), int(rest[1]) if len(rest) > 1 else 0)
    elif verb == "exit":
        code = int(rest[0])
    elif verb == "train":
        code = _train(witness, int(rest[0]), float(rest[1]))
    elif verb == "flood":
        code = _flood(Path(rest[0]))
    elif verb == "clock":
        code = _clock(Path(rest[0]))
    elif verb == "escape":
        code = _escape(witness)
    else:
        assert verb == "silent", verb
        code = _for_ever()
    witness.say("ended", code=code)
    return code


def _until(gate: Path, code: int) -> int:
    print("waiting", flush=True)
    while not gate.exists():
        time.sleep(POLL_SECONDS)
    return code


def _for_ever() -> int:
    while True:
        time.sleep(3600)


def _flood(gate: Path) -> int:
    lines = (b"y" * 1023 + b"\n") * 64
    while not gate.exists():
        for _ in range(16):
            os.write(1, lines)
    print("last words", flush=True)
    return 0


def _clock(gate: Path) -> int:
    while not gate.exists():
        print(time.time(), flush=True)
        time.sleep(0.05)
    return 0


_DAEMON = """
import os, signal, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").close()
time.sleep(3600)
"""


def _escape(witness: Witness) -> int:
    """A daemon in a session of its own, one that ignores SIGTERM, one that is stopped."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready = Path(os.environ["WINDLASS_OUTPUT_DIR"]) / "daemon"
    subprocess.run([sys.executable, "-c", _DAEMON, str(ready)], check=True)
    stopped = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    os.kill(stopped.pid, signal.SIGSTOP)
    while not ready.exists():
        time.sleep(POLL_SECONDS)
    witness.say("escaped")
    return _for_ever()


def _train(witness: Witness, steps: int, seconds: float) -> int:
    import windlass

    here = windlass.context(watch_stop=True)
    whole = "all" if here.world_size > 1 else "one"
    found = windlass.resume_from()
    step = 0
    if found is not None:
        inner = found / f"rank-{here.rank}" if whole == "all" else found
        step = int((inner / "step").read_text())
    witness.say("resumed", step=step)
    while step < steps and not windlass.should_stop():
        time.sleep(seconds)
        step += 1
        windlass.log(step=step, loss=1 / step)
        with windlass.checkpoint(step, ranks=whole) as path:
            (path / "step").write_text(str(step))
        witness.say("saved", step=step)
    if windlass.should_stop():
        witness.say("asked to stop", step=step)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
