"""The engine: where gangs run. `local` is this machine and always there, others are added."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from windlass.core.strict import Line, Name, Strict

LOCAL = "local"
Option = Annotated[Line, Field(max_length=1000)]


class EngineBody(Strict):
    """An engine to add. Its options are its kind's: see the how-to pages."""

    kind: Name
    options: dict[Name, Option] = {}


class EngineView(Strict):
    name: str
    kind: str
    options: dict[str, str]
    state: str
    """`ready`, or `unreachable`."""
    reason: str
    nodes: int
    created: str | None
    """None: the local engine, which was there from the start."""


class EnginePage(Strict):
    items: tuple[EngineView, ...]


class Finding(Strict):
    """One thing that was looked at."""

    what: str
    ok: bool
    said: str


class EngineCheck(Strict):
    name: str
    ok: bool
    findings: tuple[Finding, ...]


IMAGES = "images"
"""What a node offers that runs a job in the image that it names, and such a job asks for."""
_LABEL = "engine-"


def label_of(engine: str) -> str:
    """What a node of the engine offers, and a job that names the engine asks for."""
    return _LABEL + engine


def engine_of(label: str) -> str | None:
    """The engine that a label stands for; None: it is about something else."""
    return label.removeprefix(_LABEL) if label.startswith(_LABEL) else None
