"""A gang that goes on without the members it loses (`on_member_loss: continue`). Pure.

A member is *done* when all its ranks ended well; *gone* when one of them was given up by its
worker, or its node was lost. A rank that its worker starts again is neither. The attempt goes on
as long as each role has as many members that are not gone as its `min` says (absent: 1), and has
succeeded when every member that decides is done or gone, and enough are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.core.jobs import JobSpec, Outcome
from windlass.server.jobs import policy

Row = Mapping[str, Any]
Records = Mapping[str, Row | None]

_AWAY = (Outcome.LOST, Outcome.CANCELLED)
"""How a node's part ends when it was not the job that ended it (nobody here told it to)."""


@dataclass(frozen=True)
class Gang:
    """What is known of the members of one attempt, from its rows."""

    spec: JobSpec
    finish: Mapping[str, str]
    placement: Sequence[Row]
    processes: Mapping[str, int]
    """Role → processes that the worker starts for each member."""
    workers: Sequence[Row]
    holds: str | None
    """The node without which the others cannot go on."""


@dataclass(frozen=True)
class Standing:
    """How the members of one role stand; those that are neither done nor gone are at work."""

    placed: int = 0
    done: int = 0
    gone: tuple[str, ...] = ()
    first_gone: bool = False
    """Member 0 of the role is gone."""

    @property
    def left(self) -> int:
        return self.placed - len(self.gone)


def standings(gang: Gang, records: Records) -> dict[str, Standing]:
    well, bad = _ranks(gang, records)
    found: dict[str, Standing] = {}
    for placed in gang.placement:
        role, index = placed["role"], placed["index"]
        now = found.get(role, Standing())
        now = replace(now, placed=now.placed + 1)
        record = records.get(placed["node"])
        away = record is not None and record["outcome"] in _AWAY
        if well.get((role, index), 0) >= gang.processes.get(role, 1):
            now = replace(now, done=now.done + 1)
        elif away or (role, index) in bad:
            gone = (*now.gone, f"{role}-{index}")
            now = replace(now, gone=gone, first_gone=now.first_gone or index == 0)
        found[role] = now
    return found


def short(gang: Gang, now: Mapping[str, Standing]) -> str | None:
    """In words, why the attempt cannot go on; None while enough members are left."""
    for role, standing in now.items():
        if gang.finish.get(role) == "first" and standing.first_gone:
            return f"{role}-0 is gone, which decides the end"
        least = min(gang.spec.roles[role].min or 1, standing.placed)
        if standing.left < least:
            names = ", ".join(standing.gone)
            return (
                f"{standing.left} of {standing.placed} members of role {role} are left, "
                f"`min` is {least}: {names} gone"
            )
    return None


def finished(gang: Gang, now: Mapping[str, Standing]) -> bool:
    """Whether all that decide are done, or gone; only to be asked while enough are left."""
    for role, standing in now.items():
        rule = gang.finish.get(role, "all")
        if rule == "all" and (not standing.done or standing.done < standing.left):
            return False
        if rule == "first" and not standing.done:
            return False
    return True


def ended(gang: Gang, records: Records) -> tuple[Outcome, str] | None:
    """Whether the nodes that still run must end, and how: it cannot go on, or it is done."""
    for node, record in records.items():
        if record is None or record["outcome"] == Outcome.SUCCEEDED:
            continue
        if record["outcome"] in _AWAY:
            if node == gang.holds:
                why = f"node {node} was lost, and with it the place where the members meet"
                return Outcome.LOST, why
        elif not any(rank.get("given_up") for rank in record.get("ranks", ())):
            # Refused, hung, or ended for a limit that the job had reached: no loss of a member.
            return Outcome(record["outcome"]), str(record.get("reason", ""))
    now = standings(gang, records)
    why = short(gang, now) or ""
    if why:
        lost = any(record and record["outcome"] in _AWAY for record in records.values())
        return Outcome.LOST if lost else Outcome.FAILED, why
    return (Outcome.SUCCEEDED, _well(now)) if finished(gang, now) else None


def judge(gang: Gang, records: Records, told: Outcome | None, told_why: str) -> policy.Verdict:
    """How an attempt that is over ended: `policy.judge`, with those that are gone forgiven."""
    known = [record for record in records.values() if record]
    now = standings(gang, records)
    if short(gang, now) is None and finished(gang, now):
        unhealthy = tuple(sorted(record["node"] for record in known if record.get("survivors")))
        return policy.Verdict(Outcome.SUCCEEDED, _well(now), 0, unhealthy_nodes=unhealthy)
    causes = [_first_losses(record) for record in known]
    verdict = policy.judge(gang.finish, causes, told, told_why, len(gang.placement))
    if verdict.needs:
        return verdict
    if told is Outcome.LOST:
        # Whoever failed afterwards failed because of it.
        return replace(verdict, outcome=Outcome.LOST, reason=told_why, exit_code=None)
    why = short(gang, now)
    if why and verdict.outcome in (Outcome.FAILED, Outcome.OOM):
        return replace(verdict, reason=f"{verdict.reason}; {why}")
    return verdict


def _first_losses(record: Row) -> Row:
    """The record with each rank that was given up as it failed first: how it failed after its
    return may be no more than what followed from that."""
    ranks = [
        {**rank, **rank["first_loss"]} if rank.get("given_up") and rank.get("first_loss") else rank
        for rank in record.get("ranks", ())
    ]
    return {**record, "ranks": ranks}


def node_lost(spec: JobSpec, attempt: Row, node: str, record: Row) -> str | None:
    """What to say of a node that went away while the others go on; None when they do not."""
    if spec.on_member_loss != "continue" or attempt["ending_outcome"]:
        return None
    if record["outcome"] not in _AWAY:
        return None
    names = [f"{p['role']}-{p['index']}" for p in attempt["placement"] if p["node"] == node]
    why = f": {record['reason']}" if record.get("reason") else ""
    return f"node {node} was lost with {', '.join(names)}{why}"


def _ranks(gang: Gang, records: Records) -> tuple[dict[tuple[str, int], int], set[Any]]:
    """(how many ranks of each member ended well, members with a rank that was given up)."""
    seen: dict[tuple[str, int, int], bool] = {}
    for worker in gang.workers:
        for rank in worker["ended_ranks"] or ():
            seen[rank["role"], rank["index"], rank["local_rank"]] = rank.get("exit") == 0
    for record in records.values():
        for rank in record.get("ranks", ()) if record else ():
            place = rank["role"], rank["index"], rank["local_rank"]
            if rank.get("exit") == 0 and rank.get("ended_by", "itself") == "itself":
                seen[place] = True
            elif rank.get("given_up"):
                seen[place] = False
    well: dict[tuple[str, int], int] = {}
    for (role, index, _), fine in seen.items():
        well[role, index] = well.get((role, index), 0) + int(fine)
    return well, {(role, index) for (role, index, _), fine in seen.items() if not fine}


def _well(now: Mapping[str, Standing]) -> str:
    gone = [name for standing in now.values() for name in standing.gone]
    return f"all ranks ended well but {', '.join(gone)}" if gone else "all ranks ended well"
