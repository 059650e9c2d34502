"""Saved views: what stands in the address of a page of the dashboard, under a name."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from windlass.core.strict import Line, Strict

PageName = Annotated[str, Field(pattern=r"^[a-z][a-z-]*$", max_length=40)]
SavedName = Annotated[Line, Field(pattern=r"^[^/]+$", min_length=1, max_length=80)]


class SavedBody(Strict):
    search: Line
    """What stands behind the `?`."""


class SavedView(Strict):
    page: str
    name: str
    search: str
    changed: str


class SavedPage(Strict):
    items: tuple[SavedView, ...]
