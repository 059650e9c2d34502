"""What a member counts while it trains: bytes by kind, staleness, faults. Threads may add."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was survived."""

    kind: str
    who: str
    step: int | None
    text: str


@dataclass
class Counters:
    """Kinds of bytes: `gradient`, `parameters`, `state` (of optimisers), `control`."""

    sent_bytes: Counter[str] = field(default_factory=Counter)
    received_bytes: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    staleness: Counter[int] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    """Named counts of a strategy: exchanges, aborted, dropped, conflicts …"""
    faults: list[Fault] = field(default_factory=list)
    drift: list[tuple[int, float]] = field(default_factory=list)
    """(step, largest distance of a replica's parameter from the mean)."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def sent(self, kind: str, count: int) -> None:
        with self._lock:
            self.sent_bytes[kind] += count
            self.messages[kind] += 1

    def received(self, kind: str, count: int) -> None:
        with self._lock:
            self.received_bytes[kind] += count

    def stale(self, by: int) -> None:
        with self._lock:
            self.staleness[by] += 1

    def event(self, name: str, count: int = 1) -> None:
        with self._lock:
            self.events[name] += count

    def survived(self, fault: Fault) -> None:
        with self._lock:
            self.faults.append(fault)

    def to_json(self) -> dict[str, Any]:
        with self._lock:
            return {
                "sent_bytes": dict(self.sent_bytes),
                "received_bytes": dict(self.received_bytes),
                "messages": dict(self.messages),
                "staleness": {str(by): n for by, n in sorted(self.staleness.items())},
                "events": dict(self.events),
                "faults": [[f.kind, f.who, f.step, f.text] for f in self.faults],
                "drift": [list(point) for point in self.drift],
            }
