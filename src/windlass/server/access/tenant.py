"""The wall between projects, in SQL: no query about a project's things is made without one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement

from windlass.core.access import Principal
from windlass.core.errors import Internal


def of_tenant(column: Any, who: Principal) -> ColumnElement[bool]:
    """Only rows of the project that the caller speaks for. Refuses a caller without one: a route
    that lets such a caller this far has the wrong mark."""
    if not who.project_id:
        raise Internal("a query about a project's things was asked for without a project")
    return column == who.project_id  # type: ignore[no-any-return]  # a column's == is a clause
