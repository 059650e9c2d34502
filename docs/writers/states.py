"""docs/internals/states.md: the tables of lawful moves, as tables and as diagrams."""

from __future__ import annotations

from typing import Any

from docs.writers.markdown import code, sentence, table
from windlass.core.jobs import ATTEMPTS, JOBS, Outcome
from windlass.core.machine import Machine
from windlass.core.studies import STUDIES, TRIALS

MACHINES: tuple[Machine[Any], ...] = (JOBS, ATTEMPTS, STUDIES, TRIALS)

JOB_STATES = {
    "held": "waits for somebody to release it: submitted with `hold`, or quarantined",
    "queued": "waits for room, or for the end of a backoff",
    "starting": "placed; its workers are being started and find each other",
    "running": "every rank runs; with `on_member_loss: continue`, those that are not lost",
    "stopping": "told to end, within its grace",
    "succeeded": "every rank that decides ended with 0 (but for those it went on without)",
    "failed": "ended otherwise, and is not tried again",
    "cancelled": "stopped because somebody asked",
}
ATTEMPT_STATES = {
    "launching": "workers are being started and register",
    "alive": "the gang is whole",
    "ending": "told to end",
    "over": "proven: nothing of it runs any more; it has an outcome",
}
OUTCOMES = {
    "succeeded": "every rank that decides ended with 0 (but for those it went on without)",
    "failed": "a rank exited with another code, was killed, or the time limit was reached",
    "oom": "a rank was killed because its memory was used up",
    "lost": "the worker or its node went away; never counts against `retry.times`",
    "preempted": "ended to make room, or by `windlass restart`; never counts either",
    "cancelled": "ended because somebody asked",
    "hung": "no progress past `limits.idle`, and `retry.on` names `hung`",
    "refused": "the launch itself was wrong: command not found, code unreadable",
}
STUDY_STATES = {
    "running": "makes trials until it has all of them",
    "stopping": "makes no more; waits for the trials that were told to end",
    "finished": "every trial has its result, or its time was over",
    "stopped": "stopped because somebody asked",
    "failed": "could not go on: its first trials all failed, or it could not submit any more",
}
TRIAL_STATES = {
    "running": "its job waits, runs, or is tried again",
    "pausing": "came to a rung and is not among the best there: its job saves and ends",
    "paused": "its job is held and holds nothing; it goes on when it is promoted",
    "stopping": "its job was told to end",
    "succeeded": "its job ended well and has a value for every objective",
    "pruned": "stopped early; its last report is its value",
    "failed": "its job failed, or logged no value: a result too",
    "cancelled": "somebody stopped its job, or the study",
}
WORDS = {
    "job": JOB_STATES, "attempt": ATTEMPT_STATES, "study": STUDY_STATES, "trial": TRIAL_STATES,
}  # fmt: skip


def page() -> str:
    parts = [
        "# States\n",
        "A state is left only by its owner, through `move()` in "
        "[`server/jobs/moves.py`](../../src/windlass/server/jobs/moves.py), which checks the "
        "table below and writes the new state and its event in one transaction. The tables are "
        "in [`core/jobs.py`](../../src/windlass/core/jobs.py); those of studies and trials, which "
        "[`server/studies/tuning.py`](../../src/windlass/server/studies/tuning.py) moves, in "
        "[`core/studies.py`](../../src/windlass/core/studies.py).\n",
    ]
    for machine in MACHINES:
        words = WORDS[machine.noun]
        rows = [
            (code(state), owner, ", ".join(map(code, to.split(", "))) if to != "–" else to,
             words[state])
            for state, owner, to in machine.rows()
        ]  # fmt: skip
        parts += [
            f"## {machine.noun.capitalize()}\n",
            table(("state", "owner", "may go to", "what it means"), rows),
            f"```mermaid\n{machine.mermaid()}\n```\n",
        ]
    parts += [
        "## Outcomes\n",
        sentence(Outcome.__doc__) + " An attempt that is over has one of these:\n",
        table(("outcome", "what it means"), [(code(o), OUTCOMES[o]) for o in Outcome]),
    ]
    return "\n".join(parts)
