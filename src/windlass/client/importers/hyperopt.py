"""A search space of Hyperopt as one of ours.

The user's file is run by the user's Python with a stand-in for Hyperopt (`hyperopt_standin.py`),
so that it need not be installed anywhere; `hp.choice` between branches becomes conditions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.client.importers.base import Fate, Note
from windlass.client.spaces import described
from windlass.core.errors import InvalidInput

Tree = Mapping[str, Any]
When = dict[str, list[Any]]
FAR = 3.0
"""A normal distribution has no ends: ours are so many deviations away."""


@dataclass
class Space:
    """What was found: dimensions as a study file writes them, and the report."""

    space: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def note(self, fate: Fate, name: str, value: str, what: str) -> None:
        self.notes.append(Note(fate, name, value, what))


def load(where: str, python: str) -> Space:
    """The space of `FILE:NAME`, or of FILE's call of `fmin`. Raises InvalidInput in words."""
    path, _, name = where.partition(":") if not Path(where).is_file() else (where, "", "")
    standin = Path(__file__).with_name("hyperopt_standin.py")
    tree = described("--hyperopt", standin, Path(path), name, python)
    found = convert(tree)
    if not found.space:
        raise InvalidInput(f"--hyperopt: {where} describes no parameter")
    return found


def convert(tree: Tree) -> Space:
    """What the stand-in wrote down, as dimensions and a report."""
    found = Space()
    _walk(found, tree, "space", {})
    return found


def _walk(found: Space, tree: Tree, key: str, when: When) -> None:
    if "dict" in tree:
        for name, inner in tree["dict"]:
            _walk(found, inner, name, when)
    elif "list" in tree:
        for at, inner in enumerate(tree["list"]):
            _walk(found, inner, f"{key}_{at}", when)
    elif "const" in tree:
        _put(found, key, {"choices": [_constant(found, key, tree["const"])]}, when, "")
    elif "int" in tree:
        _number(found, tree["int"], when, whole=True)
    elif tree.get("hp") in ("choice", "pchoice"):
        _choice(found, tree, when)
    elif "hp" in tree:
        _number(found, tree, when, whole=False)
    else:
        found.note(Fate.BY_HAND, key, str(tree.get("unknown")), "not one of hp's distributions")


def _number(found: Space, tree: Tree, when: When, whole: bool) -> None:
    kind, args = tree.get("hp"), [float(each) for each in tree.get("args", ())]
    if kind in ("choice", "pchoice"):
        _choice(found, tree, when)
        return
    label = str(tree.get("label"))
    value = f"hp.{kind}({', '.join(f'{each:g}' for each in args)})"
    try:
        written, remark = _range(str(kind), args, whole)
    except (ValueError, IndexError, OverflowError):
        found.note(Fate.BY_HAND, label, value, "not understood: write its range by hand")
        return
    _put(found, label, {"range": written}, when, value)
    if remark:
        found.note(Fate.BY_HAND, label, value, remark)


def _range(kind: str, args: Sequence[float], whole: bool) -> tuple[str, str]:
    """A range as we write it, and what of it is not the same."""
    if kind == "randint":
        low, high = (0.0, args[0]) if len(args) == 1 else (args[0], args[1])
        return f"int:{_text(low)}..{_text(high - 1)}", ""
    if kind == "uniformint":
        return f"int:{_text(math.ceil(args[0]))}..{_text(math.floor(args[1]))}", ""
    remark = ""
    if kind.endswith("normal"):
        remark = f"a bell without ends; here all values within {FAR:g} deviations alike"
        low, high = args[0] - FAR * args[1], args[0] + FAR * args[1]
    else:
        low, high = args[0], args[1]
    logarithmic = "log" in kind
    if logarithmic:
        low, high = math.exp(low), math.exp(high)
    step = args[2] if kind.startswith("q") else 0.0
    if not step and not whole:
        return f"{'log' if logarithmic else 'float'}:{_text(low)}..{_text(high)}", remark
    step = step or 1.0
    first, last = round(low / step) * step, round(high / step) * step
    if logarithmic:
        if step == 1:
            return f"logint:{_text(max(1.0, first))}..{_text(max(1.0, last))}", remark
        return f"log:{_text(low)}..{_text(high)}", remark or f"not in steps of {step:g} here"
    if all(float(each).is_integer() for each in (first, last, step)):
        return f"int:{_text(first)}..{_text(last)}/{_text(step)}", remark
    return f"float:{_text(first)}..{_text(last)}/{_text(step)}", remark


def _choice(found: Space, tree: Tree, when: When) -> None:
    options: list[Tree] = list(tree["of"])
    label = str(tree["label"])
    plain = all("const" in option for option in options)
    if plain:
        names = [_constant(found, label, option["const"]) for option in options]
    else:
        names = _branches(options)
    name = _put(found, label, {"choices": names}, when, f"hp.{tree['hp']} of {len(options)}")
    if tree["hp"] == "pchoice":
        found.note(Fate.DROPPED, label, "hp.pchoice", "its probabilities: all are alike here")
    if plain or not name:
        return
    for option, branch in zip(options, names, strict=True):
        if "dict" not in option:
            if "const" not in option:
                _walk(found, option, f"{name}_{branch}", {name: [branch]})
            continue
        for key, inner in option["dict"]:
            if inner.get("const") != branch:  # that one names the branch
                _walk(found, inner, key, {name: [branch]})


def _branches(options: Sequence[Tree]) -> list[Any]:
    """A word for each branch: its own constant, the first text in it, or its place."""
    found: list[Any] = []
    for at, option in enumerate(options):
        words = [
            inner["const"]
            for _, inner in option.get("dict", ())
            if isinstance(inner.get("const"), str)
        ]
        own = option.get("const")
        word = own if own is not None else next(iter(words), f"case_{at}")
        found.append(word if word not in found else f"case_{at}")
    return found


def _constant(found: Space, key: str, value: Any) -> Any:
    if value is None:
        found.note(Fate.BY_HAND, key, "None", "the script gets the text none")
        return "none"
    return value


def _put(found: Space, label: str, fields: dict[str, Any], when: When, value: str) -> str:
    """Keep one; its name here, or "" when another has it."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", label)
    name = f"_{name}" if not name or name[0].isdigit() else name
    known = found.space.get(name)
    if known is not None:
        same = {key: each for key, each in known.items() if key != "when"} == fields
        if same and set(known.get("when", {})) == set(when) and when:
            [(parent, values)] = when.items()
            known["when"][parent] = list(dict.fromkeys([*known["when"][parent], *values]))
            return name
        branch = next((str(each[0]) for each in when.values()), "")
        longer = re.sub(r"[^A-Za-z0-9_]", "_", f"{branch}_{name}")
        if not branch or longer in found.space:
            found.note(Fate.BY_HAND, label, value, "another parameter has this name")
            return ""
        name = longer
    copied = {key: list(each) for key, each in when.items()}
    found.space[name] = {**fields, **({"when": copied} if when else {})}
    shown = fields.get("range") or ", ".join(str(each) for each in fields["choices"])
    parent = "".join(f" where {key} is {each[0]}" for key, each in when.items())
    if value:
        found.note(Fate.MAPPED, label, value, f"{name}: {shown}{parent}")
    return name


def _text(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(float(f"{number:.12g}"))
