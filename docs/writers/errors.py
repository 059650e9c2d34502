"""docs/reference/errors.md: every code that may come over HTTP, and its exception."""

from __future__ import annotations

import re
from typing import Any

from docs.writers.markdown import code, table
from windlass.cli import exits
from windlass.cli.main import OWN_CODES
from windlass.core import errors

FORM = """
Every error of the API has this form, and every answer carries `X-Wl-Request-Id`:

```json
{"error": {"code": "invalid-input", "message": "what was wrong, what was found",
           "hint": "what to do", "details": {}, "request_id": "…"}}
```

`hint` and `details` may be absent. Codes are stable: the Python client raises the class of the
same row (`from windlass.core.errors import NotFound`), whatever the HTTP status was.

For `invalid-input`, `details.fields` lists `{"field", "found", "allowed"}`. For `clock-skew`,
`details.server_time_ms` is the server's time.
"""


def page() -> str:
    words = _words()
    rows = [
        (
            code(kind.code), str(kind.status or "–"), code(kind.__name__), words[kind.__name__],
            str(exits.of_error(_one(kind))),
        )
        for kind in errors.every()
    ]  # fmt: skip
    head = ("code", "HTTP", "class", "what it means", "exit code of the CLI")
    return "# Error codes\n" + FORM + "\n" + table(head, rows) + OWN + table(OWN_HEAD, own())


OWN = """
## Of the command line alone

Under `-o json` the command line prints its own errors in the same form, with `"api": 1`, on
stdout. These codes come from it and never over HTTP:

"""
OWN_HEAD = ("code", "what it means", "exit code")


def own() -> list[tuple[str, str, str]]:
    return [(code(name), words, str(exit)) for name, (words, exit) in OWN_CODES.items()]


def _words() -> dict[str, str]:
    """What the tree at the top of `core/errors.py` says about each class."""
    line = re.compile(r"[├└]── (\w+)\s+(?:\d{3}|–)\s+(.*)")
    return dict(line.findall(errors.__doc__ or ""))


def _one(kind: type[errors.WindlassError]) -> Any:
    return kind("")
