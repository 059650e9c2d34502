"""What the worker itself says, into `worker.log`: never the reason that it fails."""

from __future__ import annotations

import os


class Words:
    """In the place of `sys.stdout` or `sys.stderr`. What a full disk does not take is let go: an
    exception there would end the thread that spoke."""

    encoding = "utf-8"

    def __init__(self, opened: int) -> None:
        self._opened = opened

    def write(self, text: str) -> int:
        data = text.encode("utf-8", "backslashreplace")
        try:
            while data:
                data = data[os.write(self._opened, data) :]
        except OSError:
            pass
        return len(text)

    def flush(self) -> None:
        pass

    def fileno(self) -> int:
        return self._opened

    def isatty(self) -> bool:
        return False
