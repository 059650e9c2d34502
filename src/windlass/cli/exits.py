"""Exit codes: what a script learns from `$?`. The page docs/reference/exit-codes.md is this table.

`run`, `wait` and `logs -f` return the job's own code when there is one; the codes from 100 on are
for when there is none. 100 to 103 are those of SkyPilot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.core import errors

if TYPE_CHECKING:
    from windlass.client.jobs import Job

OK = 0
ERROR = 1
USAGE = 2
FAILED = 100
NOT_FINISHED = 101
NOT_FOUND = 102
CANCELLED = 103
REFUSED = 104
UNREACHABLE = 105
PREEMPTED = 106
BROKEN_PIPE = 141

MEANING = {
    OK: "it worked; the job succeeded",
    ERROR: "an error of Windlass, or the object is not in a state that allows this",
    USAGE: "the command, a flag or a file is wrong; nothing was done",
    FAILED: "the job failed without an exit code of its own (a node was lost, it hung)",
    NOT_FINISHED: "the job goes on: `wait --timeout` ran out, or Ctrl-C detached from it",
    NOT_FOUND: "no such job",
    CANCELLED: "the job was cancelled",
    REFUSED: "refused: missing rights or key, over a limit, or larger than any node",
    UNREACHABLE: "no server answers, or it cannot answer now",
    PREEMPTED: "the job was preempted and is not tried again",
    BROKEN_PIPE: "whoever read our output went away",
}

_BY_ERROR: tuple[tuple[type[errors.WindlassError], int], ...] = (
    (errors.NeverFits, REFUSED),
    (errors.InvalidInput, USAGE),
    (errors.TooLarge, USAGE),
    (errors.Unauthenticated, REFUSED),
    (errors.Forbidden, REFUSED),
    (errors.LimitExceeded, REFUSED),
    (errors.NotFound, NOT_FOUND),
    (errors.Unreachable, UNREACHABLE),
    (errors.Unavailable, UNREACHABLE),
)


def of_error(problem: errors.WindlassError) -> int:
    return next((code for kind, code in _BY_ERROR if isinstance(problem, kind)), ERROR)


def of_job(job: Job) -> int:
    """The job's own code; one above 100 when it has none."""
    if job.state == "succeeded":
        return OK
    if job.state == "cancelled":
        return CANCELLED
    if not job.done:
        return NOT_FINISHED
    if job.exit_code:
        return 128 - job.exit_code if job.exit_code < 0 else job.exit_code & 0xFF or FAILED
    return PREEMPTED if job.outcome == "preempted" else FAILED
