"""A job as one would write it elsewhere: a line for the terminal, a job file, a call in Python.

Only what differs from the defaults is written. What no flag says makes the line one that reads the
job file: nothing is left out in silence. Code is the folder where one stands, since a bundle's
hash says nothing to a person.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from windlass.core.jobs import JobSpec
from windlass.core.strict import Strict

_FILE = "windlass run -f job.yaml"
_ROLE_FLAGS = ("nproc", "gpus", "gpu_share", "cpus", "memory")
_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_WIDTH = 88
_FILLED_IN = ("bundle", "left_out")
"""Of `code`: what the client makes of the folder."""


class Spellings(Strict):
    cli: str
    yaml: str
    python: str


def spellings(spec: JobSpec) -> Spellings:
    short = shortened(spec)
    sent = spec.code.bundle is not None
    return Spellings(cli=_line(short, sent), yaml=_document(short), python=_call(short, sent))


def shortened(spec: JobSpec) -> dict[str, Any]:
    """The fields of a job file that say the same, and no default among them."""
    given = spec.model_dump(mode="json", exclude_defaults=True, exclude={"project", "workers"})
    if given.get("run"):
        given["run"] = shlex.join(given["run"])
    roles: dict[str, dict[str, Any]] = {}
    for name, role in given.pop("roles", {}).items():
        if role.get("run"):
            role["run"] = shlex.join(role["run"])
        if "memory" in role:
            role["memory"] = _size(role["memory"])
        roles[name] = role
    short: dict[str, Any] = {key: given.pop(key) for key in ("name", "run") if key in given}
    if roles.keys() == {"worker"} and "count" in roles["worker"]:
        short["workers"] = roles["worker"].pop("count")
    if roles != {"worker": {}}:
        short["roles"] = roles
    code = {key: value for key, value in given.pop("code", {}).items() if key not in _FILLED_IN}
    if code:
        given["code"] = code
    limits = given.get("limits", {})
    for name in ("disk", "log_rate"):
        if limits.get(name):
            limits[name] = _size(limits[name])
    return {**short, **given}


def _line(short: Mapping[str, Any], sent: bool) -> str:
    rest = {key: _copy(value) for key, value in short.items()}
    words: list[str] = []

    def flag(name: str, value: Any) -> None:
        words.extend([f"--{name}", str(value)])

    command = shlex.split(rest.pop("run", ""))
    if sent:  # the terminal would guess it from what the script imports
        rest.setdefault("framework", "python")
    for name in ("name", "framework", "work", "begin"):
        if name in rest:
            flag(name, rest.pop(name))
    _roles(rest, flag)
    for place, name, field in (
        ("limits", "time", "time"), ("limits", "idle", "idle"), ("limits", "grace", "grace"),
        ("retry", "retries", "times"), ("queue", "queue", "name"),
        ("queue", "priority", "priority"),
    ):  # fmt: skip
        if rest.get(place, {}).get(field) is not None:
            flag(name, rest[place].pop(field))
    for rule in rest.get("retry", {}).pop("on", ()):
        flag("retry-on", rule)
    if rest.get("queue", {}).get("preemptible") is False:
        del rest["queue"]["preemptible"]
        words.append("--not-preemptible")
    if rest.pop("hold", False):
        words.append("--hold")
    for job in rest.pop("after", ()):
        flag("after", job)
    _start(rest, flag)
    near = rest.pop("placement", {})
    if near.get("level"):
        flag("placement", near["level"] + "!" * bool(near.get("required")))
    for key, value in rest.get("params", {}).copy().items():
        if _plain(value):
            flag("param", f"{key}={_param(rest['params'].pop(key))}")
    code = rest.get("code", {})
    if code.get("git"):
        at = code.get("commit") or code.get("ref")
        flag("git", code["git"] + (f"#{at}" if at else ""))
        rest.pop("code")
    if code.get("here") and rest.get("engine") == "local":
        rest.pop("code")
        rest.pop("engine")
        words.append("--here")
    for pattern in code.pop("include", ()) if sent else ():
        flag("include", pattern)
    if sent and code.get("workdir"):
        flag("workdir", code.pop("workdir"))
    environment = rest.get("environment", {})
    environment.pop("python", None)  # the terminal's own, unless one says otherwise
    for key, value in environment.pop("vars", {}).items():
        flag("env", f"{key}={value}")
    for name in environment.pop("secrets", ()):
        flag("secret", name)
    if not command or any(rest.values()):
        return _FILE
    if not sent and not code.keys() & {"git", "here"}:
        words.append("--no-code")
    if command[0].startswith("-"):
        words.append("--")
    return shlex.join(["windlass", "run", *words, *command])


def _roles(rest: dict[str, Any], flag: Any) -> None:
    if "workers" in rest:
        flag("workers", rest.pop("workers"))
    roles = rest.get("roles", {})
    if roles.keys() == {"worker"}:
        worker = roles["worker"]
        for field in _ROLE_FLAGS:
            if field in worker:
                flag(field.replace("_", "-"), worker.pop(field))
        for model in worker.pop("gpu_model", ()):
            flag("gpu-model", model)
        if not worker:
            del rest["roles"]
        return
    sayable = {*_ROLE_FLAGS, "count", "min", "finish", "gpu_model"}
    if any(role.keys() - sayable for role in roles.values()):
        return
    for name, role in rest.pop("roles", {}).items():
        parts = [f"{name}={role.pop('count', 1)}"]
        parts += [f"gpu_model={model}" for model in role.pop("gpu_model", ())]
        parts += [f"{field}={value}" for field, value in role.items()]
        flag("role", ",".join(parts))


def _start(rest: dict[str, Any], flag: Any) -> None:
    start = rest.get("start_from", {})
    if "model" in start:
        flag("from-model", start["model"])
    elif "job" in start and not start.get("resume"):
        step = "" if start.get("step") is None else f":{start['step']}"
        flag("from-job", start["job"] + step)
    else:
        return
    del rest["start_from"]


def _plain(value: Any) -> bool:
    """Whether its text is read again as what it is."""
    if not isinstance(value, str):
        return True
    if value.lower() in ("true", "false"):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def _param(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _document(short: Mapping[str, Any]) -> str:
    import yaml  # of all routes this one alone needs it

    return yaml.safe_dump(dict(short), sort_keys=False, allow_unicode=True, width=_WIDTH)


def _call(short: Mapping[str, Any], sent: bool) -> str:
    lines = [f"    {key}={value!r}," for key, value in short.items() if key != "kind"]
    if sent:
        lines.append('    code=".",')
    return "\n".join(
        ["import windlass", "", "client = windlass.Client()", "job = client.jobs.submit(",
         *lines, ")", "print(job.name, job.id)", ""]
    )  # fmt: skip


def _size(value: int) -> int | str:
    for unit, size in _UNITS:
        if value and value % size == 0:
            return f"{value // size}{unit}"
    return value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, list) else value
