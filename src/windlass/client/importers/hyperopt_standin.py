"""Runs a user's file with a stand-in for Hyperopt, and writes down the space that it describes.

    python hyperopt_standin.py FILE NAME OUT

Nothing is tried: `hp.*` only notes what it was asked for, and `fmin` which space it was given.
Standard library only: it runs in the user's own Python, whether Hyperopt is there or not.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

KINDS = (
    "uniform", "loguniform", "quniform", "qloguniform", "uniformint", "randint", "normal",
    "lognormal", "qnormal", "qlognormal", "choice", "pchoice",
)  # fmt: skip
GIVEN: list[Any] = []
"""The spaces that `fmin` got."""


class Noted:
    """A call of `hp` or `scope`; sums with it are noted too."""

    def __init__(self, kind: str, args: list[Any]) -> None:
        self.kind = kind
        self.args = args


def _expression(*_args: Any, **_named: Any) -> Noted:
    return Noted("expression", [])


for _name in "add radd sub rsub mul rmul truediv rtruediv pow rpow floordiv neg getitem".split():
    setattr(Noted, f"__{_name}__", _expression)


class Anything:
    """What a file may name of Hyperopt beside its spaces."""

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args: Any, **named: Any) -> Anything:
        return Anything()

    def __getitem__(self, key: Any) -> Anything:
        return Anything()

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Scope:
    def __getattr__(self, name: str) -> Callable[..., Noted]:
        if name == "int":
            return lambda value: Noted("int", [value])
        return _expression


def _hp(kind: str) -> Callable[..., Noted]:
    def call(label: Any, *args: Any, **named: Any) -> Noted:
        return Noted(kind, [label, *args, *named.values()])

    return call


def _fmin(fn: Any = None, space: Any = None, *args: Any, **named: Any) -> Anything:
    GIVEN.append(space)
    return Anything()


def install() -> None:
    found: Any = types.ModuleType("hyperopt")
    found.__path__ = []
    found.__getattr__ = lambda name: _nothing(name)
    found.hp = sys.modules["hyperopt.hp"] = types.ModuleType("hyperopt.hp")
    vars(found.hp).update({kind: _hp(kind) for kind in KINDS})
    found.fmin = _fmin
    for name in ("hyperopt.pyll", "hyperopt.pyll.base"):
        inner: Any = types.ModuleType(name)
        inner.__path__ = []
        inner.__getattr__ = lambda name: _nothing(name)
        inner.scope = Scope()
        sys.modules[name] = inner
    found.pyll, base = (sys.modules[name] for name in ("hyperopt.pyll", "hyperopt.pyll.base"))
    found.pyll.base = base
    sys.modules["hyperopt"] = found


def _nothing(name: str) -> Anything:
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything()


def plain(value: Any) -> Any:
    """A space as JSON."""
    if isinstance(value, Noted):
        if value.kind == "choice" and len(value.args) > 1:
            return {
                "hp": "choice", "label": value.args[0], "of": [plain(x) for x in value.args[1]]
            }  # fmt: skip
        if value.kind == "pchoice" and len(value.args) > 1:
            return {
                "hp": "pchoice", "label": value.args[0], "of": [plain(x) for _, x in value.args[1]]
            }  # fmt: skip
        if value.kind == "int":
            return {"int": plain(value.args[0])}
        if value.kind == "expression":
            return {"unknown": "an expression"}
        label, numbers = value.args[0], value.args[1:]
        try:
            return {"hp": value.kind, "label": label, "args": [float(x) for x in numbers]}
        except (TypeError, ValueError):
            return {"unknown": f"hp.{value.kind}({label!r}, …)"}
    if isinstance(value, dict):
        return {"dict": [[str(key), plain(each)] for key, each in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"list": [plain(each) for each in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"const": value}
    if hasattr(value, "item") and not callable(getattr(value, "shape", None)):
        try:
            return {"const": value.item()}
        except (TypeError, ValueError):
            pass
    return {"unknown": getattr(value, "__name__", type(value).__name__)}


def main() -> None:
    path, name, out = sys.argv[1:]
    install()
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.argv = [path]
    found = {}
    try:
        found = runpy.run_path(path, run_name="windlass_import" if name else "__main__")
    except (Exception, SystemExit):
        if name or not GIVEN:
            raise
        # the space is known: what the file does with results that there are not is no matter
    if name:
        if name not in found:
            raise SystemExit(f"there is no {name} in it")
        space = found[name]
        if isinstance(space, types.FunctionType):
            space = space()
    elif GIVEN:
        space = GIVEN[-1]
    elif "space" in found:
        space = found["space"]
    else:
        raise SystemExit("it calls no fmin and has no `space`: name one as FILE:NAME")
    with open(out, "w", encoding="utf-8") as file:
        json.dump(plain(space), file)


if __name__ == "__main__":
    main()
