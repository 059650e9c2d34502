"""What is asked of a simulation, and what if it were otherwise: `--what-if nodes=1.2`.

A question is a set of changes to the plan; each gives one more run, told beside the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from windlass.core.errors import InvalidInput
from windlass.scheduler.events import Queue, Rules
from windlass.scheduler.simulate.generate import LOADED, generate
from windlass.scheduler.simulate.quotas import changed, read_quotas
from windlass.scheduler.simulate.traces import read_jobs, read_nodes
from windlass.scheduler.simulate.workload import Workload, at_load, with_nodes

POLICIES = ("strict", "backfill", "best-effort")
ORDERS = ("fair", "fifo")
CHANGES = (
    "nodes=FACTOR", "policy=" + "|".join(POLICIES), "order=" + "|".join(ORDERS), "load=X",
    "preemption=on|off", "seed=N", "TENANT.gpus=N",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """One run, as it was asked for."""

    jobs: str | None = None
    nodes: str | None = None
    quotas: str | None = None
    generate: str | None = None
    policy: str | None = None
    order: str | None = None
    preemption: bool | None = None
    seed: int = 0
    limit: int | None = None
    load: float | None = None
    scale_nodes: float = 1.0
    sets: tuple[str, ...] = ()
    grace_ms: int | None = None


def workload(plan: Plan) -> Workload:
    """Read or make what the plan asks for."""
    if plan.generate is not None:
        if plan.jobs is not None:
            raise InvalidInput("--generate makes the jobs: give it no file of jobs")
        found = generate(plan.generate, seed=plan.seed, limit=plan.limit, load=plan.load)
        if plan.nodes is not None:
            found.offers = read_nodes(plan.nodes)
    elif plan.jobs is None:
        raise InvalidInput("give it a file of jobs, or --generate NAME")
    elif plan.nodes is None:
        raise InvalidInput("--nodes is missing: the file that describes the cluster")
    else:
        offers = read_nodes(plan.nodes)
        widest = max(offer.gpus for offer in offers) or 8
        jobs = read_jobs(plan.jobs, limit=plan.limit, node_gpus=widest)
        found = Workload(jobs, offers, name=plan.jobs)
    found.rules = _rules(plan, found.rules)
    if plan.grace_ms is not None:
        found.grace_ms = plan.grace_ms
    if plan.load is not None and plan.generate not in LOADED:
        found = at_load(found, plan.load)
    # The load is that of the cluster as it is: more nodes then have less to do.
    return found if plan.scale_nodes == 1 else with_nodes(found, plan.scale_nodes)


def _rules(plan: Plan, rules: Rules) -> Rules:
    quotas, caps = rules.quotas, rules.caps
    if plan.quotas is not None:
        quotas, caps = read_quotas(plan.quotas)
    for change in plan.sets:
        quotas = changed(quotas, change)
    rules = replace(rules, quotas=quotas, caps=caps)
    if plan.policy is not None:
        rules = replace(rules, queues=(Queue("default", plan.policy),))
    if plan.order is not None:
        rules = replace(rules, order=plan.order)
    if plan.preemption is not None:
        rules = replace(rules, preemption=plan.preemption)
    return rules


def what_if(plan: Plan, question: str) -> Plan:
    """The plan with the changes of one question: `nodes=1.2`, or several with commas."""
    for change in question.split(","):
        plan = _change(plan, question, change.strip())
    return plan


def _change(plan: Plan, question: str, change: str) -> Plan:
    name, sign, value = change.partition("=")
    if not sign or not value:
        raise _unclear(question, f"{change!r} is no change")
    if name == "nodes":
        return replace(plan, scale_nodes=_positive(question, value))
    if name == "load":
        return replace(plan, load=_positive(question, value))
    if name == "policy":
        return replace(plan, policy=_one_of(question, value, POLICIES))
    if name == "order":
        return replace(plan, order=_one_of(question, value, ORDERS))
    if name == "preemption":
        return replace(plan, preemption=_one_of(question, value, ("on", "off")) == "on")
    if name == "seed":
        if not value.isdecimal():
            raise _unclear(question, f"{value!r} is not a whole number")
        return replace(plan, seed=int(value))
    if "." not in name:
        raise _unclear(question, f"{name!r} is not known")
    return replace(plan, sets=(*plan.sets, change))


def _positive(question: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1000:
        raise _unclear(question, f"{value!r} is not a number above 0 up to 1000")
    return number


def _one_of(question: str, value: str, known: Iterable[str]) -> str:
    if value not in known:
        raise _unclear(question, f"{value!r} is not one of {', '.join(known)}")
    return value


def _unclear(question: str, why: str) -> InvalidInput:
    return InvalidInput(f"--what-if {question}: {why}", hint="known: " + ", ".join(CHANGES))
