"""Which patterns of the job's `log:` rules have been seen in one of its pipes."""

from __future__ import annotations

import codecs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence, Tuple

    from windlass.patterns.automaton import Automaton


class Sightings:
    """Of the patterns, with the words that they were asked for in."""

    def __init__(self, patterns: Sequence[Tuple[str, Automaton]]) -> None:
        self.seen: List[str] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._sought = [(words, pattern, pattern.start) for words, pattern in patterns]

    def feed(self, data: memoryview) -> None:
        if not self._sought:
            return
        text = self._decoder.decode(data)
        still = []
        for words, pattern, state in self._sought:
            state = pattern.after(state, text)
            if state is pattern.found:
                self.seen.append(words)
            else:
                still.append((words, pattern, state))
        self._sought = still

    def end(self) -> None:
        """No more comes: the end of the output is the end of a line."""
        self.seen += [words for words, pattern, state in self._sought if pattern.end(state)]
        self._sought = []
