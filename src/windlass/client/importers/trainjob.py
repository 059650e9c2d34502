"""TrainJob of Kubeflow Trainer v2: one role, and a runtime that is not in the file."""

from __future__ import annotations

from typing import Any

from windlass.client.importers import gang, pods
from windlass.client.importers.base import Fields, Imported, Report, compact

RUNTIMES = {
    "torch": "pytorch", "torchtune": "pytorch", "jax": "jax", "xgboost": "xgboost",
    "deepspeed": "mpi", "mlx": "mpi", "mpi": "mpi", "paddle": "paddle", "tensorflow": "tensorflow",
}  # fmt: skip
OVERRIDES = "it changes pods, which are not here: see whether the job needs what it says"


class TrainJob:
    name = "TrainJob (Kubeflow Trainer v2)"

    def matches(self, document: Any) -> bool:
        return bool(document.get("kind") == "TrainJob")

    def convert(self, document: Any) -> Imported:
        report = Report()
        top = Fields(document, "", report)
        name = pods.metadata(top, "trainer.kubeflow.org/")
        spec = top.fields("spec")
        top.leave()
        framework = _framework(spec.fields("runtimeRef"))
        found = pods.policy(spec)
        _data(spec.fields("initializer"))
        roles = _roles(spec.fields("trainer"), framework)
        for key in ("podTemplateOverrides", "podSpecOverrides", "runtimePatches"):
            spec.hand(key, OVERRIDES)
        labels = "jobs have no labels yet"
        spec.leave({"labels": labels, "annotations": labels})
        shape = gang.fields(roles)
        return report.imported(
            "TrainJob",
            compact({"name": name, "framework": framework, **shape, **found}),
        )


def _framework(runtime: Fields) -> str | None:
    """From the runtime's name: the runtime itself is another object."""
    name = runtime.text("name")
    runtime.ignore("apiGroup", "kind")
    runtime.leave()
    if name is None:
        return None
    framework = RUNTIMES.get(name.partition("-")[0])
    if framework:
        runtime.report.mapped(runtime.where("name"), name, f"framework: {framework}")
    else:
        runtime.report.by_hand(
            runtime.where("name"), name, "a runtime not known here: set `framework`, see its image"
        )
    return framework


def _roles(trainer: Fields, framework: str | None) -> dict[str, gang.Role]:
    report = trainer.report
    count = trainer.whole("numNodes", minimum=1, maximum=100_000)
    if count is None:
        report.by_hand(trainer.where("numNodes"), "absent", "the runtime's number: 1 was taken")
    else:
        report.mapped(trainer.where("numNodes"), count, "count")
    nproc = processes(trainer, "numProcPerNode")
    found = pods.container(trainer, framework, "resourcesPerNode")
    pods.must_run(found.run, trainer.path)
    worker = found.role(count or 1, nproc)
    if framework != "mpi":
        return {"worker": worker}
    report.mapped(trainer.path, "mpirun", "roles.launcher (runs the command), roles.worker")
    return {"launcher": gang.Role(run=worker.run, vars=worker.vars), "worker": worker}


def processes(about: Fields, key: str) -> int | None:
    """A number of processes; None where the words `auto` or `gpu` leave it to the GPUs."""
    found = about.any(key)
    if found is None:
        return None
    if isinstance(found, str) and found.isdecimal() and len(found) <= 4:
        found = int(found)
        about.value[key] = found
    if found in ("auto", "gpu"):
        about.report.mapped(about.where(key), found, "nproc, by default one for each GPU")
        return None
    if found == "cpu":
        about.report.by_hand(about.where(key), found, "set `nproc`: CPUs are not counted for it")
        return None
    number = about.whole(key, minimum=1, maximum=4096)
    about.report.mapped(about.where(key), number, "nproc")
    return number


def _data(initializer: Fields) -> None:
    what = "fetch it beforehand, or at the start of the script: datasets are not kept yet"
    for key in list(initializer):
        initializer.hand(key, what)
