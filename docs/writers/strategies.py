"""docs/reference/strategies.md: every strategy that comes with Windlass, from its class."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from docs.writers.markdown import code, sentence, table
from windlass.train import registry
from windlass.train.strategy import Strategy

ON_LOSS = {
    "abort": "all end, with its name",
    "shrink": "the others go on",
    "rejoin": "the others go on, and it may come back",
}


def page() -> str:
    found = {name: registry.load(name) for name in sorted(registry.BUILT_IN)}
    rows = [
        (
            f"[`{name}`](#{_anchor(name)})",
            registry.line_of(kind),
            "yes" if kind.has_servers else "",
            ON_LOSS[kind.on_loss],
        )
        for name, kind in found.items()
    ]
    return "\n".join(
        [
            "# Strategies of training\n",
            "`windlass.train.fit(make, strategy=NAME, …)` trains by any of these; options go into "
            "the same call. Which one when: [train on many processes](../how-to/strategies.md).\n",
            table(("strategy", "what it does", "servers", "when a member dies"), rows),
            *(part for name, kind in found.items() for part in _section(name, kind)),
        ]
    )


def _section(name: str, kind: type[Strategy]) -> list[str]:
    words = inspect.cleandoc(kind.__doc__ or "")
    options = [
        (code(option), code(_default(field)), _limits(field), sentence(field.description))
        for option, field in kind.model_fields.items()
    ]
    return [
        f"## {name}\n",
        words + "\n",
        table(("option", "default", "limits", "what it is"), options)
        if options
        else "It has no options.\n",
    ]


def _default(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    return "" if value is PydanticUndefined else repr(value)


def _limits(field: FieldInfo) -> str:
    """`1 or more`, or the choices."""
    words = []
    for each in field.metadata:
        for sign, text in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
            if getattr(each, sign, None) is not None:
                words.append(f"{text} {getattr(each, sign)}")
    choices = getattr(field.annotation, "__args__", ())
    if choices and all(isinstance(each, str) for each in choices):
        words.append(", ".join(code(each) for each in choices))
    return ", ".join(words)


def _anchor(name: str) -> str:
    return name.replace(":", "")
