"""Database addresses: `sqlite:///path/of/file.db` or `postgresql://user@host/name`."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from windlass.core.errors import InvalidInput

KNOWN = {"sqlite": "sqlite:///path/of/file.db", "postgresql": "postgresql://user@host/name"}


def dialect_of(url: str) -> str:
    """`sqlite` or `postgresql`. Raises `InvalidInput` that lists the known ones."""
    try:
        name = make_url(url).get_backend_name()
    except ArgumentError as error:
        raise InvalidInput(f"not a database address: {url!r}", hint=_hint()) from error
    name = {"postgres": "postgresql"}.get(name, name)
    if name not in KNOWN:
        raise InvalidInput(f"unknown kind of database: {name!r}", hint=_hint())
    return name


def is_sqlite(url: str) -> bool:
    return dialect_of(url) == "sqlite"


def sqlite_path(url: str) -> Path:
    database = make_url(url).database
    if not database or database == ":memory:":
        raise InvalidInput(f"{url!r} names no file", hint=_hint())
    return Path(database).absolute()


def _hint() -> str:
    return "known are: " + ", ".join(KNOWN.values())
