"""From the flags of `run` and `submit` to the fields of a job file. Pure but for looking at files.

The result is a plain mapping: the server checks it (strictly), so that the common path need not
import pydantic. A job file given with -f is the base; flags win over it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from windlass.cli import folders, launchers, moments, scripts
from windlass.core.errors import Ambiguous, InvalidInput

ROLE_FIELDS = {
    "gpu": "gpus", "gpus": "gpus", "cpu": "cpus", "cpus": "cpus", "mem": "memory",
    "memory": "memory", "nproc": "nproc", "min": "min", "finish": "finish",
    "gpu_share": "gpu_share", "gpu_model": "gpu_model",
}  # fmt: skip
FINISH = ("all", "first", "never")


class Flags(NamedTuple):
    """What the user typed; None and () are 'not given'."""

    command: tuple[str, ...] = ()
    workers: int | None = None
    nproc: int | None = None
    gpus: int | None = None
    cpus: float | None = None
    memory: str | None = None
    role: tuple[str, ...] = ()
    name: str | None = None
    framework: str | None = None
    engine: str | None = None
    env: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    param: tuple[str, ...] = ()
    time: str | None = None
    retries: int | None = None
    retry_on: tuple[str, ...] = ()
    idle: str | None = None
    grace: str | None = None
    hold: bool = False
    priority: int | None = None
    queue: str | None = None
    not_preemptible: bool = False
    work: str | None = None
    after: tuple[str, ...] = ()
    begin: str | None = None
    from_job: str | None = None
    from_model: str | None = None
    placement: str | None = None
    gpu_share: float | None = None
    gpu_model: tuple[str, ...] = ()
    code: str | None = None
    no_code: bool = False
    git: str | None = None
    package_path: str | None = None
    module_name: str | None = None
    job_dir: str | None = None
    workdir: str | None = None
    here: bool = False
    include: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    spec: dict[str, Any]
    code: Path | None
    """The directory to send; None: none."""
    why_framework: str = ""
    notices: tuple[str, ...] = ()
    """What was made of the user's words that he may not expect, in sentences."""
    made: Mapping[str, bytes] = field(default_factory=dict)
    """Files to send that lie nowhere, by their path in the code."""

    @property
    def ranks(self) -> list[str]:
        return ranks_of(self.spec)


def ranks_of(spec: Mapping[str, Any]) -> list[str]:
    """The user processes a spec makes, by name, in the order of their numbers."""
    from windlass.contracts.base import ROLE_ORDER

    roles = dict(spec.get("roles") or {})
    if spec.get("workers"):
        roles["worker"] = {**(roles.get("worker") or {}), "count": spec["workers"]}
    roles = roles or {"worker": {}}

    def place(role: str) -> tuple[int, str]:
        known = role in ROLE_ORDER
        return (ROLE_ORDER.index(role), "") if known else (len(ROLE_ORDER), role)

    return [
        f"{role}-{index}-{local_rank}"
        for role in sorted(roles, key=place)
        for index in range(roles[role].get("count") or 1)
        for local_rank in range(roles[role].get("nproc") or roles[role].get("gpus") or 1)
    ]


def threads_of(spec: Mapping[str, Any]) -> str:
    """A sentence on what the ranks are told of their threads (`contracts/threads.py`)."""
    from windlass.contracts.threads import GENERAL

    roles = list((spec.get("roles") or {}).values())
    variables = [spec.get("environment") or {}, *roles]
    own = {name: value for each in variables for name, value in (each.get("vars") or {}).items()}
    chosen = [f"{name}={own[name]}" for name in GENERAL if name in own]
    if chosen:
        return f"threads: as you say ({', '.join(chosen)})"
    if len(ranks_of(spec)) == 1 and not any(role.get("cpus") for role in roles):
        return "threads: a single rank keeps all cores of its node"
    return (
        "threads: each rank gets its share of the cores, OMP_NUM_THREADS and its kin say how many"
        " (-e OMP_NUM_THREADS=N decides otherwise)"
    )


def build(
    flags: Flags,
    *,
    local: bool,
    base: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> Plan:
    """Raises InvalidInput naming the flag, what was found and what is allowed.

    `local`: the server is on this machine, so paths and the user's own Python mean something.
    `base`: a job file, which lies in `folder`; its paths are relative to that.
    """
    if flags.package_path or flags.module_name or flags.job_dir:
        from windlass.cli import packages

        flags = packages.as_command(flags, local)
    spec: dict[str, Any] = {key: value for key, value in (base or {}).items()}
    if flags.command:
        spec["run"] = list(flags.command)
    for name in ("name", "framework", "engine", "work"):
        if getattr(flags, name) is not None:
            spec[name] = getattr(flags, name)
    _shape(spec, flags)
    _part(spec, "limits", time=flags.time, idle=flags.idle, grace=flags.grace)
    _part(spec, "retry", times=flags.retries, on=list(flags.retry_on) or None)
    _part(
        spec, "queue", name=flags.queue, priority=flags.priority,
        preemptible=False if flags.not_preemptible else None,
    )  # fmt: skip
    if flags.placement:
        level, must = flags.placement.rstrip("!"), flags.placement.endswith("!")
        spec["placement"] = {"level": level, "required": must}
    if flags.after:
        spec["after"] = list(flags.after)
    if flags.from_job or flags.from_model:
        spec["start_from"] = start_of(flags)
    if flags.begin:
        spec["begin"] = moments.coming("--begin", flags.begin)
    if flags.param:
        params = (pair("--param", text) for text in flags.param)
        spec["params"] = {**(spec.get("params") or {}), **{k: value_of(v) for k, v in params}}
    environment = dict(spec.get("environment") or {})
    if flags.env:
        environment["vars"] = {
            **(environment.get("vars") or {}),
            **dict(_variable(text) for text in flags.env),
        }
    if flags.secret:
        named = [*(environment.get("secrets") or ()), *flags.secret]
        environment["secrets"] = list(dict.fromkeys(named))
    if flags.hold:
        spec["hold"] = True
    _must_run(spec)
    notices = launchers.take_over(spec)
    sent = folders.place(spec, flags, local, folder or Path.cwd(), notices)
    code, made = sent.folder, sent.made
    if local and not environment.get("python") and not environment.get("image"):
        environment["python"] = user_python()
    if environment:
        spec["environment"] = environment
    spec_said = bool(spec.get("framework"))
    why = "" if spec_said else _guess(spec, sent, in_git(spec))
    if spec["framework"] == "python" and launchers.members_of(spec) > 1 and not spec_said:
        notices.append(
            f"{launchers.members_of(spec)} members of no framework that is known here: each runs"
            " the same command, and only WINDLASS_RANK tells it which it is (--framework NAME"
            " lets them find each other)"
        )
    return Plan(spec, code, why, tuple(notices), made)


# -- parts ----------------------------------------------------------------------------------


def _shape(spec: dict[str, Any], flags: Flags) -> None:
    """Workers, roles and what each member gets."""
    given = {
        "nproc": flags.nproc, "gpus": flags.gpus, "cpus": flags.cpus, "memory": flags.memory,
        "gpu_share": flags.gpu_share, "gpu_model": list(flags.gpu_model) or None,
    }  # fmt: skip
    given = {key: value for key, value in given.items() if value is not None}
    if not (flags.role or given or flags.workers is not None):
        return
    roles = {name: dict(about) for name, about in (spec.get("roles") or {}).items()}
    if flags.role:
        roles = dict(parse_role(text) for text in flags.role)
        spec.pop("workers", None)
        if flags.workers is not None and "worker" in roles:
            raise InvalidInput("--workers and --role worker=… both say how many: give one of them")
    if flags.workers is not None:
        spec.pop("workers", None)
        roles["worker"] = {**roles.get("worker", {}), "count": flags.workers}
    if given:
        if roles and "worker" not in roles:
            flag = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise InvalidInput(
                f"{flag}: for the role `worker`, which this job does not have",
                hint=f"say it in the role: --role {next(iter(roles))}=1,gpu=1,memory=8GiB",
            )
        roles["worker"] = {**roles.get("worker", {}), **given}
    spec["roles"] = roles


def start_of(flags: Flags) -> dict[str, Any]:
    """What --from-job or --from-model say."""
    if flags.from_job and flags.from_model:
        raise InvalidInput("--from-job and --from-model both say what to start from: give one")
    if flags.from_model:
        return {"model": flags.from_model}
    job, colon, step = (flags.from_job or "").partition(":")
    return {"job": job, "step": step_of("--from-job", step) if colon else None}


def step_of(flag: str, text: str) -> int | str:
    """A checkpoint's step, `latest` or `best`."""
    if text in ("latest", "best"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    raise InvalidInput(f"{flag}: a step such as 4000, latest or best (found {text!r})")


def parse_role(text: str) -> tuple[str, dict[str, Any]]:
    """`worker=2,gpu=1,memory=8GiB` → ("worker", {"count": 2, "gpus": 1, "memory": "8GiB"})."""
    first, *rest = text.split(",")
    name, _, count = first.partition("=")
    if not name or not count.isdigit() or int(count) < 1:
        raise InvalidInput(
            f"--role: {text!r} does not say how many", hint="such as --role worker=2,gpu=1"
        )
    role: dict[str, Any] = {"count": int(count)}
    for item in rest:
        key, equals, value = item.partition("=")
        if key not in ROLE_FIELDS or not equals:
            known = ", ".join(sorted(set(ROLE_FIELDS.values())))
            raise InvalidInput(f"--role {name}: no field {item!r}; known: {known}")
        field = ROLE_FIELDS[key]
        if field == "finish" and value not in FINISH:
            raise InvalidInput(
                f"--role {name}: finish={value!r} is not one of {', '.join(FINISH)}"
            )
        if field == "gpu_model":
            role.setdefault(field, []).append(value)
        else:
            words = field in ("memory", "finish")
            role[field] = value if words else _number(name, field, value)
    return name, role


def _number(role: str, field: str, value: str) -> int | float:
    try:
        return float(value) if field in ("cpus", "gpu_share") else int(value)
    except ValueError:
        raise InvalidInput(f"--role {role}: {field}={value!r} is not a number") from None


def pair(flag: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInput(f"{flag}: {text!r} is not NAME=VALUE")
    return name, value


def _variable(text: str) -> tuple[str, str]:
    """`NAME=VALUE`, or `NAME` alone: the value it has here."""
    if "=" not in text:
        if text not in os.environ:
            raise InvalidInput(f"--env {text}: not set here; give a value: --env {text}=…")
        return text, os.environ[text]
    return pair("--env", text)


def value_of(text: str) -> bool | int | float | str:
    """What a parameter's text means: a truth, a number, or just text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if abs(number) < float("inf") else text  # inf and nan stay text
    return text


def _part(spec: dict[str, Any], part: str, **given: Any) -> None:
    given = {key: value for key, value in given.items() if value is not None}
    if given:
        spec[part] = {**(spec.get(part) or {}), **given}


def _must_run(spec: Mapping[str, Any]) -> None:
    roles = (spec.get("roles") or {}).values()
    if not spec.get("run") and not (roles and all(role.get("run") for role in roles)):
        raise InvalidInput(
            "nothing to run: no command was given",
            hint="flags first, then your command: windlass run --gpus 1 train.py --lr 0.1",
        )


# -- framework and interpreter --------------------------------------------------------------


def in_git(spec: Mapping[str, Any]) -> bool:
    return bool((spec.get("code") or {}).get("git"))


def _guess(spec: dict[str, Any], sent: folders.Sent, elsewhere: bool = False) -> str:
    """Fill in the framework from what the script imports; says why. Raises Ambiguous. Of a script
    that is `elsewhere`, in a repository, only the command can be read."""
    from windlass.contracts.guess import Unsure, guess, script_of

    roles = (spec.get("roles") or {}).values()
    words = spec.get("run") or next((r["run"] for r in roles if r.get("run")), ())
    command = scripts.in_a_shell(shlex.split(words) if isinstance(words, str) else list(words))
    standing = sent.standing(spec)
    script = None if elsewhere else script_of(command) or _module_file(command, standing)
    file = standing / script if script else None
    root = sent.folder or standing
    beside = (lambda module, dots: _beside(file, root, module, dots)) if file else None
    text = sent.texts[script] if script and script in sent.texts else _text(file)
    try:
        found = guess(command, text, len(ranks_of(spec)), beside)
    except Unsure as err:
        choices = " or ".join(f"--framework {name}" for name in err.frameworks)
        raise Ambiguous(str(err), hint=f"say which one starts the ranks: {choices}") from err
    spec["framework"] = found.framework
    return found.why


def _beside(script: Path, root: Path, module: str, dots: int) -> str | None:
    """The text of a module that lies in the script's folder, or in the code's."""
    folders = [script.parents[dots - 1]] if dots else [script.parent, root]
    inside = Path(*module.split("."))
    files = (f / p for f in folders for p in (inside.with_suffix(".py"), inside / "__init__.py"))
    return next((text for text in map(_text, files) if text is not None), None)


def _text(path: Path | None) -> str | None:
    try:
        return path.read_text(encoding="utf-8") if path else None
    except (OSError, ValueError):
        return None


def _module_file(command: Sequence[str], folder: Path) -> str | None:
    """The file of `python -m package.module`, where it lies in the code."""
    from windlass.cli.packages import file_of

    if "-m" not in command[1:-1] or os.path.basename(command[0]) not in scripts.PYTHONS:
        return None
    found = file_of(folder, command[command.index("-m", 1) + 1])
    return str(found.relative_to(folder)) if found else None


def user_python() -> str:
    """The Python that the user's script expects: that of the active environment; else that of the
    environment this command was installed into, unless it is a tool's own (pipx, uv tool), where
    no user's packages are; else the first on PATH."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        root = os.environ.get(name)
        if root:
            inside = ("Scripts/python.exe", "python.exe") if os.name == "nt" else ("bin/python",)
            for part in inside:
                if (Path(root) / part).exists():
                    return str(Path(root) / part)
    tool = re.search(r"[/\\](pipx[/\\]venvs|uv[/\\]tools)[/\\]", sys.prefix)
    if sys.prefix != sys.base_prefix and not tool:
        return sys.executable
    found = shutil.which("python") or shutil.which("python3")
    return os.path.abspath(found) if found else sys.executable
