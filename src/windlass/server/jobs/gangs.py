"""From a job and its placement to what the worker and the framework's contract need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from windlass.contracts import launchers, registry
from windlass.contracts.base import ROLE_ORDER, Contract, Gang, Member
from windlass.core.jobs import JobSpec
from windlass.server.jobs import losses

Row = Mapping[str, Any]


@lru_cache(maxsize=64)
def contract(framework: str) -> Contract:
    """Raises contracts.registry.UnknownFramework."""
    return registry.contract(framework)


def counts(spec: JobSpec) -> dict[str, int]:
    return {name: role.count for name, role in spec.roles.items()}


def command_problems(framework: str, spec: JobSpec) -> list[str]:
    commands = {name: spec.command(name) for name in spec.roles}
    sizes = counts(spec)
    return [
        *contract(framework).command_problems(sizes, commands),
        *launchers.problems(sum(sizes.values()), list(commands.values())),
    ]


def loss_problems(framework: str, spec: JobSpec) -> list[str]:
    """Why this gang cannot go on without a member; nothing: it can, or need not."""
    if spec.on_member_loss != "continue":
        return []
    return contract(framework).loss_problems({name: spec.command(name) for name in spec.roles})


def finish_rules(framework: str, spec: JobSpec) -> dict[str, str]:
    """By role: what the job file says, or what the framework's contract does."""
    usual = contract(framework).finish(counts(spec))
    return {name: role.finish or usual.get(name, "all") for name, role in spec.roles.items()}


def finish(job: Row, spec: JobSpec, placement: Sequence[Row]) -> tuple[dict[str, str], int]:
    """Each role's finish rule, and how many processes of this placement (an elastic gang may be
    smaller than its job file says) decide the end."""
    sizes = Counter(placed["role"] for placed in placement)
    rules = finish_rules(job["framework"], spec)
    deciding = 0
    for name in spec.roles:
        if rules[name] == "never":
            continue
        count = 1 if rules[name] == "first" else sizes[name]
        deciding += count * _processes(job, spec, name)
    return rules, deciding


def lossy(
    job: Row, spec: JobSpec, placement: Sequence[Row], workers: Sequence[Row]
) -> losses.Gang | None:
    """What `losses` must know of a gang that goes on without those it loses; None of another."""
    if spec.on_member_loss != "continue":
        return None
    return losses.Gang(
        spec=spec,
        finish=finish_rules(job["framework"], spec),
        placement=placement,
        processes={name: _processes(job, spec, name) for name in spec.roles},
        workers=workers,
        holds=_first_node(placement) if contract(job["framework"]).needs_first_node else None,
    )


def _first_node(placement: Sequence[Row]) -> str | None:
    """The node of rank 0."""

    def order(placed: Row) -> tuple[int, str, int]:
        known = placed["role"] in ROLE_ORDER
        at = ROLE_ORDER.index(placed["role"]) if known else len(ROLE_ORDER)
        return at, placed["role"], placed["index"]

    return min(placement, key=order)["node"] if placement else None


def members(job: Row, spec: JobSpec, placement: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """By node, the `members` of its `launch.json`."""
    rules = finish_rules(job["framework"], spec)
    by_node: dict[str, list[dict[str, Any]]] = {}
    for placed in placement:
        role = spec.roles[placed["role"]]
        by_node.setdefault(placed["node"], []).append(
            {
                "role": placed["role"],
                "index": placed["index"],
                "nproc": role.ranks_per_member,
                "gpu_ids": list(placed["gpu_ids"]),
                "command": list(spec.command(placed["role"])),
                "vars": dict(role.vars),
                "cpus_milli": role.per_member.cpus_milli,
                "memory_bytes": role.memory,
                "finish": rules[placed["role"]],
            }
        )
    return by_node


def rendezvous(
    job: Row, spec: JobSpec, attempt: Row, workers: Sequence[Row]
) -> dict[str, dict[str, Any]]:
    """By node, what the contract makes of the whole gang's addresses."""
    at = {worker["node"]: worker for worker in workers}
    found = []
    for placed in attempt["placement"]:
        worker = at[placed["node"]]
        registered = next(
            member
            for member in worker["members"]
            if member["role"] == placed["role"] and member["index"] == placed["index"]
        )
        role = spec.roles[placed["role"]]
        found.append(
            Member(
                role=placed["role"],
                index=placed["index"],
                nproc=role.ranks_per_member,
                node=placed["node"],
                host=worker["host"],
                ports=tuple(registered["ports"]),
                command=spec.command(placed["role"]),
                gpus=role.gpus,
                ifname=(worker["isolation"] or {}).get("ifname"),
                cpus=role.cpus,
                service_port=registered.get("service_port") or 0,
                node_cpus=_amount(worker, "cpus"),
                node_cores=int(_amount(worker, "cores")),
                # Pods of one machine have addresses, and quotas, of their own; fake nodes do not.
                machine=f"{worker['boot_id']} {worker['host']}",
            )
        )
    gang = Gang(
        job_id=job["id"],
        job_name=job["name"],
        attempt=attempt["number"],
        members=tuple(found),
        minimum={name: role.min for name, role in spec.roles.items() if role.min},
        finish=finish_rules(job["framework"], spec),
        job_variables=frozenset(spec.environment.vars).union(
            *(role.vars for role in spec.roles.values())
        ),
        goes_on=spec.on_member_loss == "continue",
    )
    return registry.rendezvous(job["framework"], gang)


def _amount(worker: Row, name: str) -> float:
    """A number of the node's own report; 0 where it has none."""
    found = (worker["isolation"] or {}).get(name)
    return float(found) if isinstance(found, int | float) and 0 < found < 1e6 else 0.0


def _processes(job: Row, spec: JobSpec, name: str) -> int:
    role = spec.roles[name]
    member = Member(
        role=name, index=0, nproc=role.ranks_per_member, node="", host="",
        ports=(), command=spec.command(name), gpus=role.gpus,
    )  # fmt: skip
    return contract(job["framework"]).ranks_started_by_worker(member)
