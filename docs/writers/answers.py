"""docs/reference/json.md: what each command prints with `-o json`, as a schema.

A command answers with an object of the API (its schema is the OpenAPI document's), with a list of
such objects (`items`), or with an object of its own, which is written down here. A test runs the
commands and holds their answers to it; a command that is not in the table fails it too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import click

from docs.writers.api import application
from docs.writers.cli import commands
from docs.writers.markdown import code, sentence, table

Schema = dict[str, Any]

HEAD = """# What commands print with `-o json`

Data goes to stdout and is one JSON document with `"api": 1`; words go to stderr, and with `run`
also what the job writes. A list is `{"api": 1, "items": [...]}`; with `-o jsonl` each item is a
line. Times are ISO-8601 in UTC. An error is `{"api": 1, "error": {"code", "message", "hint"}}`,
with the codes of [errors.md](errors.md).

Fields may be added in later releases; those that are listed here stay. Objects of the API have
the schema of `/api/v1/openapi.json` (the document is in the sources as `web/openapi.json`).
"""

TEXT, WHOLE, NUMBER, TRUTH, ANY = "string", "integer", "number", "boolean", "any"
OWN: dict[str, dict[str, str]] = {
    "Up": {
        "pid": WHOLE, "url": TEXT, "version": TEXT, "home": TEXT, "credentials": TEXT,
        "started": TRUTH,
    },
    "Down": {"stopped": TRUTH, "pid?": WHOLE, "ended?": "[string]", "running?": WHOLE},
    "Link": {"url": TEXT},
    "Doctor": {"version": TEXT, "platform": TEXT, "checks": "[Check]"},
    "Check": {"name": TEXT, "state": TEXT, "found": TEXT, "fix": TEXT},
    "File": {"file": TEXT, "name?": TEXT},
    "Imported": {"file": "string?", "jobs": "[ImportedJob]"},
    "ImportedJob": {"kind": TEXT, "spec": "object", "notes": "[Note]"},
    "Note": {"fate": TEXT, "field": TEXT, "value": TEXT, "what": TEXT},
    "LogLine": {"at": TEXT, "rank": TEXT, "stream": TEXT, "offset": WHOLE, "text": TEXT},
    "Metrics": {"series?": "[Series]", "job?": TEXT, "metrics?": "[Metric]"},
    "Metric": {"key": TEXT, "value": "any", "step": "any", "source": "any"},
    "Synced": {"id": TEXT, "name": TEXT, "lines": WHOLE, "folder": TEXT},
    "Ranks": {"ranks": "[object]", "errors?": "[string]"},
    "Top": {"nodes": "[NodeView]", "jobs": "[JobRow]"},
    "Setting": {"name": TEXT, "value": TEXT, "origin": TEXT},
    "Places": {"config": TEXT, "credentials": TEXT, "home": TEXT},
    "Context": {
        "name": TEXT, "url": TEXT, "project": TEXT, "credential": TEXT, "used": TRUTH,
    },
    "Version": {"version": TEXT, "python": TEXT, "platform": TEXT},
    "Changed": {"changed": TRUTH},
    "Backup": {
        "file": TEXT, "files": WHOLE, "database": TEXT, "revision": TEXT, "version": TEXT,
        "made": TEXT, "secrets": TRUTH, "outputs": TRUTH, "stored": WHOLE,
        "left_out": "[string]", "home?": TEXT, "lost?": WHOLE,
    },
    "Named": {"name?": TEXT, "id?": TEXT},
}  # fmt: skip
"""Objects that only the command line makes. A `?` behind a name: it may be absent."""

ANSWERS = {
    "windlass up": "Up", "windlass down": "Down", "windlass status": "Status",
    "windlass demo": "object", "windlass ui": "Link", "windlass doctor": "Doctor",
    "windlass init": "File", "windlass import": "Imported",
    "windlass run": "JobDetail", "windlass submit": "JobView", "windlass apply": "[JobView]",
    "windlass ps": "[JobRow]", "windlass show": "JobDetail", "windlass metrics": "Metrics",
    "windlass compare": "object", "windlass logs": "LogLine", "windlass sync": "[Synced]",
    "windlass events": "[EventView]", "windlass why": "Why", "windlass wait": "[JobView]",
    "windlass stop": "[JobView]", "windlass rerun": "JobView", "windlass restart": "[JobView]",
    "windlass release": "[JobView]",
    "windlass checkpoint get": "CheckpointDetail", "windlass checkpoint ls": "[Checkpoint]",
    "windlass checkpoint rm": "[object]", "windlass checkpoint show": "CheckpointDetail",
    "windlass rm": "[object]", "windlass debug attach": "object",
    "windlass debug profile": "Ranks", "windlass debug stack": "Ranks",
    "windlass study add-trials": "StudyView", "windlass study best": "object",
    "windlass study create": "StudyView", "windlass study cv": "object",
    "windlass study ensemble": "object", "windlass study ls": "[StudyView]",
    "windlass study rm": "object", "windlass study show": "StudyDetail",
    "windlass study stop": "StudyView", "windlass study wait": "StudyView",
    "windlass automl": "object", "windlass bench frameworks": "object",
    "windlass bench strategies": "object", "windlass plan": "object",
    "windlass model alias": "object", "windlass model diff": "object",
    "windlass model get": "VersionDetail", "windlass model ls": "[ModelView]",
    "windlass model register": "VersionView", "windlass model rm": "object",
    "windlass model show": "object", "windlass model unalias": "object",
    "windlass top": "Top", "windlass node ls": "[NodeView]",
    "windlass engine add": "EngineCheck", "windlass engine check": "EngineCheck",
    "windlass engine ls": "[EngineView]", "windlass engine rm": "object",
    "windlass queue ls": "[QueueView]", "windlass queue move": "JobView",
    "windlass queue pause": "QueueView", "windlass queue priority": "JobView",
    "windlass queue resume": "QueueView", "windlass queue rm": "object",
    "windlass queue set": "QueueView", "windlass queue show": "QueueLine",
    "windlass quota apply": "object", "windlass quota ls": "[QuotaView]",
    "windlass quota rm": "object", "windlass quota set": "QuotaView",
    "windlass quota show": "QuotaView", "windlass limit ls": "[object]",
    "windlass limit rm": "object", "windlass limit set": "object",
    "windlass usage report": "UsageReport", "windlass simulate": "object",
    "windlass login": "object", "windlass logout": "File", "windlass password": "Changed",
    "windlass browser end": "object", "windlass browser ls": "[SessionView]",
    "windlass whoami": "WhoAmI", "windlass context ls": "[Context]",
    "windlass context use": "File", "windlass project add": "object",
    "windlass project create": "ProjectView", "windlass project ls": "[ProjectView]",
    "windlass project members": "[MemberView]", "windlass project remove": "object",
    "windlass project rm": "object", "windlass project show": "ProjectDetail",
    "windlass project use": "File", "windlass user create": "UserView",
    "windlass user disable": "UserView", "windlass user enable": "UserView",
    "windlass user identity": "object", "windlass user ls": "[UserView]",
    "windlass user password": "object", "windlass user rm": "object",
    "windlass user role": "UserView", "windlass user show": "UserView",
    "windlass key create": "object", "windlass key ls": "[KeyView]",
    "windlass key rekey": "object", "windlass key revoke": "object",
    "windlass key rotate": "object", "windlass token create": "TokenMade",
    "windlass token ls": "[TokenView]", "windlass token revoke": "object",
    "windlass secret ls": "[SecretView]", "windlass secret rm": "object",
    "windlass secret set": "SecretView", "windlass audit head": "AuditHead",
    "windlass audit ls": "[AuditRow]", "windlass audit show": "AuditRow",
    "windlass audit verify": "object", "windlass config get": "[Setting]",
    "windlass config path": "Places", "windlass config set": "File",
    "windlass backup create": "Backup", "windlass backup restore": "Backup",
    "windlass version": "Version",
}  # fmt: skip
"""By command: an object's name, `[name]` for a list of them, `object` where its fields are the
command's own matter and may change."""


def with_json() -> list[str]:
    """Every command that has `-o json`."""
    return [
        words
        for words, command in commands()
        for option in command.params
        if option.name == "output"
        and isinstance(option.type, click.Choice)
        and "json" in option.type.choices
    ]


@cache
def components() -> Mapping[str, Schema]:
    """The API's schemas and our own, by name."""
    found: dict[str, Schema] = dict(application().openapi()["components"]["schemas"])
    for name, fields in OWN.items():
        found[name] = {
            "type": "object",
            "properties": {field.rstrip("?"): _kind(kind) for field, kind in fields.items()},
            "required": [field for field in fields if not field.endswith("?")],
        }
    return found


def schema(command: str) -> Schema:
    """Of the whole document that a command prints."""
    answer = ANSWERS[command]
    if not answer.startswith("["):
        return _kind(answer)
    return {
        "type": "object",
        "properties": {"api": {"const": 1}, "items": _kind(answer)},
        "required": ["api", "items"],
    }


def _kind(word: str) -> Schema:
    if word.startswith("["):
        return {"type": "array", "items": _kind(word[1:-1])}
    if word.endswith("?"):
        return {"anyOf": [_kind(word[:-1]), {"type": "null"}]}
    if word == ANY:
        return {}
    if word in (TEXT, WHOLE, NUMBER, TRUTH, "object"):
        return {"type": word}
    return {"$ref": f"#/components/schemas/{word}"}


def faults(value: Any, told: Schema, where: str = "") -> Iterator[str]:
    """Where a value is not as its schema says: fields that are missing, or of another type."""
    if "$ref" in told:
        yield from faults(value, components()[told["$ref"].rpartition("/")[2]], where)
    elif "anyOf" in told:
        every = [list(faults(value, each, where)) for each in told["anyOf"]]
        if all(every):
            yield min(every, key=len)[0]
    elif "const" in told or "enum" in told:
        if value not in told.get("enum", [told.get("const")]):
            yield f"{where}: {value!r}"
    elif "type" in told and not isinstance(value, _TYPES[told["type"]]):
        yield f"{where}: {told['type']} was expected, found {value!r:.60}"
    elif isinstance(value, dict):
        for name in told.get("required", ()):
            if name not in value:
                yield f"{where}.{name} is missing"
        for name, each in told.get("properties", {}).items():
            if name in value:
                yield from faults(value[name], each, f"{where}.{name}")
    elif isinstance(value, list) and "items" in told:
        for at, item in enumerate(value):
            yield from faults(item, told["items"], f"{where}[{at}]")


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,),
    "number": (int, float), "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


def page() -> str:
    rows = [(code(command), _answer(ANSWERS[command])) for command in with_json()]
    named = sorted({answer.strip("[]") for answer in ANSWERS.values()} & set(components()))
    inner = sorted({word.strip("[]?") for each in OWN.values() for word in each.values()})
    shown = sorted({*named, *(name for name in inner if name in OWN)})
    parts = [HEAD, table(("command", "what it prints"), rows)]
    for name in shown:
        parts += [f"## {name}\n", _about(name)]
    return "\n".join(parts)


def _answer(word: str) -> str:
    name = word.strip("[]")
    linked = f"[{name}](#{name.lower()})" if name in components() else "an object"
    return f"`items`: a list of {linked}" if word.startswith("[") else linked


def _about(name: str) -> str:
    told = components()[name]
    required = told.get("required", ())
    rows = [
        (
            code(field), _type(each), "always" if field in required else "",
            sentence(each.get("description")),
        )
        for field, each in told.get("properties", {}).items()
    ]  # fmt: skip
    return table(("field", "type", "there", "what it is"), rows)


def _type(told: Schema) -> str:
    if "$ref" in told:
        return code(told["$ref"].rpartition("/")[2])
    if "anyOf" in told:
        return " or ".join(dict.fromkeys(_type(each) for each in told["anyOf"]))
    if "enum" in told or "const" in told:
        return ", ".join(code(json.dumps(each)) for each in told.get("enum", [told.get("const")]))
    if told.get("type") == "array":
        return f"list of {_type(told.get('items', {}))}"
    return str(told.get("type", "any"))
