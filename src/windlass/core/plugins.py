"""Plug-ins by name. Ours and others' come through the same door: an entry point of a group.

Ours are named by the family as well, so that they are found without a search through what is
installed and when nothing is (a source tree); their names cannot be taken by others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from windlass.core.errors import InvalidInput


@dataclass(frozen=True)
class Family:
    kind: str
    """What one of them is called: `engine`, `strategy`."""
    group: str
    built_in: Mapping[str, str]

    def known(self) -> list[str]:
        return sorted({*self.built_in, *(each.name for each in entry_points(group=self.group))})

    def load(self, name: str) -> Any:
        """What stands under this name. Raises InvalidInput with the known names."""
        if name in self.built_in:
            found = EntryPoint(name, self.built_in[name], self.group)
        else:
            points = entry_points(group=self.group, name=name)
            if not points:
                raise InvalidInput(
                    f"{self.kind}: there is no {name!r}", hint=f"known: {', '.join(self.known())}"
                )
            found = next(iter(points))
        try:
            return found.load()
        except (ImportError, AttributeError) as err:
            raise InvalidInput(
                f"{self.kind}: {name!r} cannot be loaded from {found.value}: {err}",
                hint="is its package installed with all that it needs?",
            ) from err
