"""What a pod says of the worker in it, in plain words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    WAITS = "waits"  # no process of it has begun
    STUCK = "stuck"  # the same, and by itself that will not change soon
    RUNS = "runs"
    OVER = "over"  # its processes have ended, or none will ever begin


@dataclass(frozen=True)
class PodState:
    phase: Phase
    reason: str = ""
    leaving: bool = False
    """It was told to end, by us or by the cluster."""

    @property
    def is_nothing(self) -> bool:
        """No process of it is there, nor will one do anything."""
        return self.phase is Phase.OVER or (self.leaving and self.phase is not Phase.RUNS)


_NO_IMAGE = {
    "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName",
    "ImageInspectError", "RegistryUnavailable",
}  # fmt: skip
_NO_START = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_MOST = 300


def read(pod: Mapping[str, Any]) -> PodState:
    status = pod.get("status") or {}
    leaving = bool((pod.get("metadata") or {}).get("deletionTimestamp"))
    statuses = status.get("containerStatuses") or [{}]
    state = statuses[0].get("state") or {}
    if ended := state.get("terminated"):
        return PodState(Phase.OVER, _end(status, ended, leaving), leaving)
    if status.get("phase") in ("Succeeded", "Failed"):
        return PodState(Phase.OVER, _whole(status), leaving)
    if "running" in state:
        return PodState(Phase.RUNS, "the cluster is ending its pod" if leaving else "", leaving)
    phase, reason = _waiting(pod, status, state.get("waiting") or {})
    return PodState(phase, reason, leaving)


def _waiting(
    pod: Mapping[str, Any], status: Mapping[str, Any], waiting: Mapping[str, Any]
) -> tuple[Phase, str]:
    why, said = waiting.get("reason") or "", str(waiting.get("message") or "")[:_MOST]
    if why in _NO_IMAGE:
        image = (pod.get("spec") or {}).get("containers", [{}])[0].get("image", "")
        return Phase.STUCK, f"image {image} cannot be pulled: {said or why}"
    if why in _NO_START:
        return Phase.STUCK, f"its container cannot be started: {said or why}"
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return Phase.WAITS, f"its pod is not scheduled: {_unscheduled(each)}"
    if (pod.get("spec") or {}).get("schedulingGates"):
        return Phase.WAITS, "its pod waits for the cluster's admission"
    bound = (pod.get("spec") or {}).get("nodeName")
    return Phase.WAITS, f"its pod is being started on {bound}" if bound else ""


def _unscheduled(condition: Mapping[str, Any]) -> str:
    """The scheduler counts every node; all but one are out because the pod is bound to that."""
    said = str(condition.get("message") or condition.get("reason") or "")
    parts = [part.strip() for part in said.removesuffix(".").replace(": ", ", ", 1).split(",")]
    told = [
        part
        for part in parts
        if part
        and "nodes are available" not in part
        and "affinity" not in part
        and "selector" not in part
    ]
    return (", ".join(told) or said)[:_MOST]


def _end(status: Mapping[str, Any], ended: Mapping[str, Any], leaving: bool) -> str:
    if said := _whole(status):
        return said
    why, code = ended.get("reason") or "", ended.get("exitCode")
    if why == "OOMKilled":
        return "OOMKilled: it used more memory than its pod was given"
    if why in ("StartError", "ContainerCannotRun"):
        return f"its container could not be started: {_last(ended)}"
    if leaving:
        return "its pod was ended from outside"
    words = _last(ended)
    return f"its container ended with exit code {code}" + (f": {words}" if words else "")


def _whole(status: Mapping[str, Any]) -> str:
    """Of the pod as a whole, where the cluster says why it ended."""
    why, said = status.get("reason") or "", str(status.get("message") or "")[:_MOST]
    match why:
        case "":
            return ""
        case "Evicted":
            return f"its pod was evicted: {said or 'its node ran out of something'}"
        case "Preempting" | "Preempted":
            return f"its pod was preempted: {said or 'for one of more priority'}"
        case "NodeLost":
            return f"its node was lost: {said}".rstrip(": ")
        case "DeadlineExceeded":
            return "the cluster's deadline for the pod is over"
        case "NodeShutdown" | "Terminated" | "Shutdown":
            return f"its node was shut down: {said}".rstrip(": ")
    return f"its pod failed: {why}" + (f": {said}" if said else "")


def _last(ended: Mapping[str, Any]) -> str:
    """The last line of what it printed."""
    lines = [line.strip() for line in str(ended.get("message") or "").splitlines()]
    return next((line[:_MOST] for line in reversed(lines) if line), "")
