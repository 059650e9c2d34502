"""How contracts are found, and the one call the server makes: `rendezvous(framework, gang)`.

A framework is an entry point of the group `windlass.frameworks`, ours through the same door. Where
the package was not installed (a checkout, a zipapp) the table below stands in for ours.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module, metadata
from typing import Any, Dict, FrozenSet, Iterable, List, Tuple, cast

from windlass.contracts import neutral, threads
from windlass.contracts.base import Contract, Gang, RankPlace, places

GROUP = "windlass.frameworks"

BUILT_IN = {
    "horovod": "windlass.contracts.horovod:HorovodContract",
    "mpi": "windlass.contracts.mpi:MpiContract",
    "caffe": "windlass.contracts.legacy:CaffeContract",
    "chainer": "windlass.contracts.legacy:ChainerContract",
    "cntk": "windlass.contracts.legacy:CNTKContract",
    "jax": "windlass.contracts.jax:JaxContract",
    "lightgbm": "windlass.contracts.lightgbm:LightGBMContract",
    "mxnet": "windlass.contracts.mxnet:MXNetContract",
    "paddle": "windlass.contracts.paddle:PaddleContract",
    "python": "windlass.contracts.python:PythonContract",
    "pytorch": "windlass.contracts.pytorch:PyTorchContract",
    "sklearn": "windlass.contracts.sklearn:SklearnContract",
    "spark": "windlass.contracts.spark:SparkContract",
    "theano": "windlass.contracts.legacy:TheanoContract",
    "xgboost": "windlass.contracts.xgboost:XGBoostContract",
    "tensorflow": "windlass.contracts.tensorflow:TensorFlowContract",
    "tensorflow1": "windlass.contracts.tensorflow1:TensorFlow1Contract",
    "keras": "windlass.contracts.keras:KerasContract",
}


class UnknownFramework(ValueError):
    """No contract has that name; the message lists those that exist."""


def names() -> List[str]:
    """Every framework that can be asked for."""
    return sorted({*BUILT_IN, *(point.name for point in _entry_points())})


def contract(framework: str) -> Contract:
    """The contract of a framework. Raises UnknownFramework."""
    for point in _entry_points():
        if point.name == framework:
            return cast(Contract, point.load()())
    if framework not in BUILT_IN:
        raise UnknownFramework("no framework %r; known: %s" % (framework, ", ".join(names())))
    module, _, name = BUILT_IN[framework].partition(":")
    return cast(Contract, getattr(import_module(module), name)())


def reserved(framework: str) -> FrozenSet[str]:
    """The variables a job of this framework may not set (and none that starts with WINDLASS_)."""
    return neutral.reserved() | contract(framework).reserved()


def refused(framework: str, names: Iterable[str]) -> List[str]:
    """Which of these variables of a user would override a launch variable."""
    taken = reserved(framework)
    return sorted(
        name for name in names if name in taken or name.startswith(neutral.RESERVED_PREFIX)
    )


def rendezvous(framework: str, gang: Gang) -> Dict[str, Dict[str, Any]]:
    """For each node of a whole gang, what its worker needs: the `rendezvous` of the protocol
    without the fields that only the server knows (resume_from, deadline, token, url)."""
    found = contract(framework)
    finish = {member.role: gang.finish.get(member.role, "all") for member in gang.ordered}
    extras = {
        "hooks": list(found.hooks(gang)),
        "probes": [
            {"module": p.module, "env": dict(p.variables), "found": p.found, "missing": p.missing}
            for p in found.probes(gang)
        ],
        "services": list(found.services(gang)),
        "ports_stay_held": found.ports_stay_held,
    }
    answers: Dict[str, Dict[str, Any]] = {
        node: {"members": [], "finish": finish, "nodes": len(gang.nodes), **extras}
        for node in gang.nodes
    }
    neutral_files = neutral.files(gang)
    for member in gang.ordered:
        ranks = []
        for place in places(found, gang, member):
            told: Dict[str, Any] = {
                "rank": place.rank,
                "env": environment(found, gang, place),
                "files": {**neutral_files, **found.files(gang, place)},
            }
            prefix, stand_in = found.prefix(gang, place), found.stand_in(gang, place)
            if prefix:
                told["prefix"] = list(prefix)
            if stand_in:
                told["instead"] = stand_in
            ranks.append(told)
        answers[member.node]["members"].append(
            {"role": member.role, "index": member.index, "gpus": found.gpus, "ranks": ranks}
        )
    return answers


def environment(found: Contract, gang: Gang, place: RankPlace) -> Dict[str, str]:
    """All that one process is told; what its framework says wins."""
    return {
        **neutral.environment(gang, place),
        **threads.environment(found, gang, place),
        **found.environment(gang, place),
    }


@lru_cache(maxsize=1)
def _entry_points() -> Tuple[metadata.EntryPoint, ...]:
    points: Any = metadata.entry_points()
    # Python 3.8 and 3.9 give a dict of groups.
    if hasattr(points, "select"):
        return tuple(points.select(group=GROUP))
    return tuple(points.get(GROUP, ()))
