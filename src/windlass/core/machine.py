"""States as data: what may follow what, and who alone may leave a state.

One `Machine` per noun. `move()` in the server checks it in the transaction that writes the new
state and its event; the docs draw their diagram from it; the tests walk it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from windlass.core.errors import UnlawfulMove

S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True)
class Leaves(Generic[S]):
    """Who owns a state, and where it may lead (target → when)."""

    owner: str
    to: Mapping[S, str]


@dataclass(frozen=True)
class Machine(Generic[S]):
    noun: str
    first: tuple[S, ...]
    table: Mapping[S, Leaves[S]]

    def check(self, old: S, new: S, owner: str) -> None:
        """Raise UnlawfulMove unless `owner` may take `old` to `new`."""
        leaves = self.table[old]
        if not leaves.to:
            raise UnlawfulMove(f"this {self.noun} is {old} and stays so", state=old.value)
        if new not in leaves.to:
            lawful = ", ".join(sorted(leaves.to))
            raise UnlawfulMove(
                f"a {self.noun} that is {old} cannot become {new}; it may become: {lawful}",
                state=old.value,
            )
        if leaves.owner != owner:
            raise UnlawfulMove(f"only {leaves.owner} moves a {old} {self.noun}, not {owner}")

    def terminal(self, state: S) -> bool:
        return not self.table[state].to

    def mermaid(self) -> str:
        """The diagram of the docs."""
        lines = ["stateDiagram-v2"]
        lines += [f"    [*] --> {state}" for state in self.first]
        for state, leaves in self.table.items():
            lines += [f"    {state} --> {new}: {when}" for new, when in leaves.to.items()]
            if not leaves.to:
                lines.append(f"    {state} --> [*]")
        return "\n".join(lines)

    def rows(self) -> list[tuple[str, str, str]]:
        """(state, owner, may go to), for a table of the docs."""
        return [
            (str(state), leaves.owner or "–", ", ".join(leaves.to) or "–")
            for state, leaves in self.table.items()
        ]
