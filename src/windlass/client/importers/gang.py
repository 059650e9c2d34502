"""Roles as an importer found them, put together into the fields of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from windlass.client.importers.base import Report, compact
from windlass.contracts import registry
from windlass.core.jobs import EnvName

_NAME: TypeAdapter[str] = TypeAdapter(EnvName)


@dataclass(frozen=True)
class Role:
    count: int = 1
    nproc: int | None = None
    gpus: int = 0
    cpus: int | float = 0
    memory: str | int = 0
    min: int | None = None
    run: tuple[str, ...] = ()
    vars: Mapping[str, str] = field(default_factory=dict)
    finish: str | None = None


def fields(roles: Mapping[str, Role]) -> dict[str, Any]:
    """`run`, `roles` and `environment`: what all roles share is said once."""
    commands = list(dict.fromkeys(role.run for role in roles.values() if role.run))
    one = commands[0] if len(commands) == 1 else ()
    first, *others = [role.vars for role in roles.values()]
    shared = {
        name: value
        for name, value in first.items()
        if all(each.get(name) == value for each in others)
    }
    return compact(
        {
            "run": list(one),
            "roles": {name: _role(role, one, shared) for name, role in roles.items()},
            "environment": compact({"vars": shared}),
        }
    )


def _role(role: Role, shared_run: tuple[str, ...], shared: Mapping[str, str]) -> dict[str, Any]:
    own = {name: value for name, value in role.vars.items() if name not in shared}
    return {
        "count": role.count,
        **compact(
            {
                "nproc": role.nproc,
                "gpus": role.gpus or None,
                "cpus": role.cpus or None,
                "memory": role.memory or None,
                "min": role.min,
                "run": list(role.run) if role.run != shared_run else None,
                "vars": own,
                "finish": role.finish,
            }
        ),
    }


def check(roles: Mapping[str, Role], framework: str, report: Report) -> None:
    """What the framework's contract has against these roles is for a person to mend."""
    if framework not in registry.names():
        report.by_hand("framework", framework, "no contract of this name is installed here")
        return
    counts = {name: role.count for name, role in roles.items()}
    for problem in registry.contract(framework).problems(counts):
        report.by_hand("roles", counts, problem)


def variables(
    found: Mapping[str, tuple[str, str]], framework: str | None, report: Report
) -> dict[str, str]:
    """The variables (name → where it stood, value) that a job may set; the rest is noted."""
    known = framework if framework in registry.names() else "python"
    taken = set(registry.refused(known or "python", found))
    kept = {}
    for name, (where, value) in found.items():
        if name in taken:
            report.dropped(where, f"{name}={value}", "Windlass sets it, and refuses it from a job")
        elif not is_name(name):
            report.by_hand(where, name, "not a name that a shell would take: choose another")
        else:
            kept[name] = value
            report.mapped(where, f"{name}={value}", "vars")
    return kept


def is_name(name: str) -> bool:
    try:
        _NAME.validate_python(name)
    except ValidationError:
        return False
    return True


def launch_variables(names: Iterable[str]) -> list[str]:
    """Which of these some framework here would set itself: a job whose framework is guessed later
    must have none of them."""
    wanted = list(names)
    return sorted({name for each in registry.names() for name in registry.refused(each, wanted)})
