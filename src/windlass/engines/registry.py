"""Engines by name. Ours and others' come through the same door: an entry point of the group
`windlass.engines` that names a class or function giving an `Engine`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from windlass.core.errors import InvalidInput
from windlass.engines.base import Engine

GROUP = "windlass.engines"
# Ours are named here as well, so that they are found without a search through what is installed
# and when nothing is (a source tree); their names cannot be taken by others.
BUILT_IN = {"local": "windlass.engines.local.engine:LocalEngine"}


def known() -> list[str]:
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})


def load(name: str) -> Callable[..., Engine]:
    """What makes the engine of this name. Raises InvalidInput with the known names."""
    if name in BUILT_IN:
        found = EntryPoint(name, BUILT_IN[name], GROUP)
    else:
        points = entry_points(group=GROUP, name=name)
        if not points:
            raise InvalidInput(
                f"there is no engine {name!r}", hint=f"known engines: {', '.join(known())}"
            )
        found = next(iter(points))
    try:
        maker: Callable[..., Engine] = found.load()
    except (ImportError, AttributeError) as err:
        raise InvalidInput(
            f"the engine {name!r} cannot be loaded from {found.value}: {err}",
            hint="is its package installed with all that it needs?",
        ) from err
    return maker
