"""Server-sent events, read as the HTML standard says: fields until an empty line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Message:
    event: str
    data: str
    id: str
    """The cursor to go on from after this message; it stays that of the last one that had it."""

    def json(self) -> Any:
        return json.loads(self.data)


def messages(lines: Iterable[bytes]) -> Iterator[Message]:
    """Whole messages only: what a broken connection cut off is not delivered."""
    event, last_id = "", ""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield Message(event or "message", "\n".join(data), last_id)
            event, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == "id" and "\0" not in value:
            last_id = value
