"""Whether a pattern is found in a text that comes in pieces: an automaton, made as it is needed.

All ways are followed at once. The set of steps that they stand at is a state; where a letter leads
from a state is found out once and kept, so most letters cost a look into a dict. When too much is
kept all of it is forgotten, and begins anew.
"""

from __future__ import annotations

from windlass.patterns.steps import AT, CHAR, MATCH, SAVE, SPLIT, Program, holds, is_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    _Ways = dict[str, "State"]
else:
    _Ways = dict

MOST_KEPT = 20_000
"""Letters of states; some 2 MB."""


class State(_Ways):
    """By letter, the state that follows. `standing`: the steps to go on from; `before`: a letter
    of the same kind as the last one (newline, word or other); `idle`: nothing has begun."""

    __slots__ = ("_owner", "before", "idle", "standing")

    def __init__(self, owner: Automaton, standing: frozenset[int], before: str) -> None:
        super().__init__()
        self._owner = owner
        self.standing = standing
        self.before = before
        self.idle = standing == {0}

    def __missing__(self, char: str) -> State:
        return self._owner.follow(self, char)


class Automaton:
    """Compiled; for one thread. Raises ValueError for what it does not know, re.error for what is
    none."""

    def __init__(self, text: str) -> None:
        program = Program(text)
        self._steps, self._prefix = program.steps, program.prefix
        self._states: dict[tuple[frozenset[int], str], State] = {}
        self._kept = 0
        self.start = State(self, frozenset((0,)), "\n")
        """Before the first letter of a text."""
        self.found = State(self, frozenset(), "\n")
        """It was seen: whatever comes leads here again."""

    def search(self, text: str) -> bool:
        """Whether it is found in a whole text."""
        return self.end(self.after(self.start, text))

    def after(self, state: State, text: str) -> State:
        """The state behind a further piece of the text."""
        if not self._prefix:
            for char in text:
                state = state[char]
            return state
        place, size = 0, len(text)
        while place < size and state is not self.found:
            if state.idle:
                place = self._begin(text, place)
                if place == size:
                    return self.start
            state = state[text[place]]
            place += 1
        return state

    def end(self, state: State) -> bool:
        """Whether it was found, now that no more comes."""
        return state is self.found or self._reached(state, "\n") is None

    def _begin(self, text: str, place: int) -> int:
        """The next place at which a match could begin, perhaps one that the next piece ends."""
        found = text.find(self._prefix, place)
        if found >= 0:
            return found
        for found in range(max(place, len(text) - len(self._prefix) + 1), len(text)):
            if self._prefix.startswith(text[found:]):
                return found
        return len(text)

    def follow(self, state: State, char: str) -> State:
        """Where a letter leads, found out and kept."""
        if state is self.found:
            return state
        reached = self._reached(state, char)
        if reached is None:
            return self.found
        standing = {0}
        standing.update(at + 1 for at in reached if holds(self._steps[at], char))
        before = "\n" if char == "\n" else "a" if is_word(char) else " "
        key = (frozenset(standing), before)
        if self._kept >= MOST_KEPT:
            self._kept = 0
            self._states.clear()
            self.start.clear()
            state.clear()
        following = self._states.get(key)
        if following is None:
            following = self._states[key] = State(self, *key)
        state[char] = following
        self._kept += 1
        return following

    def _reached(self, state: State, after: str) -> list[int] | None:
        """The letters that may come next; None: it is found here. `after` is what does come."""
        steps = self._steps
        seen: set[int] = set()
        letters = []
        ways = list(state.standing)
        while ways:
            at = ways.pop()
            if at in seen:
                continue
            seen.add(at)
            step = steps[at]
            kind = step[0]
            if kind == MATCH:
                return None
            if kind == CHAR:
                letters.append(at)
            elif kind == SPLIT:
                ways += step[1:]
            elif kind == SAVE or (kind == AT and step[1](state.before, after)):
                ways.append(at + 1)
        return letters
