"""The Python client is typed and told of: what an editor shows, and the page, have no gaps."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

import windlass
from windlass import client

sys.path.insert(0, str(Path(__file__).parents[2]))  # `docs` is part of the checkout

from docs.writers import python


@pytest.mark.parametrize("name", client.__all__)
def test_every_public_member_is_typed_and_has_words(name: str) -> None:
    kind = getattr(client, name)
    assert python.about(kind)
    for member, found in python.members(kind):
        inner = found.fget if isinstance(found, property) else found
        inner = inner.__func__ if isinstance(inner, classmethod | staticmethod) else inner
        assert inner.__doc__, f"{name}.{member} says nothing"
        told = inspect.signature(inner)
        assert told.return_annotation is not told.empty, f"{name}.{member}"
        for each in told.parameters.values():
            if each.name not in ("self", "cls"):
                assert each.annotation is not each.empty, f"{name}.{member}: {each.name}"


def test_type_checkers_are_told_that_there_are_types() -> None:
    assert (Path(windlass.__file__).parent / "py.typed").exists()


def test_the_page_has_every_member() -> None:
    page = python.page()
    assert "### Jobs.submit" in page and "`client.jobs`" in page
    assert "| `waits` |" in page
