"""What ends a training, in words: which ranks, which operation, which step.

The contract of every strategy: no wait without a deadline; an error names who is missing, in which
operation, at which step; state is before or after a step, never between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from windlass.core.errors import MemberLost

E = TypeVar("E", bound=BaseException)


def lost(
    missing: Sequence[str], operation: str, step: int | None, *, why: str = "", waited: float = 0.0
) -> MemberLost:
    """The one sentence of a lost member. `missing` are names such as `worker 2`, `server 0`."""
    names = ", ".join(missing) if missing else "a member"
    at = "" if step is None else f" at step {step}"
    cause = why or f"nothing came for {waited:.1f} s"
    return MemberLost(
        f"{names} lost in {operation}{at}: {cause}",
        hint="the last lines of that member's output say more; a run with checkpoint= resumes",
        missing=list(missing),
        operation=operation,
        step=step,
    )


def first_cause(failures: Sequence[E]) -> E:
    """Of several members' errors, the first that is not merely "I miss the other": that member
    failed before the others missed it."""
    own = [err for err in failures if not isinstance(err, MemberLost)]
    return (own or failures)[0]
