"""Ranks that are started again while the others go on: what is left of the old one ends first.

Nobody is told to do this by the server, so nothing of it is lost or done twice when the server
dies: the worker that saw the rank end starts it again, once, in the same attempt and under the
same fence. When this worker dies, its ranks end with it, and nobody starts them again here.
"""

from __future__ import annotations

import os
import signal
import time

from windlass.worker import needs, processes, spawn
from windlass.worker.launch import Launch
from windlass.worker.losses import Respawn
from windlass.worker.pump import Pump
from windlass.worker.ranks import Rank
from windlass.worker.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Set

    from windlass.worker.starting import Starter

KILL_SECONDS = 2.0
ROOM_SECONDS = 5.0
"""So long it waits where the node has too little left to start it."""


class Comebacks:
    def __init__(self, launch: Launch, pump: Pump, reporter: Reporter) -> None:
        self._launch = launch
        self._rules: Optional[Respawn] = launch.respawn
        self._pump = pump
        self._reporter = reporter
        self.starter: Optional[Starter] = None

    def lose(self, rank: Rank) -> None:
        """A rank failed by itself: it awaits its restart, or is given up. Where the job wants
        its gang restarted nothing happens here."""
        if self._rules is None:
            return
        processes.kill(self._left_by(rank))
        matched = self._pump.matched(rank.number)
        rank.be_lost(matched)
        pause = self._rules.pause(rank, matched)
        if pause is None:
            self._give_up(rank, rank.sentence())
        else:
            rank.again_at = time.monotonic() + pause
            self._tell(rank, "%s; it is started again in %.1f s" % (rank.sentence(), pause), pause)

    def start_due(self, ranks: List[Rank], now: float) -> bool:
        """Start those whose pause is over; whether there was one."""
        due = [rank for rank in ranks if rank.again_at is not None and rank.again_at <= now]
        for rank in due:
            processes.kill(self._left_by(rank))
            if processes.gone(self._left_by(rank), KILL_SECONDS):
                rank.again_at = None
                self._give_up(rank, "what %s left behind cannot be killed" % rank.name)
                continue
            assert self.starter is not None
            rank.begin_again()
            try:
                command, trouble = self.starter.start_again(rank)
            except OSError as err:
                if not needs.of(err):
                    raise
                # The node's trouble, not the rank's: later, and not counted.
                rank.restarts -= 1
                rank.again_at = now + ROOM_SECONDS
                continue
            # One that could not be started is seen to fail, as any other.
            try:
                spawn.trouble_of(command, trouble)
            except OSError:
                pass
            text = "%s was started again, restart %d" % (rank.name, rank.restarts)
            note = {"kind": "rank-back", **rank.place(), "restarts": rank.restarts, "text": text}
            self._reporter.note(note)
        return bool(due)

    def next_at(self, ranks: List[Rank]) -> float:
        """When the next pause is over, by the monotonic clock."""
        return min(
            (rank.again_at for rank in ranks if rank.again_at is not None), default=float("inf")
        )

    def _give_up(self, rank: Rank, words: str) -> None:
        rank.given_up = True
        after = " after %d restarts" % rank.restarts if rank.restarts else ""
        self._tell(rank, "%s; it is given up%s, the others go on" % (words, after), None)

    def _tell(self, rank: Rank, text: str, pause: Optional[float]) -> None:
        self._reporter.note(
            {
                "kind": "rank-lost",
                **rank.place(),
                "exit": rank.exit,
                "signal": rank.signal,
                "restarts": rank.restarts,
                "given_up": rank.given_up,
                "again_ms": None if pause is None else int(pause * 1000),
                "text": text,
            }
        )

    def _left_by(self, rank: Rank) -> Set[int]:
        """What a rank that ended has left running: its group and session, and whatever else below
        us was started in its environment."""
        processes.kill_groups([rank.pid] if rank.pid else [], signal.SIGKILL)
        ours = processes.descendants(os.getpid())
        mark = b"WINDLASS_RANK=%d" % rank.number
        found = {each.pid for each in processes.marked(mark, ours)}
        found.update(each.pid for each in ours if rank.pid in (each.group, each.session))
        return found
