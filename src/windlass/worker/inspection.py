"""Looking at ranks that run: the debug orders, and the hang watch with its stacks.

Looking takes seconds, so it happens in threads of its own, never in the one that decides.
"""

from __future__ import annotations

import os
import threading
import time

from windlass.worker import debug, needs, processes
from windlass.worker.hang import HangWatch, Sample
from windlass.worker.launch import Launch
from windlass.worker.pump import Pump
from windlass.worker.ranks import Rank
from windlass.worker.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional


class Inspector:
    """`on_hung` is called, from a thread, when the job wants a hung gang ended."""

    def __init__(
        self, launch: Launch, pump: Pump, reporter: Reporter, on_hung: Callable[[str], None]
    ) -> None:
        self._launch = launch
        self._pump = pump
        self._reporter = reporter
        self._on_hung = on_hung
        self._debugger = debug.Debugger(launch)
        self._hang: Optional[HangWatch] = None
        self.next_look = float("inf")
        if launch.idle_seconds:
            self._hang = HangWatch(launch.idle_seconds)
            self.next_look = time.monotonic()

    def obey(self, order: Dict[str, Any], ranks: List[Rank]) -> None:
        """Carry out a debug order; its answer is posted when it is there."""
        try:
            threading.Thread(
                target=self._look_into, args=(order, ranks), name="debug", daemon=True
            ).start()
        except RuntimeError as err:
            self.answer(order, False, {"error": needs.sentence("processes", err)})

    def answer(self, order: Dict[str, Any], ok: bool, result: Dict[str, Any]) -> None:
        self._reporter.post(
            "/api/v1/worker/orders/%d" % int(order["id"]), {"ok": ok, "result": result}
        )

    def check_hang(self, ranks: List[Rank], nodes: int, now: float) -> None:
        """Look whether the ranks make progress, if it is time to."""
        if self._hang is None or now < self.next_look:
            return
        idle = self._launch.idle_seconds or 0
        self.next_look = now + min(30.0, max(0.05, idle / 10))
        running = [rank for rank in ranks if rank.running]
        cpu = processes.tree_usage([rank.pid for rank in running])
        samples = [
            Sample(rank.number, self._evidence_of(rank), cpu[rank.pid][0], not rank.decides)
            for rank in running
        ]
        hang = self._hang.look(samples, now)
        if hang is None:
            return
        act = self._launch.on_idle == "restart" and (nodes <= 1 or not hang.whole_node)

        def tell() -> None:
            idle_ms = int(hang.idle_seconds * 1000)
            note: Dict[str, Any] = {"kind": "hung", "rank": hang.rank, "idle_ms": idle_ms}
            note["whole_node"] = hang.whole_node
            note["stacks"] = self._debugger.stacks(running)
            self._reporter.note(note)
            if act:
                words = "rank %d made no progress for %d s" % (hang.rank, hang.idle_seconds)
                self._on_hung(words)

        threading.Thread(target=tell, name="hang", daemon=True).start()

    def _look_into(self, order: Dict[str, Any], ranks: List[Rank]) -> None:
        wanted = order.get("rank")
        ranks = [rank for rank in ranks if wanted is None or rank.number == wanted]
        try:
            if order["kind"] == "stack":
                found = self._debugger.stacks(ranks)
            elif order["kind"] == "profile":
                found = self._debugger.profile(ranks, int(order.get("seconds") or 10))
            elif order["kind"] == "trace":
                found = self._debugger.trace(ranks, int(order.get("seconds") or 10))
            elif order["kind"] == "attach":
                found = self._debugger.attach(ranks)
            else:
                raise debug.Unable("this worker knows no order %r" % order["kind"])
            self.answer(order, True, {"ranks": found})
        except (debug.Unable, OSError, ValueError) as err:
            self.answer(order, False, {"error": str(err)})

    def _evidence_of(self, rank: Rank) -> object:
        """Anything that changes when the rank makes progress."""
        marks: List[object] = [rank.restarts, self._pump.received(rank.number)]
        for name in ("spool-%d.jsonl", "heartbeat-%d"):
            try:
                found = os.stat(self._launch.path("run", name % rank.number))
                marks.append((found.st_size, found.st_mtime_ns))
            except OSError:
                marks.append(None)
        return tuple(marks)
