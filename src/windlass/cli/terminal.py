"""What may reach a terminal: text, colours, and the line that is written over; no other order.

A job prints what it likes, and names, reasons, parameters and errors hold what somebody chose: an
escape sequence in them could move the cursor, write the clipboard or the window's title, or hide
what stands there. So whatever goes to a terminal goes through `guard`, whoever prints it. What is
piped is left as it is.
"""

from __future__ import annotations

import re
import sys
from typing import Any, TextIO

_SEQUENCE = re.compile(
    r"\x1b\[(?P<colours>[0-9;:]*)m"
    r"|(?P<erase>\x1b\[0?K)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # any other control sequence
    r"|\x1b[]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # a title, a clipboard, a device's string
    r"|(?P<left>[\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069])"
)
_CONCEAL = re.compile(r"(?:^|;)0*8(?:;|$)")
_OF_PALETTE = re.compile(r"[34]8[;:]")


def harmless(text: str) -> str:
    """Without what is dangerous: whole sequences are left out, what is left of one is shown."""
    return text if text.isascii() and text.isprintable() else _SEQUENCE.sub(_instead, text)


def _instead(found: re.Match[str]) -> str:
    if found["colours"] is not None:
        hides = _CONCEAL.search(found["colours"]) and not _OF_PALETTE.search(found["colours"])
        return "" if hides else found[0]
    if found["erase"] is not None:
        return found[0]
    return ascii(found[0])[1:-1] if found["left"] is not None else ""


class Guarded:
    """A stream that lets through what is harmless. It has no `buffer`: that would be a way
    around."""

    def __init__(self, bare: TextIO) -> None:
        self.bare = bare

    def write(self, text: str) -> int:
        self.bare.write(harmless(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.bare, name)


def guard() -> None:
    """From here on, all that this process prints to a terminal."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, Guarded) and stream is not None and stream.isatty():
            setattr(sys, name, Guarded(stream))


def bare(stream: TextIO) -> TextIO:
    """For whoever draws a screen of its own, out of texts that are tame."""
    return stream.bare if isinstance(stream, Guarded) else stream
