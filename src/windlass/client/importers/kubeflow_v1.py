"""Kubeflow's training operator v1: TFJob, PyTorchJob, MPIJob (v2beta1 too) and their kin.

They differ in a few names, which stand in one table; replicas become roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windlass.client.importers import gang, pods, quantities
from windlass.client.importers.base import Fields, Imported, Report, compact, show, wrong
from windlass.client.importers.trainjob import processes
from windlass.core.errors import InvalidInput


@dataclass(frozen=True)
class Kind:
    framework: str
    replicas: str
    container: str
    roles: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Where our contract calls a role otherwise."""


KINDS = {
    "TFJob": Kind(
        "tensorflow", "tfReplicaSpecs", "tensorflow",
        ("chief", "master", "worker", "ps", "evaluator"),
    ),
    "PyTorchJob": Kind("pytorch", "pytorchReplicaSpecs", "pytorch", ("master", "worker")),
    "MPIJob": Kind("mpi", "mpiReplicaSpecs", "mpi", ("launcher", "worker")),
    "MXJob": Kind("mxnet", "mxReplicaSpecs", "mxnet", ("scheduler", "server", "worker")),
    "XGBoostJob": Kind("xgboost", "xgbReplicaSpecs", "xgboost", ("master", "worker")),
    "PaddleJob": Kind(
        "paddle", "paddleReplicaSpecs", "paddle", ("master", "worker"), {"master": "server"}
    ),
    "JAXJob": Kind("jax", "jaxReplicaSpecs", "jax", ("worker",)),
}  # fmt: skip


class KubeflowV1:
    name = f"{', '.join(KINDS)} (Kubeflow)"

    def matches(self, document: Any) -> bool:
        return document.get("kind") in list(KINDS)

    def convert(self, document: Any) -> Imported:
        report = Report()
        top = Fields(document, "", report)
        word = str(document.get("kind"))
        kind = KINDS[word]
        name = pods.metadata(top, "kubeflow.org/")
        spec = top.fields("spec")
        top.leave()
        if kind.replicas not in spec:
            raise InvalidInput(
                f"{spec.where(kind.replicas)}: a {word} says its replicas here; found: "
                + show(list(spec))
            )
        replicas = _replicas(spec.fields(kind.replicas), kind)
        found, backoff = _policies(spec)
        containers = {
            role: pods.template(about, kind.container, kind.framework)
            for role, (about, _) in replicas.items()
        }
        policies: dict[str, str] = {}
        roles: dict[str, gang.Role] = {}
        nproc = processes(spec, "nprocPerNode") if word == "PyTorchJob" else None
        for role, (about, count) in replicas.items():
            policy = about.text("restartPolicy")
            if policy is not None:
                policies[about.where("restartPolicy")] = policy
                report.mapped(about.where("restartPolicy"), policy, "retry")
            about.leave()
            roles[role] = containers[role].role(count, nproc)
        if word == "MPIJob":
            roles = _mpi(spec, roles, replicas)
        elif word == "PyTorchJob":
            roles = _elastic(spec.fields("elasticPolicy"), roles)
        elif word == "TFJob":
            roles = _success(spec, roles)
        for role, (about, _) in replicas.items():
            if role != "worker" or word != "MPIJob":
                pods.must_run(roles[role].run, f"{about.path}.template.spec.containers")
        gang.check(roles, kind.framework, report)
        spec.leave({"enableDynamicWorker": "a gang keeps its size", "jobMode": "from the roles"})
        grace = max((each.grace_seconds or 0 for each in containers.values()), default=0)
        limits = compact(
            {**found.pop("limits", {}), "grace": quantities.duration(grace) if grace else None}
        )
        retry = pods.retry(policies, backoff, report)
        return report.imported(
            word,
            compact(
                {
                    "name": name, "framework": kind.framework, **gang.fields(roles),
                    "limits": limits, "retry": retry, **found,
                }
            ),
        )  # fmt: skip


def _replicas(about: Fields, kind: Kind) -> dict[str, tuple[Fields, int]]:
    """By role: its replica spec and how many."""
    found: dict[str, tuple[Fields, int]] = {}
    for key in about:
        role = key.lower()
        if role not in kind.roles:
            raise InvalidInput(
                f"{about.where(key)}: no such replica; known: {', '.join(kind.roles)}"
            )
        role = kind.renamed.get(role, role)
        if role in found:
            raise InvalidInput(f"{about.where(key)}: the role {role} stands twice")
        replica = about.fields(key)
        given = replica.whole("replicas", maximum=100_000)
        count = 1 if given is None else given
        if count == 0:
            about.report.dropped(replica.path, "replicas: 0", "a role without members")
            continue
        about.report.mapped(replica.where("replicas"), count, f"roles.{role}.count")
        found[role] = (replica, count)
    if not found:
        raise wrong(about.path, about.value, "at least one replica")
    return found


def _policies(spec: Fields) -> tuple[dict[str, Any], int | None]:
    """From `runPolicy`, and from the job itself, where older files have the same fields."""
    found: dict[str, Any] = {}
    backoff = None
    for about in (spec, spec.fields("runPolicy")):
        limit = about.whole("backoffLimit", maximum=1_000_000)
        if limit is not None:
            backoff = limit
            spec.report.mapped(about.where("backoffLimit"), limit, "retry.times")
        found |= pods.policy(about)
        if about is not spec:
            about.leave()
    return found, backoff


def _mpi(
    spec: Fields, roles: dict[str, gang.Role], replicas: Mapping[str, tuple[Fields, int]]
) -> dict[str, gang.Role]:
    """The launcher's command is the job's; members of `worker` lend their slots to it."""
    report = spec.report
    slots = spec.whole("slotsPerWorker", minimum=1, maximum=4096)
    if slots is not None:
        report.mapped(spec.where("slotsPerWorker"), slots, "roles.worker.nproc")
    spec.drop("sshAuthMountPath", "no ssh: the worker of Windlass starts what mpirun asks for")
    spec.drop("launcherCreationPolicy", "a gang starts when every member is there")
    spec.drop("mainContainer", "the container named mpi, else the first, was taken")
    if spec.text("mpiImplementation") not in (None, "OpenMPI"):
        spec.hand("mpiImplementation", "see that the mpirun of this name is the first on PATH")
    if spec.flag("runLauncherAsWorker"):
        spec.hand("runLauncherAsWorker", "the launcher runs no rank: add one worker")
    if "launcher" not in roles:
        raise InvalidInput(f"{spec.where('mpiReplicaSpecs')}.Launcher: missing: it runs the job")
    if "worker" in roles:
        worker = roles["worker"]
        if worker.run:
            report.dropped(
                replicas["worker"][0].path, " ".join(worker.run),
                "workers wait for mpirun by themselves",
            )  # fmt: skip
        roles["worker"] = replace(worker, run=(), nproc=slots or worker.nproc)
    return roles


def _elastic(about: Fields, roles: dict[str, gang.Role]) -> dict[str, gang.Role]:
    if not list(about):
        return roles
    report = about.report
    least = about.whole("minReplicas", minimum=1, maximum=100_000)
    most = about.whole("maxReplicas", minimum=1, maximum=100_000)
    about.hand("maxRestarts", "torchrun restarts 3 times inside an attempt; see `retry.times`")
    if "nProcPerNode" in about:
        nproc = about.whole("nProcPerNode", minimum=1, maximum=4096)
        report.mapped(about.where("nProcPerNode"), nproc, "nproc")
        roles = {name: replace(role, nproc=nproc) for name, role in roles.items()}
    worker = roles.get("worker")
    if worker is not None and least is not None:
        fewest = min(least, worker.count)
        roles = {**roles, "worker": replace(worker, min=fewest)}
        report.mapped(about.where("minReplicas"), least, f"roles.worker.min: {fewest}")
        report.by_hand(
            about.where("minReplicas"), least,
            "torchrun is told min:count, but a lost member still restarts the gang "
            "(`on_member_loss: continue` does not go with torchrun)",
        )  # fmt: skip
    if most is not None:
        report.by_hand(
            about.where("maxReplicas"), most, "a gang never grows: set `count` to what it may get"
        )
    about.hand("metrics", "a gang is not resized by load")
    rendezvous = "Windlass tells torchrun where it stands"
    names = ("rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId", "rdzvConf", "standalone")
    about.leave(dict.fromkeys(names, rendezvous))
    return roles


def _success(spec: Fields, roles: dict[str, gang.Role]) -> dict[str, gang.Role]:
    """TFJob's successPolicy: by default worker 0 decides where there is no chief."""
    where = spec.where("successPolicy")
    policy = spec.text("successPolicy") or ""
    if policy not in ("", "AllWorkers"):
        raise wrong(where, policy, "AllWorkers, or nothing")
    if "worker" not in roles or not policy:
        return roles
    spec.report.mapped(where, policy, "roles.worker.finish: all")
    return {**roles, "worker": replace(roles["worker"], finish="all")}
