"""Named places where a fault test ends this process, or stops it: there, at the nth passing.

    WINDLASS_FAILPOINT=after-submit-commit:kill@3       the third time, by SIGKILL
    WINDLASS_FAILPOINT=before-launch:kill,after-launch:kill@2
    WINDLASS_FAILPOINT=before-start-commit:stop         by SIGSTOP: whoever armed it lets it go on

Unset, as always outside tests, passing a place costs one look at an empty dictionary. Known
places: `after-submit-commit` (a job is durable, its answer not sent), `before-start-commit` (a
start is decided, not yet written down), `after-start-commit` (an attempt is durable, its owner not
told), `after-preempt-commit` (the same for a preemption), `before-launch` and `after-launch`
(around the engine's part, whose success is not yet written down), `before-over-commit` (an
attempt's end is proven, not yet written down), `before-trial-commit` and `after-trial-commit`
(around the transaction that makes a study's next trials with their jobs), `after-checkpoint-mark`
(some may go, their files are there), `after-checkpoint-rename` (one has lost its name, its files
are there), `after-checkpoint-files` (its files are gone, its row is there), `before-object-row`
(files are in the storage, which is not yet written down), `after-object-row` (it is, and they lie
on this disk too), `before-local-removal` (these are about to go).
"""

from __future__ import annotations

import os
import signal

VARIABLE = "WINDLASS_FAILPOINT"
PLACES = frozenset(
    {
        "after-submit-commit",
        "before-start-commit",
        "after-start-commit",
        "after-preempt-commit",
        "before-launch",
        "after-launch",
        "before-over-commit",
        "before-trial-commit",
        "after-trial-commit",
        "after-checkpoint-mark",
        "after-checkpoint-rename",
        "after-checkpoint-files",
        "before-object-row",
        "after-object-row",
        "before-local-removal",
    }
)


_ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def parse(text: str) -> dict[str, tuple[int, signal.Signals]]:
    """Place → how many passings are left, and what then. Raises ValueError: a mistyped place would
    let a fault test pass without its fault."""
    armed = {}
    for word in filter(None, text.split(",")):
        place, colon, action = word.partition(":")
        action, _, number = action.partition("@")
        if place not in PLACES or not colon or action not in _ACTIONS:
            raise ValueError(f"{VARIABLE}={text}: {word!r} is not PLACE:kill[@N] or :stop[@N]")
        armed[place] = (int(number or 1), _ACTIONS[action])
    return armed


_armed = parse(os.environ.get(VARIABLE, ""))


def passing(place: str) -> None:
    """Die or stop here if this is the place and the passing that the environment named."""
    if _armed and place in _armed:
        left, how = _armed[place]
        _armed[place] = (left - 1, how)
        if left == 1:
            os.kill(os.getpid(), how)
