"""Determined's experiment configuration: one trial becomes a job; searches come later."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from windlass.client.importers import commands, gang, quantities
from windlass.client.importers.base import Fields, Imported, Report, compact, job_name, show, wrong
from windlass.client.importers.pods import image
from windlass.core.jobs import FILL_IN, Param
from windlass.core.patterns import names_of

LAUNCHERS = {
    "torch_distributed": "pytorch", "horovod": "horovod", "deepspeed": "pytorch",
    "tensorflow": "tensorflow",
}  # fmt: skip
CHECKPOINTS = "the script decides when to save: `windlass.checkpoint`, or its own way"
TRACKING = "metrics are logged by the script: `windlass.log`"
LATER = "searches (studies) come later"
REASONS = {
    "description": "a job has a name only", "labels": "jobs have no labels yet",
    "min_validation_period": CHECKPOINTS, "min_checkpoint_period": CHECKPOINTS,
    "checkpoint_policy": CHECKPOINTS, "perform_initial_validation": CHECKPOINTS,
    "records_per_epoch": CHECKPOINTS, "scheduling_unit": TRACKING, "profiling": TRACKING,
    "tensorboard_storage": TRACKING, "optimizations": "a matter of the script",
    "debug": "see `windlass debug`", "data_layer": "a matter of the script",
    "retention_policy": "see `ttl`", "internal": "Determined's own", "integrations": TRACKING,
}  # fmt: skip
_PARAM: TypeAdapter[Any] = TypeAdapter(Param)
_USED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Determined:
    name = "experiment configuration (Determined)"

    def matches(self, document: Any) -> bool:
        return "entrypoint" in document and "kind" not in document and "run" not in document

    def convert(self, document: Any) -> Imported:
        report = Report()
        top = Fields(document, "", report)
        name = job_name(top.text("name"), "name", report)
        for key in ("workspace", "project"):
            top.hand(key, "give the project at submit: --project")
        words, framework = _entrypoint(top)
        found = commands.launch(words, "entrypoint", report)
        gpus, queue = _resources(top.fields("resources"))
        variables = _environment(top.fields("environment"), framework)
        params = _hyperparameters(top.fields("hyperparameters"))
        run = _apart(found.words, params, report)
        _searcher(top.fields("searcher"))
        retry = _retry(top)
        limits = _limits(top)
        top.hand("data", "the script reads it: pass it by flags or variables")
        top.hand("bind_mounts", "paths of the node are visible as they are: use them directly")
        top.hand("checkpoint_storage", "checkpoints go to $WINDLASS_CHECKPOINT_DIR")
        top.hand("reproducibility", "pass the seed to the script by a flag")
        for key in ("slurm", "pbs"):
            top.hand(key, "flags of another scheduler")
        top.leave(REASONS)
        # Its own launcher starts a process for each slot; any other command runs once.
        nproc = found.nproc or (None if framework or found.torchrun or gpus < 2 else 1)
        role = gang.Role(gpus=gpus, nproc=nproc, run=run, vars=variables)
        shape = gang.fields({"worker": role})
        spec = {
            "name": name, "framework": framework, "params": params, **shape, "limits": limits,
            "retry": retry, "queue": queue,
        }  # fmt: skip
        return report.imported("experiment", compact(spec))


def _entrypoint(top: Fields) -> tuple[list[str], str | None]:
    """The words that a rank runs, and the framework where its launcher tells it."""
    report = top.report
    given = top.any("entrypoint")
    words = top.texts("entrypoint") if isinstance(given, list) else _split(given)
    if not words:
        raise wrong("entrypoint", given, "a command")
    if len(words) == 1 and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", words[0]):
        report.fill_in(
            "entrypoint", words[0],
            "a class of the trial API, which only Determined can run: write a script that trains "
            "it, and name that",
        )  # fmt: skip
        return [FILL_IN], None
    start = next((at for at, word in enumerate(words) if word.startswith("determined.launch.")), 0)
    if start < 1 or words[start - 1] != "-m":
        commands.look_at(words, "entrypoint", report)
        report.mapped("entrypoint", " ".join(words), "run")
        return words, None
    launcher = words[start].removeprefix("determined.launch.")
    if launcher not in LAUNCHERS:
        raise wrong("entrypoint", words[start], f"a launcher known here: {', '.join(LAUNCHERS)}")
    rest = words[start + 1 :]
    while rest and rest[0].startswith("-") and rest[0] not in ("--", "--trial"):
        report.by_hand("entrypoint", rest[0], "a flag of Determined's launcher: not carried over")
        rest.pop(0)
    if rest[:1] == ["--"]:
        rest.pop(0)
    if not rest or rest[0] == "--trial":
        raise wrong("entrypoint", given, "a script to run; trial classes run in Determined only")
    framework = LAUNCHERS[launcher]
    report.mapped(
        "entrypoint", words[start],
        f"framework: {framework} (Windlass starts a rank for each GPU itself)",
    )  # fmt: skip
    report.mapped("entrypoint", " ".join(rest), "run")
    return rest, framework


def _split(given: Any) -> list[str]:
    if not isinstance(given, str):
        raise wrong("entrypoint", given, "a command")
    try:
        words = shlex.split(given)
    except ValueError as err:
        raise wrong("entrypoint", given, f"a command ({err})") from None
    # Determined gives a text to a shell.
    needs_shell = re.search(r"[|&;<>`*]|\$[^{]|\$$", given)
    return ["sh", "-c", given] if needs_shell else words


def _resources(about: Fields) -> tuple[int, dict[str, Any]]:
    report = about.report
    slots = about.whole("slots_per_trial", maximum=4096)
    if slots is None:
        slots = 1
        report.by_hand("resources.slots_per_trial", "absent", "1, as in Determined: gpus: 1")
    else:
        report.mapped(about.where("slots_per_trial"), slots, f"gpus: {slots} of one member")
    if slots > 8:
        report.by_hand(
            about.where("slots_per_trial"), slots,
            "more than most nodes have: share them out, such as count: 2 and half the gpus",
        )  # fmt: skip
    about.hand("priority", "set `queue.priority`: here higher goes first, there lower")
    for key in ("resource_pool", "agent_label"):
        about.hand(
            key, "placing is the scheduler's; `queue.name` names one of `windlass queue ls`"
        )
    about.leave(
        {
            "max_slots": LATER, "weight": "there is no fair share yet",
            "shm_size": "jobs share the host's /dev/shm", "native_parallel": "not needed",
            "devices": "devices of the node are visible",
            "is_single_node": "one member is one node",
        }
    )  # fmt: skip
    return slots, {}


def _environment(about: Fields, framework: str | None) -> dict[str, str]:
    report = about.report
    pictures = about.any("image")
    if isinstance(pictures, Mapping):
        choices = Fields(pictures, about.where("image"), report)
        chosen = next((key for key in ("cuda", "gpu", "cpu", "rocm") if key in choices), None)
        if chosen:
            image(Fields({"image": choices.any(chosen)}, choices.where(chosen), report))
    elif pictures is not None:
        image(about)
    found: dict[str, tuple[str, str]] = {}
    given = about.any("environment_variables")
    if isinstance(given, Mapping):
        by_device = Fields(given, about.where("environment_variables"), report)
        for key in ("cpu", "cuda", "gpu"):
            found |= _pairs(by_device, key)
        by_device.leave()
    else:
        found = _pairs(about, "environment_variables")
    own = "there are no containers yet"
    about.leave(
        dict.fromkeys(
            ("force_pull_image", "registry_auth", "add_capabilities", "drop_capabilities", "ports",
             "pod_spec", "proxy_ports"), own,
        )
    )  # fmt: skip
    return gang.variables(found, framework, report)


def _pairs(about: Fields, key: str) -> dict[str, tuple[str, str]]:
    found = {}
    for (where, _), item in zip(about.items(key), about.texts(key), strict=True):
        name, equals, value = item.partition("=")
        if equals:
            found[name] = (where, value)
        else:
            about.report.by_hand(where, name, "its value comes from the agent: set it")
    return found


def _hyperparameters(about: Fields) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for key in about:
        where, value = about.where(key), about.any(key)
        if isinstance(value, Mapping) and value.get("type") == "const":
            value = value.get("val")
        elif isinstance(value, Mapping):
            about.report.by_hand(where, value, f"not a constant: choose a value; {LATER}")
            continue
        if not gang.is_name(key) or not _is_param(value):
            about.report.by_hand(where, value, "not a text, number or truth under a plain name")
            continue
        params[key] = value
        about.report.mapped(where, value, f"params.{key}")
    if params:
        about.report.by_hand(
            about.path, ", ".join(params)[:60],
            "the script asked Determined for them: pass them as flags, such as "
            f"--{next(iter(params))} ${{{next(iter(params))}}} in `run`",
        )  # fmt: skip
    return params


def _is_param(value: Any) -> bool:
    try:
        _PARAM.validate_python(value, strict=True)
    except ValidationError:
        return False
    return not isinstance(value, float) or abs(value) < float("inf")


def _apart(words: tuple[str, ...], params: Mapping[str, Any], report: Report) -> tuple[str, ...]:
    """A shell's ${NAME} is kept apart from ours, which params fill in: a shell reads ${NAME-} as
    the same."""
    if not params or not any(set(_USED.findall(word)) - set(params) for word in words):
        return words
    report.by_hand("entrypoint", " ".join(words), "${NAME} of the shell was written as ${NAME-}")
    return tuple(
        _USED.sub(lambda use: use[0] if use[1] in params else f"${{{use[1]}-}}", word)
        for word in words
    )


def _searcher(about: Fields) -> None:
    name = about.any("name")
    if name == "single":
        about.report.dropped(about.where("name"), name, "one trial is one job")
    elif name is not None:
        about.report.by_hand(about.where("name"), name, f"one trial only; {LATER}")
    for key in ("metric", "smaller_is_better"):
        about.drop(key, LATER)
    about.hand("max_length", "how long to train is the script's to say")
    about.leave(dict.fromkeys(about, LATER))


def _retry(top: Fields) -> dict[str, Any]:
    report = top.report
    times = top.whole("max_restarts", maximum=1_000_000)
    if times is not None:
        report.mapped("max_restarts", times, "retry.times")
    never: list[str] = []
    for where, item in top.items("log_policies"):
        policy = Fields(item, where, report)
        pattern, action = policy.text("pattern"), policy.any("action")
        kind = action.get("type") if isinstance(action, Mapping) else action
        if kind == "cancel_retries" and pattern and _is_pattern(pattern):
            never.append(f"log:{pattern}")
            report.mapped(where, pattern, "retry.never")
        else:
            report.by_hand(where, item, "only `cancel_retries` with a pattern of Python's maps")
        policy.ignore("name")
        policy.leave()
    rules = ["lost", "failed"] if times else None
    return compact({"times": times, "on": rules, "never": never})


def _is_pattern(pattern: str) -> bool:
    try:
        names_of(pattern)
    except ValueError:
        return False
    return len(pattern) <= 1000


def _limits(top: Fields) -> dict[str, Any]:
    seconds = top.whole("preemption_timeout", minimum=1, maximum=10**9)
    if seconds is None:
        return {}
    top.report.mapped("preemption_timeout", show(seconds), "limits.grace")
    return {"grace": quantities.duration(seconds)}
