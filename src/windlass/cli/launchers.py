"""A launcher that the user wrote, such as torchrun: what its flags say of the gang is said by the
job, so it is taken over, or out, and told."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.cli import scripts
from windlass.contracts import launchers
from windlass.core.errors import InvalidInput

_PLACING = re.compile(r"--(standalone|nnodes|rdzv|master|node.rank)")


def take_over(spec: dict[str, Any]) -> list[str]:
    """Changes `run` and `nproc` of a spec; what it changed, in sentences. Raises InvalidInput for
    what would wait for ever."""
    said: list[str] = []
    if spec.get("run"):
        command = _taken(spec["run"], members_of(spec), said)
        if command is not None:
            spec["run"] = list(command.words)
            if command.nproc:
                _nproc(spec, command.nproc, said)
    for name, role in list((spec.get("roles") or {}).items()):
        command = _taken(role["run"], role.get("count") or 1, said) if role.get("run") else None
        if command is not None:
            own = {"nproc": command.nproc} if command.nproc and not role.get("nproc") else {}
            spec["roles"] = {**spec["roles"], name: {**role, "run": list(command.words), **own}}
    return said


def members_of(spec: Mapping[str, Any]) -> int:
    """How many members the gang has."""
    roles = dict(spec.get("roles") or {})
    if spec.get("workers"):
        roles["worker"] = {"count": spec["workers"]}
    return sum((role or {}).get("count") or 1 for role in roles.values()) or 1


def _taken(run: Any, members: int, said: list[str]) -> launchers.Command | None:
    """None: nothing was to be taken out."""
    try:
        words = shlex.split(run) if isinstance(run, str) else [str(word) for word in run]
    except ValueError:
        return None  # the server says what is wrong with it
    _in_a_shell(words, said)
    more = launchers.nodes(words)
    if members == 1 and more is not None:
        raise InvalidInput(
            f"{words[0]}: {more.shown}, but this job has one member: it would wait for ever",
            hint=f"windlass run --workers {_workers(more.value)} -- "
            + shlex.join(launchers.taken(words).words),
        )
    command = launchers.taken(words)
    if not command.taken:
        return None
    for flag in command.taken:
        if launchers.unclear(flag):
            raise InvalidInput(
                f"{words[0]}: {flag.shown}: only the node could tell how many that is",
                hint=f"windlass run --nproc N -- {shlex.join(command.words)}",
            )
    shown = ", ".join(flag.shown for flag in command.taken)
    said.append(f"left out of {words[0]}: {shown}; the job itself says where each rank stands")
    return command


def _in_a_shell(words: Sequence[str], said: list[str]) -> None:
    if words[0].rpartition("/")[2] not in scripts.SHELLS:
        return
    text = " ".join(words)
    if ("torchrun" in text or "torch.distributed." in text) and _PLACING.search(text):
        said.append(
            "torchrun in a shell line keeps its own flags, which win over what the job says: give"
            " it as the command itself, windlass run -- torchrun …"
        )


def _workers(value: str) -> str:
    """`2` of `2`, `4` of `1:4`."""
    most = value.rpartition(":")[2]
    return most if most.isdecimal() else "N"


def _nproc(spec: dict[str, Any], nproc: int, said: list[str]) -> None:
    roles = {name: dict(about or {}) for name, about in (spec.get("roles") or {}).items()}
    if not roles or spec.get("workers"):
        count = spec.pop("workers", None)
        roles["worker"] = {**roles.get("worker", {}), **({"count": count} if count else {})}
    for name, role in roles.items():
        if role.get("run"):
            continue
        if role.get("nproc") and role["nproc"] != nproc:
            said.append(f"role {name}: nproc {role['nproc']} counts, not the launcher's {nproc}")
        role.setdefault("nproc", nproc)
    spec["roles"] = roles
