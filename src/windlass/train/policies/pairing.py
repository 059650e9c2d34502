"""Atomic averaging of two members, as a machine without clock, sockets or numbers.

Events come in (somebody said something, time is up, a member is lost), actions come out. Two
phases: the one who answers offers its parameters and holds itself ready; the one who proposed
decides alone, once, and what it decided reaches the other or the other is dead.

    initiator i                          answerer j
      propose  ------------------------>   engaged with i: others hear "busy"
               <-- offer x_j ------------
      d = (x_j - x_i)/2, x_i += d                                 ← decided here, and only here
      commit d ------------------------>   x_j -= d
               <-------------------- ack   i forgets d
    time is up before the offer came:  i goes on; a late offer is answered with abort
    time is up before the commit came: j asks; i says commit (again) or abort

What moves is the difference d, so either side may take gradient steps in between: the sum of all
parameters stays what it was. A death ends what was open with the dead: had the survivor applied
d, it is as if the other had applied it too and died then.

No deadlock, whoever initiates: nobody waits holding something another needs. A member that has
proposed still answers those of lower rank, and gives its own proposal up for that; of any circle
of proposals the lowest one goes through. In a bipartite graph it never comes to that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Word = Literal["propose", "offer", "busy", "commit", "abort", "ack", "ask"]
_SKIPS = 16
"""A member that did not answer in time is left out of that many choices."""


@dataclass(frozen=True, slots=True)
class Send:
    """Say the word to that member; `offer` goes with the parameters as they are now, `commit`
    with the difference that was kept for the ticket."""

    to: int
    word: Word
    ticket: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Half of (what was offered - mine): add it to mine, keep it for the ticket."""

    ticket: str


@dataclass(frozen=True, slots=True)
class Subtract:
    """Take the difference that came with the commit from mine."""

    ticket: str


@dataclass(frozen=True, slots=True)
class Forget:
    """The difference kept for this ticket will not be asked for any more."""

    ticket: str


@dataclass(frozen=True, slots=True)
class Closed:
    """For whoever counts and whoever waits. Both sides say it."""

    ticket: str
    peer: int
    committed: bool
    why: str


Action = Send | Settle | Subtract | Forget | Closed


class Pairing:
    """One member's side. Not thread-safe: the caller holds a lock around each event and the
    changes of parameters that its actions ask for."""

    def __init__(self, rank: int, incarnation: str = "") -> None:
        self.rank = rank
        self._prefix = f"{rank}.{incarnation}."
        self._number = 0
        self._closing = False
        self._incarnations: dict[int, str] = {}
        self.gone: set[int] = set()
        self.proposed: tuple[str, int] | None = None
        self.engaged: str | None = None
        self.offered: dict[str, int] = {}
        self.unacknowledged: dict[str, int] = {}
        self._suspects: dict[int, int] = {}
        self._answered: dict[str, int] = {}

    # -- what this member wants -------------------------------------------------------------

    def choices(self, neighbours: Iterable[int]) -> list[int]:
        """Those worth proposing to now: alive, and not silent of late."""
        for peer in [*self._suspects]:
            self._suspects[peer] -= 1
            if not self._suspects[peer]:
                del self._suspects[peer]
        alive = [peer for peer in neighbours if peer not in self.gone and peer != self.rank]
        return [peer for peer in alive if peer not in self._suspects] or alive

    def propose(self, to: int) -> list[Action]:
        """Nothing when this member is in an exchange already, or leaving."""
        if self.proposed or self.engaged or self._closing or to in self.gone or to == self.rank:
            return []
        self._number += 1
        ticket = f"{self._prefix}{self._number}"
        self.proposed = (ticket, to)
        return [Send(to, "propose", ticket)]

    def close(self) -> None:
        """No new exchange from now on; those under way go to their end."""
        self._closing = True

    def open(self) -> None:
        """And again."""
        self._closing = False

    @property
    def waiting(self) -> list[str]:
        """Tickets that need `timed_out` some time from now."""
        first = [self.proposed[0]] if self.proposed else []
        return [*first, *self.offered, *self.unacknowledged]

    # -- what happens to it -----------------------------------------------------------------

    def heard(self, sender: int, word: Word, ticket: str, incarnation: str = "") -> list[Action]:
        """What comes from one who is dead, or was not introduced by `joined`, is not heard: news
        of the death before it would end what the new one began."""
        if sender in self.gone or self._incarnations.get(sender, "") != incarnation:
            return []
        self._suspects.pop(sender, None)
        if word == "propose":
            return self._answer(sender, ticket)
        if word == "offer":
            return self._decide(sender, ticket)
        if word == "busy":
            return self._give_up(ticket, "busy")
        if word == "commit":
            if self.offered.get(ticket) != sender:
                return [Send(sender, "ack", ticket)]
            self._release(ticket)
            return [
                Subtract(ticket),
                Send(sender, "ack", ticket),
                Closed(ticket, sender, True, ""),
            ]
        if word == "abort":
            if self.offered.get(ticket) != sender:
                return []
            self._release(ticket)
            return [Closed(ticket, sender, False, "given up by the other")]
        if word == "ack":
            return [Forget(ticket)] if self.unacknowledged.pop(ticket, None) is not None else []
        return self._tell(sender, ticket)

    def timed_out(self, ticket: str) -> list[Action]:
        """The caller's patience for this ticket is over; it may be called for any, any time."""
        if self.proposed and self.proposed[0] == ticket:
            self._suspects[self.proposed[1]] = _SKIPS
            return self._give_up(ticket, "no answer")
        if ticket in self.offered:
            if self.engaged == ticket:
                self.engaged = None  # others need not wait; the offer itself stays open
            return [Send(self.offered[ticket], "ask", ticket)]
        if ticket in self.unacknowledged:
            return [Send(self.unacknowledged[ticket], "commit", ticket)]
        return []

    def lost(self, peer: int) -> list[Action]:
        """That member is dead to all."""
        self.gone.add(peer)
        self._suspects.pop(peer, None)
        actions: list[Action] = []
        if self.proposed and self.proposed[1] == peer:
            actions += self._give_up(self.proposed[0], "lost")
        for ticket in [ticket for ticket, to in self.offered.items() if to == peer]:
            self._release(ticket)
            actions.append(Closed(ticket, peer, False, "lost"))
        for ticket in [ticket for ticket, to in self.unacknowledged.items() if to == peer]:
            del self.unacknowledged[ticket]
            actions.append(Forget(ticket))
        return actions

    def joined(self, peer: int, incarnation: str = "") -> list[Action]:
        """A new one in that place: who was there before is dead."""
        actions = self.lost(peer)
        self.gone.discard(peer)
        self._incarnations[peer] = incarnation
        return actions

    # -- inside -----------------------------------------------------------------------------

    def _answer(self, sender: int, ticket: str) -> list[Action]:
        if self.offered.get(ticket) == sender:
            return [Send(sender, "offer", ticket)]
        whose, _, number = ticket.rpartition(".")
        if int(number) <= self._answered.get(whose, 0):
            return []  # repeated after its end: its commit may be repeated as well
        outranked = self.proposed is not None and sender > self.rank
        if self.engaged or self._closing or outranked:
            return [Send(sender, "busy", ticket)]
        self._answered[whose] = int(number)
        self.offered[ticket] = sender
        self.engaged = ticket
        return [Send(sender, "offer", ticket)]

    def _decide(self, sender: int, ticket: str) -> list[Action]:
        if self.proposed != (ticket, sender):
            return self._tell(sender, ticket)
        if self.engaged:
            abort = Send(sender, "abort", ticket)
            return [abort, *self._give_up(ticket, "engaged with another")]
        self.proposed = None
        self.unacknowledged[ticket] = sender
        return [Settle(ticket), Send(sender, "commit", ticket), Closed(ticket, sender, True, "")]

    def _tell(self, sender: int, ticket: str) -> list[Action]:
        if self.unacknowledged.get(ticket) == sender:
            return [Send(sender, "commit", ticket)]
        if self.proposed == (ticket, sender):
            return []  # undecided: the offer is on its way, or time will be up
        return [Send(sender, "abort", ticket)]

    def _give_up(self, ticket: str, why: str) -> list[Action]:
        if self.proposed is None or self.proposed[0] != ticket:
            return []
        peer, self.proposed = self.proposed[1], None
        return [Closed(ticket, peer, False, why)]

    def _release(self, ticket: str) -> None:
        del self.offered[ticket]
        if self.engaged == ticket:
            self.engaged = None
