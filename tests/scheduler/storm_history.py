"""The history of a storm: told again, made small, put into words."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass

from windlass.scheduler.audit import Auditor
from windlass.scheduler.core import Core
from windlass.scheduler.events import Decision, Event

History = list[tuple[int, tuple[Event, ...] | None]]
"""What was told and when; None: the core was built anew."""


def replay(
    history: History, make: Callable[[], Core] = Core, until: str = "never"
) -> tuple[list[str], list[Decision]]:
    """Tell the same again to a new core (until it breaks in this way): what is wrong with it, and
    what it decided."""
    core, auditor = make(), Auditor("all")
    found: list[str] = []
    log: list[Decision] = []
    for now_ms, events, asked in _as_asked(history, lambda: core):  # noqa: B023  # the one there is then
        if events is None:
            core = make()
            decisions = core.apply(auditor.retold(), now_ms)
        else:
            auditor.heard(events, now_ms)
            decisions = core.apply(events, now_ms)
        auditor.decided(decisions, now_ms)
        log += decisions
        found += auditor.check(core, now_ms)
        if events == () and not asked:
            if not decisions and core.next_ms() != now_ms:
                found += auditor.quiet(core, now_ms)
        if any(kind(what) == until for what in found):
            break
    return found, log


def _as_asked(
    history: History, core: Callable[[], Core]
) -> Iterator[tuple[int, tuple[Event, ...] | None, bool]]:
    """The history, and between what was told the times at which the core wanted to be asked
    (True): where something is left out, it may want other times than it did."""
    then_ms = 0
    for now_ms, events in history:
        while (due := core().next_ms()) is not None and then_ms < due < now_ms:
            then_ms = due
            yield due, (), True
        then_ms = now_ms
        yield now_ms, events, False


def kind(violation: str) -> str:
    """A violation without the names and numbers in it."""
    return re.sub(r"\d+", "#", violation)


def shrink(
    history: History, label: str, make: Callable[[], Core] = Core, within_s: float = 60
) -> History:
    """The fewest events of a history that still break the same invariant, as far as they are
    found in that time."""
    deadline = time.monotonic() + within_s

    def fails(trial: History) -> bool:
        try:
            return any(kind(what) == label for what in replay(trial, make, label)[0])
        except Exception as error:
            return label == type(error).__name__

    singles: History = []
    for when, events in history:
        if not events:
            singles.append((when, events))
        else:
            singles += [(when, (event,)) for event in events[:-1]]
            singles.append((when, (events[-1],)))
    best = singles if fails(singles) else history
    if best is history and not fails(history):
        return history
    size = max(1, len(best) // 2)
    while size:
        at, moved = 0, False
        while at < len(best) and time.monotonic() < deadline:
            trial = best[:at] + best[at + size :]
            if fails(trial):
                best, moved = trial, True
            else:
                at += size
        if not moved:
            size //= 2
    return best


def tell(history: History, make: Callable[[], Core] = Core) -> None:
    """Print a history, and what the core makes of it."""
    core, auditor = make(), Auditor("all")
    for now_ms, events, _ in _as_asked(history, lambda: core):  # noqa: B023  # the one there is then
        if events is None:
            core, events = make(), tuple(auditor.retold())
            print(f"{now_ms}: restart")
        else:
            auditor.heard(events, now_ms)
        for event in events:
            print(f"{now_ms}: {brief(event)}")
        decisions = core.apply(events, now_ms)
        auditor.decided(decisions, now_ms)
        for decision in decisions:
            print(f"{now_ms}:   -> {decision}")
        for what in auditor.check(core, now_ms):
            print(f"{now_ms}:   !! {what}")
        if not (events or decisions) and core.next_ms() != now_ms:
            for what in auditor.quiet(core, now_ms):
                print(f"{now_ms}:   !! {what}")


def brief(thing: object) -> str:
    """An event without what it leaves at its default."""
    if isinstance(thing, tuple) and not hasattr(thing, "_fields"):
        return "(" + ", ".join(brief(one) for one in thing) + ",)"
    if not is_dataclass(thing):
        return repr(thing)
    told = [
        f"{one.name}={brief(getattr(thing, one.name))}"
        for one in fields(thing)
        if getattr(thing, one.name) != one.default and getattr(thing, one.name) != {}
    ]
    return f"{type(thing).__name__}({', '.join(told)})"


def digest(log: Sequence[tuple[int, Decision]]) -> str:
    return hashlib.sha256("\n".join(map(repr, log)).encode()).hexdigest()
