"""A space that is written as a Python function, as the dimensions and conditions of a study file.

    def space(trial):
        if trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "adam":
            trial.suggest_float("beta", 0.5, 0.99)
        for layer in range(trial.suggest_int("layers", 1, 3)):
            trial.suggest_int(f"units_{layer}", 16, 256, log=True)

The server never runs it. It is run here until every way through it was taken, and what came of
that is sent. A suggested value notices when it is looked at; only those that are looked at can
have a way depend on them, so all others are left alone:

    optimizer ── sgd ──► layers ── 1, 2, 3        each look is a fork,
              └─ adam ─► beta, layers ── 1, 2, 3  what stands on every branch has no condition

As a program, in the user's own Python (standard library only):

    python space_program.py FILE NAME OUT
"""

from __future__ import annotations

import json
import operator
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from typing import Any

MOST_WAYS = 5000
"""Through a function; and so many values may a number have that is looked at."""


class NoSpace(Exception):
    """It cannot be a space; the message says why."""


class Value:
    """A suggested value. Whatever is done with it but keeping it is a look at it."""

    def __init__(self, look: Callable[[], Any]) -> None:
        object.__setattr__(self, "_look", look)

    def __getattr__(self, name: str) -> Any:
        return getattr(_real(self), name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(_real(self))


def _real(value: Any) -> Any:
    return object.__getattribute__(value, "_look")() if type(value) is Value else value


def _seen(name: str) -> Callable[..., Any]:
    done = getattr(operator, name)
    return lambda *words: done(*map(_real, words))


def _turned(name: str) -> Callable[..., Any]:
    done = getattr(operator, name)
    return lambda one, other: done(_real(other), _real(one))


for _name in (
    "eq ne lt le gt ge add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift neg pos abs"
    " invert contains getitem index"
).split():
    setattr(Value, f"__{_name.rstrip('_')}__", _seen(_name))
for _name in "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift".split():
    setattr(Value, f"__r{_name.rstrip('_')}__", _turned(_name))
for _name, _made in (
    ("hash", hash), ("bool", bool), ("int", int), ("float", float), ("str", str), ("repr", repr),
    ("len", len), ("iter", iter), ("round", round), ("format", format),
):  # fmt: skip
    setattr(Value, f"__{_name}__", lambda self, *more, _made=_made: _made(_real(self), *more))


class Trial:
    """What the function gets: Optuna's three words."""

    def __init__(self, ways: dict[str, int]) -> None:
        self._ways = ways
        """Of those that are looked at, the place of its value, as far as that is decided."""
        self.trace: list[tuple[str, str]] = []
        """("has", name) and ("looks", name), in order."""
        self.found: dict[str, dict[str, Any]] = {}
        self.looked: dict[str, int] = {}

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> Any:
        return self._suggest(name, _numbers("float", name, low, high, step, log))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int | None = None, log: bool = False
    ) -> Any:
        return self._suggest(name, _numbers("int", name, low, high, step, log))

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        choices = [_real(each) for each in choices]
        for each in choices:
            if not isinstance(each, (bool, int, float, str)):
                raise NoSpace(
                    f"{name}: a choice is a text, a number or a truth (found {each!r}): suggest "
                    "its name, and look it up in the script"
                )
        return self._suggest(name, {"kind": "choice", "choices": choices})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoSpace(
            f"trial.{name}: a trial has suggest_float, suggest_int and suggest_categorical"
        )

    def _suggest(self, name: Any, dimension: dict[str, Any]) -> Any:
        name = _real(name)
        known = self.found.get(name)
        if known is None:
            self.found[name] = dimension
            self.trace.append(("has", name))
        elif known != dimension:
            raise NoSpace(f"{name} is suggested twice, as {_words(known)} and {_words(dimension)}")
        return Value(lambda: self._look(name))

    def _look(self, name: str) -> Any:
        if name not in self.looked:
            self.trace.append(("looks", name))
            self.looked[name] = self._ways.get(name, 0)
        return _values(name, self.found[name])[self.looked[name]]


class Way:
    """A place in the tree of all ways: what is suggested there, and the fork at its end."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.looks: str | None = None
        self.forks: dict[int, Way] = {}
        self.taken = False


def explore(function: Callable[[Any], Any]) -> dict[str, Any]:
    """The space of a study file. Raises NoSpace in words; what the function raises, it raises."""
    root = Way()
    dimensions: dict[str, dict[str, Any]] = {}
    left: list[dict[str, int]] = [{}]
    taken = 0
    while left:
        taken += 1
        if taken + len(left) > MOST_WAYS:
            raise NoSpace(
                f"there are more than {MOST_WAYS} ways through it: fewer values that are looked "
                "at, or several studies"
            )
        given = left.pop()
        trial = Trial(given)
        function(trial)
        for name, dimension in trial.found.items():
            if dimensions.setdefault(name, dimension) != dimension:
                raise NoSpace(
                    f"{name} is {_words(dimensions[name])} on one way and {_words(dimension)} on "
                    "another: give each its own name"
                )
        _enter(root, trial)
        path: dict[str, int] = {}
        for name, at in trial.looked.items():
            if name not in given:
                others = range(1, len(_values(name, dimensions[name])))
                left += [{**path, name: other} for other in reversed(others)]
            path[name] = at
    if not dimensions:
        raise NoSpace("it suggests no parameter")
    again = Trial({})
    function(again)
    _enter(root, again)
    return _written(root, dimensions)


def _enter(root: Way, trial: Trial) -> None:
    """One way through the function, as far as it is new."""
    way, names = root, []
    for what, name in [*trial.trace, ("looks", "")]:
        if what == "has":
            names.append(name)
            continue
        if way.taken and (way.names, way.looks) != (names, name or None):
            raise NoSpace("it suggests other parameters when it is called again: nothing in it "
                          "may depend on chance or on the time")  # fmt: skip
        way.taken, way.names, way.looks, names = True, names, name or None, []
        if name:
            way = way.forks.setdefault(trial.looked[name], Way())


def _written(root: Way, dimensions: dict[str, Any]) -> dict[str, Any]:
    """Each parameter with its conditions, behind those that it stands on."""
    terms = {name: _terms(root, name, dimensions) for name in dimensions}
    space: dict[str, Any] = {}

    def put(name: str, behind: tuple[str, ...]) -> None:
        if name in behind:
            raise NoSpace(f"{name} stands on {behind[-1]} on one way, and before it on another")
        for other in [each for term in terms[name] for each in term]:
            if other not in space:
                put(other, (*behind, name))
        when = [term for term in terms[name] if term]
        space[name] = {**dimensions[name], **({"when": when} if when else {})}

    for name in dimensions:
        if name not in space:
            put(name, ())
    return space


def _terms(way: Way, name: str, dimensions: dict[str, Any]) -> list[dict[str, list[Any]]]:
    """Where below this place it is suggested: [{}] everywhere, [] nowhere."""
    if name in way.names:
        return [{}]
    if way.looks is None:
        return []
    groups: list[tuple[list[Any], list[dict[str, list[Any]]]]] = []
    values = _values(way.looks, dimensions[way.looks])
    for at, value in enumerate(values):
        below = _terms(way.forks[at], name, dimensions)
        for known, same in groups:
            if same == below:
                known.append(value)
                break
        else:
            groups.append(([value], below))
    if len(groups) == 1:
        return groups[0][1]
    return [{way.looks: chosen, **term} for chosen, below in groups for term in below]


def _numbers(kind: str, name: str, low: Any, high: Any, step: Any, log: bool) -> dict[str, Any]:
    kinds = (int,) if kind == "int" else (int, float)
    low, high, step = _real(low), _real(high), _real(step)
    for word, number in (("low", low), ("high", high), ("step", step)):
        fits = isinstance(number, kinds) and not isinstance(number, bool)
        if not fits and not (word == "step" and number is None):
            raise NoSpace(f"{name}: {word} is {'a whole ' if kind == 'int' else 'a '}number "
                          f"(found {number!r})")  # fmt: skip
    found: dict[str, Any] = {"kind": kind, "low": float(low), "high": float(high)}
    if log:
        found["log"] = True
    if step is not None and not (kind == "int" and step == 1):
        found["step"] = float(step)
    return found


def _values(name: str, dimension: dict[str, Any]) -> list[Any]:
    """All that it may be, for one that is looked at."""
    if dimension["kind"] == "choice":
        return list(dimension["choices"])
    step = dimension.get("step") or (1.0 if dimension["kind"] == "int" else 0.0)
    if not step:
        raise NoSpace(
            f"the function looks at {name}, {_words(dimension)}: a way can depend on a choice, a "
            "whole number or a number in steps, not on every value of a range"
        )
    count = int((dimension["high"] - dimension["low"]) / step + 1e-9) + 1
    if not 0 < count <= MOST_WAYS:
        raise NoSpace(
            f"the function looks at {name}, {_words(dimension)}: {count} values, where at most "
            f"{MOST_WAYS} can be tried"
        )
    made = (dimension["low"] + step * at for at in range(count))
    return [int(each) if dimension["kind"] == "int" else each for each in made]


def _words(dimension: dict[str, Any]) -> str:
    if dimension["kind"] == "choice":
        return "one of " + ", ".join(str(each) for each in dimension["choices"])
    step = f"/{dimension['step']:g}" if "step" in dimension else ""
    log = "log " if dimension.get("log") else ""
    return f"{log}{dimension['kind']}:{dimension['low']:g}..{dimension['high']:g}{step}"


def _functions(found: dict[str, Any]) -> Iterator[str]:
    for name, each in found.items():
        if callable(each) and not name.startswith("_") and not isinstance(each, type):
            yield name


def main() -> None:
    path, name, out = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.argv = [path]
    found = runpy.run_path(path, run_name="windlass_space")
    if not callable(found.get(name)):
        known = ", ".join(_functions(found)) or "none"
        raise SystemExit(f"there is no function {name} in it; there is {known}")
    try:
        space = explore(found[name])
    except NoSpace as err:
        raise SystemExit(str(err)) from None
    with open(out, "w", encoding="utf-8") as file:
        json.dump(space, file)


if __name__ == "__main__":
    main()
