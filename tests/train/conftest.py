"""What every test of training leaves as it found it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def no_endpoint_is_left() -> Iterator[None]:
    """An endpoint's thread that outlives its module was never closed by who made it."""
    before = set(threading.enumerate())
    yield
    left = [each.name for each in threading.enumerate() if each not in before]
    assert not [name for name in left if name.endswith(" endpoint")]
