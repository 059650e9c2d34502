"""What engines' options have in common."""

from __future__ import annotations

from windlass.core.errors import InvalidInput


def seconds(key: str, text: str, least: float, most: float) -> float:
    """Raises InvalidInput that names the option, its value and the choices."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not least <= found <= most:
        raise InvalidInput(
            f"options.{key}: seconds from {least:g} to {most:g} (found {text[:80]!r})"
        )
    return found
