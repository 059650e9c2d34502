"""docs/reference/job-file.md: every field of `JobSpec`, with its kind and default."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from docs.writers.markdown import code, field_words, table
from windlass.core.explain import _is_model, _options
from windlass.core.jobs import JobSpec, RoleSpec
from windlass.core.strict import format_duration
from windlass.server.jobs.service import not_yet

WORDS = {
    "kind": "always `job`",
    "name": "lower-case letters, digits and dashes, at most 40; invented when absent",
    "project": "the project; absent: that of the key",
    "run": "the command, as a list of words or as one text that is split as a shell would; no "
    "shell runs it",
    "params": "values for `${name}` in the command; `windlass rerun` changes them",
    "framework": "which [contract](plug-ins.md) starts the ranks; the CLI guesses it from what "
    "the script imports, the API takes `python`",
    "workers": "short for `roles: {worker: {count: N}}`",
    "roles": "the parts of the gang, by name; see below",
    "roles.NAME.count": "how many members",
    "roles.NAME.nproc": "ranks of each member; absent: its GPUs, else 1",
    "roles.NAME.gpus": "GPUs of each member",
    "roles.NAME.cpus": "CPUs of each member; 0: it shares what is there and takes one slot",
    "roles.NAME.memory": "memory of each member; it is killed beyond, where cgroups can be used",
    "roles.NAME.min": "torchrun only: the fewest members it may go on with (`PET_NNODES=min:n`)",
    "roles.NAME.run": "this role's command, instead of the job's",
    "roles.NAME.vars": "environment variables of this role; values are text",
    "engine": "where it runs; absent: the scheduler chooses",
    "code.dir": "the folder that is sent; the CLI takes the current one",
    "code.ignore": "what is not sent, as in `.gitignore`, which is honoured too",
    "code.include": "what is sent though it is over 64 MiB or an ignore file leaves it out",
    "code.workdir": "where in the code the command runs; the CLI says where you stand in it",
    "code.here": "a folder of the server's machine to run in as it is (engine `local`, "
    "isolation level 0); `--here`",
    "code.left_out": "what was not sent, for `why` to name; the CLI and the SDK fill it in",
    "code.bundle": "code that was uploaded before, by its digest; the CLI and the SDK fill it in",
    "environment.python": "the Python that runs the script; the CLI names its own on this machine",
    "environment.image": "a container image; only nodes of a Kubernetes engine run one",
    "environment.vars": "environment variables of every rank; values are text",
    "environment.secrets": "secrets to set as variables",
    "data": "datasets by name",
    "outputs.checkpoints": "another folder for checkpoints",
    "outputs.keep_best.metric": "beside the newest, the best checkpoints by this metric are kept",
    "outputs.keep_best.goal": "which way is better",
    "outputs.keep_best.n": "how many of the best",
    "start_from.job": "a job whose checkpoint this one is given, at `$WINDLASS_START_FROM`",
    "outputs.models": "files to offer as models",
    "metrics.goal": "which metric says how good the job is, and which way: `max val_acc`",
    "metrics.parse": "regular expressions looked for in each printed line; a named group is a "
    "metric, the groups `step` and `epoch` say where",
    "metrics.pickup": "pick up what ranks print, TensorBoard files, arguments and what frameworks "
    "log; without it, only what the script logs itself",
    "limits.time": "an attempt is stopped, and the job failed, after this long",
    "limits.cost": "stop it softly once it has cost this much money (all its attempts)",
    "retry.times": "how often a failure is tried again; loss of a node and preemption are not "
    "counted",
    "retry.never": "what is not tried again though `on` names it",
    "retry.resume": "start again from the newest good checkpoint",
    "retry.backoff": "the wait before the first restart; doubles with each, with jitter",
    "retry.backoff_cap": "the longest wait",
    "on_member_loss": "`restart` the whole gang, or `continue`: who is lost is started again (by "
    "the rules of `retry`) while the others go on, down to `min` of its role (absent: 1); for "
    "frameworks `python` and `pytorch` (scripts of `windlass.train`)",
    "queue.name": "the queue; it must exist",
    "queue.priority": "higher goes first",
    "queue.preemptible": "may be ended to make room for others; it starts again when there is "
    "room",
    "isolation.level": "at least so far it is kept from other jobs (0 or 1); the server may do "
    "more by itself",
    "isolation.network": "`none` leaves it its loopback and the server, on one node",
    "notify.on": "which ends to tell about",
    "notify.to": "whom to tell",
}
_PROBES: dict[str, Any] = {
    "engine": "other", "environment.image": "x", "environment.secrets": ["X"],
    "data": {"x": "y"}, "outputs.checkpoints": "x", "outputs.models": ["x"],
    "metrics.goal": "min x", "metrics.parse": ["x=(?P<x>[0-9]+)"], "limits.cost": 1,
    "queue.name": "x", "queue.priority": 1, "after": ["x"], "begin": "2026-11-20T02:00:00Z",
    "placement.level": "rack",
    "roles.NAME.gpu_share": 0.5, "roles.NAME.gpu_model": ["x"],
    "isolation.level": 1, "isolation.network": "none", "notify.on": ["x"], "notify.to": ["x"],
}  # fmt: skip


@dataclass(frozen=True)
class Field:
    path: str
    kind: str
    default: str
    words: str


def fields() -> list[Field]:
    """Every field of the job file that takes a value."""
    return list(_walk(JobSpec, ""))


def page() -> str:
    later = unavailable()
    parts = [
        "# Job file\n",
        "The file of `windlass apply -f` and `windlass run -f`, the keyword arguments of "
        "`client.jobs.submit` and the `spec` of `POST /api/v1/jobs` are the same. Every field is "
        "optional but `run`, for the job or for each role. Unknown fields are refused. "
        "`windlass init` writes a commented file to begin with.\n",
        "A *duration* is `90s`, `20m`, `6h`, `1h30m`, `2d` or a number of seconds; a *size* is "
        "`512MiB`, `8GiB`, `1.5g` or a number of bytes.\n",
    ]
    groups: dict[str, list[Field]] = {}
    for field in fields():
        head, dot, _ = field.path.rpartition(".")
        groups.setdefault(head if dot else "The job", []).append(field)
    for head, found in groups.items():
        rows = [
            (
                code(field.path.rpartition(".")[2]), field.kind, code(field.default),
                field.words + (" (*not yet: refused*)" if field.path in later else ""),
            )
            for field in found
        ]  # fmt: skip
        parts += [
            f"## {head if head == 'The job' else code(head)}\n",
            table(("field", "kind", "default", "what it is"), rows),
        ]
    parts.append(
        "*Not yet: refused* marks what the file may say but this release does not do; a job that "
        "asks for it is refused, never run without it.\n"
    )
    return "\n".join(parts)


def unavailable() -> set[str]:
    """The fields that the server refuses for now, asked of the server's own check."""
    found = set()
    for path, value in _PROBES.items():
        spec: Any = value
        if path.endswith("gpu_model"):
            spec = {"gpu_model": value, "gpus": 1}
            path_of = ["roles", "worker"]
        else:
            path_of = path.replace("NAME", "worker").split(".")
        for part in reversed(path_of):
            spec = {part: spec}
        if not_yet(JobSpec.model_validate({"run": "x", **spec})):
            found.add(path)
    return found


def _walk(model: type[BaseModel], prefix: str) -> Iterator[Field]:
    written = field_words(model)
    properties = model.model_json_schema()["properties"]
    for name, about in model.model_fields.items():
        path = prefix + name
        inner = [kind for kind in _options(about.annotation) if _is_model(kind)]
        if inner:
            yield from _walk(inner[0], path + ".")
            continue
        words = written.get(name) or WORDS[path]
        yield Field(path, _kind(path, properties[name]), _default(about.default, path), words)
        if path == "roles":
            yield from _walk(RoleSpec, "roles.NAME.")


def _kind(path: str, schema: dict[str, Any]) -> str:
    if path in ("run", "roles.NAME.run"):
        return "text or list"
    if path == "roles":
        return "by name"
    options = schema.get("anyOf", [schema])
    if "description" in schema:
        options = [schema]
    for option in options:
        about = option.get("description", "")
        if about.startswith("bytes"):
            return "size"
        if about.startswith("seconds"):
            return "duration"
        if "enum" in option:
            return ", ".join(code(value) for value in option["enum"])
        if "const" in option:
            return code(option["const"])
        if option.get("type") not in (None, "null"):
            return _PLAIN[option["type"]]
    return "text"


_PLAIN = {
    "string": "text", "integer": "integer", "number": "number", "boolean": "true or false",
    "array": "list", "object": "by name",
}  # fmt: skip
_DURATIONS = frozenset({"limits.idle", "limits.grace", "retry.backoff", "retry.backoff_cap"})


def _default(value: Any, path: str) -> str:
    if value is None or value is PydanticUndefined or value in ((), {}):
        return ""
    if path in _DURATIONS:
        return format_duration(value)
    return value if isinstance(value, str) else json.dumps(value)
