"""What `up` was told, kept in the home for the next `up`.

    up.json   {"port": 7461, "fake_nodes": 2}      written when a server was started with them

A server that `run` starts by itself takes them too. A running one is never changed by them: what
it was started with is what it has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windlass.client.places import data_dir, write_private
from windlass.core.errors import InvalidInput

Told = dict[str, Any]


def kept() -> Told:
    """Raises InvalidInput for a file that somebody has broken."""
    path = data_dir() / "up.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as err:
        raise InvalidInput(
            f"{path} cannot be read: {err}", hint="mend it, or forget it: windlass up --reset"
        ) from err
    return found if isinstance(found, dict) else {}


def keep(told: Mapping[str, Any]) -> None:
    path = data_dir() / "up.json"
    if told:
        write_private(path, json.dumps(dict(told), indent=1, sort_keys=True) + "\n")
    else:
        path.unlink(missing_ok=True)


def flags(told: Mapping[str, Any]) -> list[str]:
    """As they are typed."""
    words = []
    for name, value in sorted(told.items()):
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words
