"""How long to wait for a peer, from how long it has been taking: nobody has to guess a timeout.

The rule of TCP's retransmission timer: the smoothed time of an answer plus some of its usual
variation, within a floor (the grain of a busy machine) and a ceiling (the seat's deadline). Each
miss in a row doubles it, an answer brings it back.
"""

from __future__ import annotations

_VARIATIONS = 8.0


class Patience:
    def __init__(self, ceiling_seconds: float, floor_seconds: float = 0.05) -> None:
        self.ceiling_seconds = ceiling_seconds
        self.floor_seconds = min(floor_seconds, ceiling_seconds)
        self._mean: float | None = None
        self._variation = 0.0
        self._missed = 0

    def arrived(self, seconds: float) -> None:
        """An answer came after that long."""
        self._missed = 0
        if self._mean is None:
            self._mean, self._variation = seconds, seconds / 2
            return
        self._variation += (abs(seconds - self._mean) - self._variation) / 4
        self._mean += (seconds - self._mean) / 8

    def missed(self) -> None:
        """None came in time."""
        self._missed += 1

    @property
    def seconds(self) -> float:
        """Before the first answer nothing is known: the ceiling."""
        if self._mean is None:
            return self.ceiling_seconds
        usual = max(self.floor_seconds, self._mean + _VARIATIONS * self._variation)
        return min(self.ceiling_seconds, usual * 2.0 ** min(self._missed, 32))
