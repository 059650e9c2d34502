"""TensorFlow: TF_CONFIG, as MultiWorkerMirroredStrategy, ParameterServerStrategy and TensorFlow 1
read it.

    worker=2                    MultiWorkerMirroredStrategy; worker 0 is the chief
    chief=1,worker=2,ps=1       ParameterServerStrategy; the chief coordinates and decides the end
    …,evaluator=1               outside the training cluster: only the evaluator itself sees it

One process a member, which sees all its member's GPUs, as every launcher of TensorFlow does: a
script with a strategy of its own spreads over them. `nproc` of another number than the GPUs starts
so many of a worker; with fewer GPUs than processes they share, and take memory as they need it.

A gang of one process gets no TF_CONFIG at all: scripts test for its absence.
"""

from __future__ import annotations

import json
from typing import Any, Dict, FrozenSet, List, Mapping, Tuple

from windlass.contracts.base import (
    Contract,
    Gang,
    Member,
    Probe,
    RankPlace,
    sharers,
    unknown_roles,
)

LEADERS = ("chief", "master")
ROLES = (*LEADERS, "worker", "ps", "evaluator")
RESERVED = frozenset(
    "TF_CONFIG TF_CLUSTER_DEF TF_ROLE TF_INDEX CLUSTER_SPEC JOB_NAME TASK_INDEX TASK_NUM"
    " TF_GRPC_REUSE_PORT".split()
)
SETTINGS = frozenset({"TF_FORCE_GPU_ALLOW_GROWTH"})
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class TensorFlowContract(Contract):
    name = "tensorflow"
    roles = ROLES
    ports_stay_held = True  # by TF_GRPC_REUSE_PORT
    threads = THREADS

    def problems(self, counts: Mapping[str, int]) -> List[str]:
        found = role_problems(self, counts)
        if not found and counts.get("ps") and not any(role in counts for role in LEADERS):
            found.append(
                "ps: a parameter server needs a chief (or master) that coordinates; where worker 0"
                " leads, as in TensorFlow 1, use framework tensorflow1"
            )
        return found

    def finish(self, counts: Mapping[str, int]) -> Dict[str, str]:
        return finish_rules(counts)

    def reserved(self) -> FrozenSet[str]:
        return RESERVED

    def settings(self) -> FrozenSet[str]:
        return SETTINGS

    def ranks_started_by_worker(self, member: Member) -> int:
        if member.role != "worker" or member.nproc == member.gpus:
            return 1
        return member.nproc

    def sharers_of_cpus(self, member: Member) -> int:
        return self.ranks_started_by_worker(member)

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        return {
            **cluster_variables(addresses(self, gang), place),
            **shared_gpus(self, place.member),
        }

    def probes(self, gang: Gang) -> Tuple[Probe, ...]:
        if sum(map(len, addresses(self, gang).values())) == 1:
            return ()
        return (
            Probe(
                "tf_keras",
                {"TF_USE_LEGACY_KERAS": "1"},
                "tf.keras is tf_keras here (TF_USE_LEGACY_KERAS=1): the fit of Keras 3 works"
                " neither under MultiWorkerMirroredStrategy nor under ParameterServerStrategy",
                "tf_keras is not installed: from TensorFlow 2.16 on tf.keras is Keras 3, whose fit"
                " works neither under MultiWorkerMirroredStrategy nor under"
                " ParameterServerStrategy; pip install tf_keras if the script calls it",
            ),
        )


def role_problems(contract: Contract, counts: Mapping[str, int]) -> List[str]:
    """What no kind of TensorFlow takes."""
    found = unknown_roles(contract, counts)
    if all(role in counts for role in LEADERS):
        found.append("chief and master are two names of one role: give one of them")
    for role in (*LEADERS, "evaluator"):
        if counts.get(role, 0) > 1:
            found.append("%s: there can be only one, %d were asked for" % (role, counts[role]))
    if not found and not any(role in counts for role in (*LEADERS, "worker")):
        found.append("%s: nobody trains; add a chief or workers" % ", ".join(counts))
    return found


def finish_rules(counts: Mapping[str, int]) -> Dict[str, str]:
    """The chief decides where there is one (a worker of ParameterServerStrategy serves for ever),
    else all workers; parameter servers and the evaluator never do."""
    led = any(role in counts for role in LEADERS)
    deciding = LEADERS if led else ("worker",)
    return {role: "all" if role in deciding else "never" for role in counts}


def addresses(contract: Contract, gang: Gang) -> Dict[str, List[str]]:
    """By role, `host:port` of each process, in the order of its index."""
    found: Dict[str, List[str]] = {}
    for member in gang.ordered:
        for port in member.ports[: contract.ranks_started_by_worker(member)]:
            found.setdefault(member.role, []).append("%s:%d" % (member.host, port))
    return found


def cluster_variables(
    every: Mapping[str, List[str]], place: RankPlace, **extras: Any
) -> Dict[str, str]:
    """TF_CONFIG, and the same in the words of other platforms (Hbox, TonY). `extras` are further
    fields of TF_CONFIG."""
    if sum(map(len, every.values())) == 1:
        return {}
    role = place.member.role
    # An evaluator that the others know of would be waited for.
    cluster = {name: each for name, each in every.items() if name != "evaluator" or name == role}
    own = "%s:%d" % (place.member.host, place.member.ports[place.local_rank])
    index = every[role].index(own)
    task = {"type": role, "index": index}
    return {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": task, **extras}),
        # The port's holder and TensorFlow may have it at the same time.
        "TF_GRPC_REUSE_PORT": "true",
        "TF_CLUSTER_DEF": json.dumps(cluster),
        "TF_ROLE": role,
        "TF_INDEX": str(index),
        "CLUSTER_SPEC": json.dumps(cluster),
        "JOB_NAME": role,
        "TASK_INDEX": str(index),
        # As TonY counts: those whose end is waited for.
        "TASK_NUM": str(sum(len(each) for name, each in every.items() if name != "ps")),
    }


def shared_gpus(contract: Contract, member: Member) -> Dict[str, str]:
    """TensorFlow takes a GPU's whole memory: not where several processes have one GPU."""
    if sharers(contract.ranks_started_by_worker(member), member.gpus) > 1:
        return {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {}
