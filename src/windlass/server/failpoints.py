"""Named places where a fault test lets this process die: at that line, at the nth passing.

    WINDLASS_FAILPOINT=after-submit-commit:kill@3       the third time, by SIGKILL
    WINDLASS_FAILPOINT=before-launch:kill,after-launch:kill@2

Unset, as always outside tests, passing a place costs one look at an empty dictionary. Known
places: `after-submit-commit` (a job is durable, its answer not sent), `after-start-commit` (an
attempt is durable, its owner not told), `before-launch` and `after-launch` (around the engine's
part, whose success is not yet written down), `before-over-commit` (an attempt's end is proven,
not yet written down).
"""

from __future__ import annotations

import os
import signal

VARIABLE = "WINDLASS_FAILPOINT"
PLACES = frozenset(
    {
        "after-submit-commit",
        "after-start-commit",
        "before-launch",
        "after-launch",
        "before-over-commit",
    }
)


def parse(text: str) -> dict[str, int]:
    """Place → how many passings are left. Raises ValueError: a mistyped place would let a fault
    test pass without its fault."""
    armed = {}
    for word in filter(None, text.split(",")):
        place, colon, action = word.partition(":")
        action, _, number = action.partition("@")
        if place not in PLACES or not colon or action != "kill":
            raise ValueError(f"{VARIABLE}={text}: {word!r} is not PLACE:kill[@N]")
        armed[place] = int(number or 1)
    return armed


_armed = parse(os.environ.get(VARIABLE, ""))


def passing(place: str) -> None:
    """Die here if this is the place and the passing that the environment named."""
    if _armed and place in _armed:
        _armed[place] -= 1
        if _armed[place] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
