"""A command run without a server: `python -m windlass.worker.offline run FOLDER -- COMMAND …`.

What the command tells is picked up as in a job and goes into the folder's spool; its output goes
where ours does, and to `out.log` and `err.log`. `… params FOLDER` prints, as JSON, the parameters
of the command that the folder's `run.json` names.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import IO, Dict, List, Sequence, Tuple

from windlass.worker.pickup import arguments, text
from windlass.worker.pickup.folders import EventFiles
from windlass.worker.pickup.intake import Intake
from windlass.worker.pickup.spooling import RankSpool
from windlass.worker.pickup.steps import Steps


def run(folder: str, command: Sequence[str]) -> int:
    """The command's exit code. Raises OSError when it cannot be started."""
    pickup = _Pickup(folder)
    env = {**os.environ, "WINDLASS_RUN_DIR": os.path.abspath(folder), "PYTHONUNBUFFERED": "1"}
    # Ctrl-C reaches the command by itself: we wait for what it makes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen(
        list(command),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        preexec_fn=_mind_interrupts,
    )
    assert process.stdout is not None and process.stderr is not None
    threads = [
        pickup.carry(process.stdout, sys.stdout.buffer, "out"),
        pickup.carry(process.stderr, sys.stderr.buffer, "err"),
    ]
    while True:
        try:
            code = process.wait(1.0)
            break
        except subprocess.TimeoutExpired:
            pickup.turn(last=False)
    for thread in threads:
        thread.join()
    pickup.turn(last=True)
    return code if code >= 0 else 128 - code


def _mind_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def params(folder: str) -> Dict[str, Dict[str, str]]:
    """By source, names and values."""
    with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
        about = json.load(file)
    command = [str(word) for word in about.get("command") or ()]
    found = arguments.of_command(command, str(about.get("directory") or "."))
    return {each.source: each.values for each in found}


class _Pickup:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._streams: List[Tuple[str, Intake, Steps]] = []
        self._path = os.path.join(folder, "spool-0.jsonl")
        self._spool = RankSpool(self._path, None)
        self._files = EventFiles([os.getcwd()], None)

    def carry(self, source: IO[bytes], target: IO[bytes], name: str) -> threading.Thread:
        intake = Intake()
        self._streams.append((name, intake, Steps()))

        def carry() -> None:
            with open(os.path.join(self._folder, name + ".log"), "wb") as kept:
                while True:
                    piece = os.read(source.fileno(), 1 << 16)
                    if not piece:
                        break
                    intake.feed(memoryview(piece))
                    kept.write(piece)
                    kept.flush()
                    target.write(piece)
                    target.flush()
            intake.end()
            source.close()

        thread = threading.Thread(target=carry, name="std" + name)
        thread.start()
        return thread

    def turn(self, last: bool) -> None:
        for name, intake, steps in self._streams:
            for at_ms, line in intake.take():
                words = text.clean(line)
                alone = text.epoch_alone(words)
                if alone is not None:
                    steps.epoch = alone
                    continue
                found = text.read(words)
                if found is not None:
                    source = (
                        found.form if found.form == "tqdm" else "std%s %s" % (name, found.form)
                    )
                    self._spool.metric(found.values, steps.of(found), source, at_ms)
        for tagged in self._files.read(last):
            scalar = tagged.scalar
            values = {tagged.key: scalar.value}
            self._spool.metric(values, scalar.step, tagged.source, scalar.at_ms, True)
        self._spool.flush(last)
        if last and not os.path.exists(self._path):
            with open(self._path, "ab"):
                pass  # a run that told nothing is a run all the same


def main(words: List[str]) -> int:
    if words[:1] == ["params"]:
        print(json.dumps(params(words[1])))
        return 0
    try:
        return run(words[1], words[3:])
    except OSError as err:
        sys.stderr.write("windlass: %s: %s\n" % (words[3], err.strerror))
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
