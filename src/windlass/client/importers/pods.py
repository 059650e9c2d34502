"""What the kinds of Kubernetes share: metadata, containers, environment, resources, policies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.client.importers import commands, gang, quantities
from windlass.client.importers.base import Fields, Report, compact, job_name, show, wrong
from windlass.core.errors import InvalidInput
from windlass.core.jobs import FILL_IN

GPUS = ("nvidia.com/gpu", "amd.com/gpu")
PLACING = "placing is the scheduler's; nodes cannot be chosen by label yet"
STORAGE = "volumes are not mounted: read the data from where the node has it"
ACCOUNT = "jobs run as the user of the engine"
OF_POD = {
    "nodeSelector": PLACING, "affinity": PLACING, "tolerations": PLACING, "nodeName": PLACING,
    "topologySpreadConstraints": PLACING, "schedulerName": PLACING, "schedulingGates": PLACING,
    "volumes": STORAGE,
    "priorityClassName": "set `queue.priority` (0 to 100, 50 when absent; higher goes first)",
    "priority": "set `queue.priority` (50 when absent; higher goes first)",
    "preemptionPolicy": "set `queue.preemptible`",
    "serviceAccountName": ACCOUNT, "serviceAccount": ACCOUNT, "securityContext": ACCOUNT,
    "automountServiceAccountToken": ACCOUNT, "imagePullSecrets": "images are not carried",
    "hostNetwork": "jobs are on the host's network", "hostIPC": "jobs share the host's IPC",
    "hostPID": "jobs share the host's processes", "dnsPolicy": "addresses come from Windlass",
    "dnsConfig": "addresses come from Windlass", "hostname": "addresses come from Windlass",
    "subdomain": "addresses come from Windlass", "hostAliases": "addresses come from Windlass",
    "enableServiceLinks": "addresses come from Windlass",
    "restartPolicy": "the replica's own restartPolicy counts",
}  # fmt: skip
OF_CONTAINER = {
    "name": "a container's name", "imagePullPolicy": "images are not carried",
    "ports": "ports are bound by Windlass, which tells every rank",
    "volumeMounts": STORAGE, "volumeDevices": STORAGE, "securityContext": ACCOUNT,
    "livenessProbe": "silence is watched instead: `limits.idle`",
    "readinessProbe": "a gang starts when every member is there",
    "startupProbe": "a gang starts when every member is there",
    "terminationMessagePath": "the output is kept by rank",
    "terminationMessagePolicy": "the output is kept by rank",
    "stdin": "a rank has no input", "stdinOnce": "a rank has no input",
    "tty": "pipes, no terminal",
}  # fmt: skip


@dataclass(frozen=True)
class Container:
    """One container, as far as a role can be it."""

    run: tuple[str, ...] = ()
    torchrun: bool = False
    nproc: int | None = None
    gpus: int = 0
    cpus: int | float = 0
    memory: str | int = 0
    vars: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: int | None = None

    def role(self, count: int, nproc: int | None = None) -> gang.Role:
        """A container is one process, however many GPUs it has, unless torchrun starts more."""
        ranks = self.nproc or nproc
        if ranks is None and not self.torchrun and self.gpus > 1:
            ranks = 1
        return gang.Role(
            count=count, nproc=ranks, gpus=self.gpus, cpus=self.cpus, memory=self.memory,
            run=self.run, vars=self.vars,
        )  # fmt: skip


def metadata(document: Fields, group: str) -> str | None:
    """The job's name. Raises InvalidInput for a kind of the same name in another API group."""
    version = document.any("apiVersion")
    if not isinstance(version, str) or not version.startswith(group):
        raise wrong("apiVersion", version, f"one that starts with {group}")
    about = document.fields("metadata")
    document.ignore("kind")
    document.drop("status", "written by the cluster")
    generated = about.text("generateName")
    name = job_name(about.text("name") or generated, about.where("name"), about.report)
    about.hand("namespace", "give the project at submit: --project")
    about.ignore("creationTimestamp", "uid", "resourceVersion", "generation", "managedFields")
    about.ignore("selfLink", "ownerReferences", "finalizers")
    jobs_have_none = "jobs have no labels yet"
    about.leave({"labels": jobs_have_none, "annotations": jobs_have_none})
    return name


def template(replica: Fields, preferred: str, framework: str | None) -> Container:
    """The container that counts in a pod template. Raises InvalidInput when there is none."""
    report = replica.report
    if "template" not in replica:
        raise wrong(replica.where("template"), None, "a pod template")
    about = replica.fields("template")
    about.drop("metadata", "pods' labels and annotations: jobs have none yet")
    pod = about.fields("spec")
    about.leave()
    where = pod.where("containers")
    found = [Fields(item, path, report) for path, item in pod.items("containers")]
    if not found:
        raise wrong(where, pod.any("containers"), "a list with at least one container")
    chosen = next((each for each in found if each.any("name") == preferred), found[0])
    for other in found:
        if other is not chosen:
            report.by_hand(other.path, show(other.any("name") or "?"), "a sidecar: start it apart")
    pod.hand("initContainers", "do what they do beforehand, or at the start of the script")
    grace = pod.whole("terminationGracePeriodSeconds", maximum=10**9)
    if grace is not None:
        report.mapped(pod.where("terminationGracePeriodSeconds"), grace, "limits.grace")
    pod.leave(OF_POD)
    return container(chosen, framework, "resources", grace)


_PROGRAM = re.compile(r"(?:.*/)?(?:python[\d.]*|(?:ba)?sh|mpirun|mpiexec|torchrun|accelerate)")
"""What a container's args may begin with and be a command by themselves."""


def container(
    about: Fields, framework: str | None, resources: str, grace_seconds: int | None = None
) -> Container:
    """Command, variables and resources; `resources` is the field they stand in."""
    report = about.report
    image(about)
    env = _environment(about)
    found = commands.Launch(())
    command, args = about.texts("command"), about.texts("args")
    if command or args:
        where = about.where("command" if command else "args")
        if args and not command:
            before = "the image's own entry point comes before them and is not in the file"
            if _PROGRAM.fullmatch(args[0]):
                report.by_hand(about.where("args"), args, f"{before}: put it in front of `run`")
            else:
                report.fill_in(about.where("args"), args, before)
                command = [FILL_IN]
        known = {name: value for name, (_, value) in env.items()}
        words = [commands.fill(word, known)[0] for word in [*command, *args]]
        found = commands.launch(words, where, report)
        for word in found.words:
            _unfilled(word, known, where, report)
        commands.look_at(found.words, where, report)
        report.mapped(where, " ".join(found.words), "run")
    gpus, cpus, memory = _resources(about.fields(resources))
    about.hand("workingDir", "the command starts in the code's folder (code.dir)")
    about.hand("envFrom", "name the variables one by one under environment.vars")
    about.hand("lifecycle", "do it in the script; at a stop a rank gets SIGTERM")
    about.leave(OF_CONTAINER)
    return Container(
        found.words, found.torchrun, found.nproc, gpus, cpus, memory,
        gang.variables(env, framework, report), grace_seconds,
    )  # fmt: skip


def image(about: Fields) -> None:
    name = about.text("image")
    if name is None:
        return
    comment = f"environment.image: {show(name)}   (only a Kubernetes engine runs images)"
    if comment in about.report.comments:
        return  # said of another role
    about.report.comments.append(comment)
    about.report.by_hand(
        about.where("image"),
        name,
        "only a Kubernetes engine runs images: elsewhere the script must be in the code's folder, "
        "its packages in the Python of the job (environment.python)",
    )


def must_run(run: tuple[str, ...], where: str) -> None:
    if not run:
        raise InvalidInput(
            f"{where}: neither command nor args: what runs is known to the image alone",
            hint="add the container's command to the file, then import it again",
        )


def policy(about: Fields) -> dict[str, Any]:
    """The fields of a RunPolicy but `backoffLimit`, wherever they stand."""
    report = about.report
    found: dict[str, Any] = {}
    seconds = about.whole("activeDeadlineSeconds", maximum=10**9)
    if seconds is not None:
        found["limits"] = {"time": quantities.duration(seconds)}
        report.mapped(about.where("activeDeadlineSeconds"), seconds, "limits.time")
    ttl = about.whole("ttlSecondsAfterFinished", maximum=10**9)
    if ttl is not None:
        found["ttl"] = quantities.duration(ttl)
        report.mapped(about.where("ttlSecondsAfterFinished"), ttl, "ttl")
    if about.flag("suspend"):
        found["hold"] = True
        report.mapped(about.where("suspend"), True, "hold (`windlass release` starts it)")
    about.drop("cleanPodPolicy", "a finished gang leaves no process behind")
    about.drop("managedBy", "one scheduler decides")
    _scheduling(about.fields("schedulingPolicy"))
    return found


def _scheduling(about: Fields) -> None:
    about.hand("queue", "set `queue.name` to one of `windlass queue ls`")
    about.hand("priorityClass", "set `queue.priority` (50 when absent; higher goes first)")
    about.leave(
        {
            "minAvailable": "a gang starts whole or not at all",
            "minResources": "a gang starts whole or not at all",
            "scheduleTimeoutSeconds": "a job waits until it fits; `windlass why` says for what",
        }
    )


def retry(policies: Mapping[str, str], backoff: int | None, report: Report) -> dict[str, Any]:
    """`retry` from each replica's restartPolicy (by where it stands) and the backoffLimit."""
    rules = {
        "Never": [],
        "ExitCode": ["lost", "signal"],
        "OnFailure": ["lost", "failed"],
        "Always": ["lost", "failed"],
    }
    for where, name in policies.items():
        if name not in rules:
            raise wrong(where, name, f"one of {', '.join(rules)}")
    chosen = max(policies.values(), key=list(rules).index, default=None)
    if chosen == "Never":
        return {"times": 0}
    for where, name in policies.items():
        if name != chosen:
            report.by_hand(where, name, f"a gang has one rule for all: {chosen} was taken")
    if chosen in ("OnFailure", "Always") and backoff is None:
        report.by_hand(
            next(iter(policies)), chosen, "no limit there; here 3 times: see `retry.times`"
        )
    return compact({"times": backoff, "on": rules[chosen] if chosen else None})


def _environment(about: Fields) -> dict[str, tuple[str, str]]:
    """name → (where, value)."""
    report = about.report
    found: dict[str, tuple[str, str]] = {}
    for where, item in about.items("env"):
        one = Fields(item, where, report)
        name = one.text("name")
        if not name:
            raise wrong(one.where("name"), one.any("name"), "a variable's name")
        source = one.any("valueFrom")
        value = one.text("value") or ""
        one.leave()
        if source is None:
            known = {each: text for each, (_, text) in found.items()}
            found[name] = (where, commands.fill(value, known)[0])
            _unfilled(value, known, where, report)
        elif isinstance(source, Mapping) and "secretKeyRef" in source:
            report.by_hand(
                where, name, "a secret: these are not kept yet; set it by --env at submit"
            )
        else:
            report.by_hand(where, name, f"its value comes from the cluster: {show(source)}")
    return found


def _unfilled(word: str, known: Mapping[str, str], where: str, report: Report) -> None:
    for name in commands.fill(word, known)[1]:
        report.by_hand(
            where, f"$({name})", "Kubernetes fills it in, Windlass does not: write the value"
        )


def _resources(about: Fields) -> tuple[int, int | float, str | int]:
    limits, requests = about.fields("limits"), about.fields("requests")
    about.hand("claims", "devices are asked for by number: `gpus`")
    about.leave()
    report = about.report
    gpus = 0
    for key in GPUS:
        if key in limits or key in requests:
            source = limits if key in limits else requests
            gpus += quantities.count(source.any(key), source.where(key))
            report.mapped(source.where(key), source.value[key], f"gpus: {gpus}")
    if gpus > 4096:
        raise wrong(about.path, gpus, "at most 4096 GPUs")
    cpus: int | float = 0
    memory: str | int = 0
    for key in ("cpu", "memory"):
        source = limits if key in limits else requests
        if key not in source:
            continue
        value, where = source.any(key), source.where(key)
        if key == "cpu":
            cpus = quantities.cpus(value, where)
        else:
            memory = quantities.memory(value, where)
        report.mapped(where, value, f"{'cpus' if key == 'cpu' else 'memory'}")
    for key in ("cpu", "memory", *GPUS):
        if key in limits and key in requests and limits.value[key] != requests.value[key]:
            requests.drop(key, f"one number counts: the limit, {show(limits.value[key])}")
        requests.ignore(key)
    shared = {"ephemeral-storage": "disk is not counted", "pods": "not a resource of a member"}
    limits.leave(shared)
    requests.leave(shared)
    return gpus, cpus, memory
