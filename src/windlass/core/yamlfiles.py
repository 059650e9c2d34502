"""YAML as people write it, read strictly."""

from __future__ import annotations

from typing import Any


class KeysOnce:
    """Goes before a loader of PyYAML, which is not needed here: `class L(KeysOnce, SafeLoader)`.
    Refuses a key that is there twice: YAML would keep the last in silence."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Raises ValueError."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key.value, str):
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise ValueError(f"the key {key.value!r} is there twice (line {line})")
                seen.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep)  # type: ignore[misc]
        return found
