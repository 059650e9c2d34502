"""Where things of one installation lie on the user's machine.

`$WINDLASS_HOME`, when set, holds everything; several installations can stand side by side.
Otherwise credentials and settings are under `~/.config/windlass`, the server's data under
`~/.windlass`, and what can be thrown away in the user's cache directory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def config_dir() -> Path:
    home = os.environ.get("WINDLASS_HOME")
    return Path(home).expanduser().absolute() if home else Path.home() / ".config" / "windlass"


def data_dir() -> Path:
    """Of a server on this machine: `server.json`, `server.log`, database, attempts."""
    home = os.environ.get("WINDLASS_HOME")
    return Path(home).expanduser().absolute() if home else Path.home() / ".windlass"


def cache_dir() -> Path:
    """Hashes of files already read, jobs lately seen. Losing it costs time only."""
    home = os.environ.get("WINDLASS_HOME")
    if home:
        return Path(home).expanduser().absolute() / "client"
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "windlass"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "windlass"
    if os.name == "nt" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "windlass" / "cache"
    return Path.home() / ".cache" / "windlass"


def write_private(path: Path, text: str) -> None:
    """Replace `path` as a whole; only the user may read it. Safe against a crash half-way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
