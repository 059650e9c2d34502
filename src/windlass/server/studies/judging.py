"""What became of a trial, from what became of its job. Pure.

job              trial
held             pausing → paused
succeeded        → succeeded, with its values; → failed, when it logged none
failed           → failed: a result like any other
cancelled        stopping → pruned, or cancelled where the study stops; else → cancelled
gone             → failed: nobody can say any more
queued or live   paused → running: somebody released it by hand
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.core.jobs import JobState
from windlass.core.studies import Objective, TrialState

Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Verdict:
    state: TrialState
    reason: str


def judge(
    state: TrialState,
    job: Mapping[str, Any] | None,
    values: Values,
    objectives: Sequence[Objective],
    *,
    study_stops: bool,
) -> Verdict | None:
    """The trial's next state; None: as it is."""
    if job is None:
        return Verdict(TrialState.FAILED, "its job was removed before its result was read")
    now = JobState(job["state"])
    if now is JobState.SUCCEEDED:
        missing = [
            objective.metric
            for objective, value in zip(objectives, values, strict=True)
            if value is None
        ]
        if not missing:
            return Verdict(TrialState.SUCCEEDED, "")
        return Verdict(
            TrialState.FAILED,
            f"it ended well, but logged no number for {', '.join(missing)}: "
            f"windlass.log({missing[0]}=…)",
        )
    if now is JobState.FAILED:
        return Verdict(TrialState.FAILED, job["reason"])
    if now is JobState.CANCELLED:
        if state is TrialState.STOPPING and not study_stops:
            return Verdict(TrialState.PRUNED, job["reason"])
        return Verdict(TrialState.CANCELLED, job["reason"])
    if now is JobState.HELD:
        return Verdict(TrialState.PAUSED, "") if state is TrialState.PAUSING else None
    if job["wish"] is None and state in (TrialState.PAUSED, TrialState.PAUSING):
        return Verdict(TrialState.RUNNING, "its job goes on: somebody released it")
    return None
