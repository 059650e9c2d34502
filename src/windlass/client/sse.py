"""Server-sent events, read as the HTML standard says: fields until an empty line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
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


class Stream(Iterator[Message]):
    """Messages as they come. Whoever stops before the end closes it (`with`): a generator that
    was never asked for its first message would not close its connection."""

    def __init__(self, source: Iterator[Message], close: Callable[[], None]) -> None:
        self._source = source
        self.close = close

    def __next__(self) -> Message:
        return next(self._source)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
