"""The thread that picks up: lines out of the pump, event files, what the ranks use.

It writes into the spools and the kept minutes, and waits for nobody: a server that is away delays
only what the reporter sends.
"""

from __future__ import annotations

import threading
import time

from windlass.patterns.groups import Pattern
from windlass.worker.launch import Launch
from windlass.worker.pickup import arguments, text
from windlass.worker.pickup.folders import EventFiles
from windlass.worker.pickup.intake import Intake
from windlass.worker.pickup.spooling import RankSpool
from windlass.worker.pickup.steps import Steps
from windlass.worker.pickup.usage import Kept, Sampler
from windlass.worker.ranks import Rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

EVERY_SECONDS = 1.0
END_SECONDS = 3.0


class Watch:
    """Of one node's attempt."""

    def __init__(self, launch: Launch, ranks: List[Rank], uid: Optional[int]) -> None:
        """Before the ranks start: what is in their folders now is not theirs."""
        self._launch = launch
        self._ranks = ranks
        self._uid = uid
        self._patterns = [Pattern(each) for each in launch.parse]
        self._streams: Dict[Tuple[int, str], Tuple[Intake, Steps]] = {}
        self._spools: Dict[int, RankSpool] = {}
        self._files: Optional[EventFiles] = None
        if launch.pickup:
            self._files = EventFiles([launch.here or launch.path("work"), launch.path("out")], uid)
        self.kept = Kept(launch.path("usage"))
        self._sampler: Optional[Sampler] = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pickup", daemon=True)

    def intake(self, rank: int, stream: str) -> Optional[Intake]:
        """Where the pump is to show what this rank prints."""
        if not (self._launch.pickup or self._patterns):
            return None
        known = self._streams.get((rank, stream))
        if known is None:
            known = (Intake(every_line=bool(self._patterns)), Steps())
            self._streams[(rank, stream)] = known
        return known[0]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The ranks are gone and the pump has carried all: pick up what is left."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(END_SECONDS)

    def _run(self) -> None:
        try:
            if self._launch.sampling:
                self._sampler = Sampler(self.kept, _nvml(self._launch))
            if self._launch.pickup:
                self._tell_parameters()
            due = time.monotonic()
            while not self._stopped.is_set():
                self._turn(False)
                due = max(due + EVERY_SECONDS, time.monotonic())
                self._stopped.wait(due - time.monotonic())
            self._turn(True)
        except Exception:
            # Tracking must never be the reason that an attempt fails; worker.log says why.
            import traceback

            traceback.print_exc()

    def _turn(self, last: bool) -> None:
        if self._sampler is not None and not last:
            self._sampler.sample(self._ranks, node=True)
        for (rank, stream), (intake, steps) in list(self._streams.items()):
            for at_ms, line in intake.take():
                self._read_line(rank, stream, steps, at_ms, line)
        for tagged in self._files.read(last) if self._files is not None else ():
            scalar = tagged.scalar
            at_ms = scalar.at_ms or time.time_ns() // 1_000_000
            spool = self._spool(min((each.number for each in self._ranks), default=0))
            spool.metric({tagged.key: scalar.value}, scalar.step, tagged.source, at_ms, True)
        for each in self._spools.values():
            each.flush(last)

    def _read_line(self, rank: int, stream: str, steps: Steps, at_ms: int, line: bytes) -> None:
        try:
            self._look_at(rank, stream, steps, at_ms, text.clean(line))
        except (ValueError, OverflowError, RecursionError):
            pass  # a number that is none to us: the lines behind it are read all the same

    def _look_at(self, rank: int, stream: str, steps: Steps, at_ms: int, words: str) -> None:
        found = text.matched(words, self._patterns) if self._patterns else None
        if found is None and self._launch.pickup:
            alone = text.epoch_alone(words)
            if alone is not None:
                steps.epoch = alone
                return
            found = text.read(words)
        if found is not None:
            source = found.form if found.form == "tqdm" else "std%s %s" % (stream, found.form)
            self._spool(rank).metric(found.values, steps.of(found), source, at_ms)

    def _tell_parameters(self) -> None:
        first = next((rank for rank in self._ranks if rank.number == 0), None)
        if first is None:
            return  # another node has rank 0
        work = self._launch.standing
        for source, values in arguments.of_command(first.member.command, work):
            line = {"t": time.time_ns() // 1_000_000, "kind": "param", "values": values}
            self._spool(0).write_at_once({**line, "source": source})

    def _spool(self, rank: int) -> RankSpool:
        found = self._spools.get(rank)
        if found is None:
            path = self._launch.path("run", "spool-%d.jsonl" % rank)
            found = self._spools[rank] = RankSpool(path, self._uid)
        return found


def _nvml(launch: Launch) -> Optional[Nvml]:
    """The driver, where the job has GPUs and there is one."""
    if not any(member.gpu_ids for member in launch.members):
        return None
    from windlass.worker.pickup.nvml import Nvml

    try:
        return Nvml()
    except OSError:
        return None


if TYPE_CHECKING:
    from windlass.worker.pickup.nvml import Nvml
