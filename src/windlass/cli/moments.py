"""Times as people read them: `3m`, `2h 5m`, from the ISO-8601 of the API."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from windlass.core.errors import InvalidInput

_UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds_of(iso: str | None) -> float | None:
    if not iso:
        return None
    try:
        return datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def span(seconds: float) -> str:
    """Two units at most: `42s`, `3m 5s`, `2h 5m`, `3d 4h`."""
    whole = max(0, int(seconds))
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    for big, small, size, part in (
        ("d", "h", 86400, 3600),
        ("h", "m", 3600, 60),
        ("m", "s", 60, 1),
    ):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{big} {rest}{small}" if rest else f"{whole // size}{big}"
    return f"{whole}s"


def age(iso: str | None, now: float | None = None) -> str:
    at = seconds_of(iso)
    return "" if at is None else span((time.time() if now is None else now) - at)


def between(start: str | None, end: str | None, now: float | None = None) -> str:
    """How long it took, or has taken so far."""
    first, last = seconds_of(start), seconds_of(end)
    if first is None:
        return ""
    if last is None:
        last = time.time() if now is None else now
    return span(last - first)


def duration(flag: str, text: str) -> float:
    """Seconds, from `90`, `90s`, `20m`, `1h30m` …"""
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw]?)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidInput(f"{flag}: {text!r} is not a duration such as 90s, 20m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def since(flag: str, text: str, now: float | None = None) -> str:
    """A moment in ISO-8601, from one, or from how long ago it was."""
    if seconds_of(text) is not None:
        return text
    at = (time.time() if now is None else now) - duration(flag, text)
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def coming(flag: str, text: str, now: float | None = None) -> str:
    """A moment in ISO-8601 with its zone, from one (without a zone: the time here), or from how
    long it is until then."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        seconds = (time.time() if now is None else now) + duration(flag, text)
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return at.astimezone(UTC).isoformat(timespec="milliseconds")


def clock(iso: str | None) -> str:
    """The time of day here, for a line of a log."""
    at = seconds_of(iso)
    return "" if at is None else datetime.fromtimestamp(at, UTC).astimezone().strftime("%H:%M:%S")
