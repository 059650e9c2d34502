"""The systemd unit that starts this home's server with the machine. Only the file: whether it is
used is the administrator's word."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windlass.cli import local
from windlass.client.places import data_dir

NAME = "windlass.service"


def path(file: str) -> Path:
    """Where it goes: as root the machine's, else the user's own; or the file that was named."""
    if file:
        return Path(file).absolute()
    if _is_root():
        return Path("/etc/systemd/system") / NAME
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "systemd" / "user" / NAME


def text(told: Mapping[str, Any]) -> str:
    """`KillMode=process`: jobs outlive the server, also under systemd; the next one finds them."""
    home = os.environ.get("WINDLASS_HOME")
    named = f"Environment={_quoted(f'WINDLASS_HOME={data_dir()}')}\n" if home else ""
    words = " ".join(_quoted(word) for word in local.command(told))
    target = "multi-user.target" if _is_root() else "default.target"
    return f"""\
[Unit]
Description=Windlass, the server of {data_dir()}
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
{named}Environment={_quoted("PATH=" + _path())}
ExecStart={words}
KillMode=process
Delegate=yes
Restart=on-failure
RestartSec=5
LimitNOFILE=65536

[Install]
WantedBy={target}
"""


def enable(path: Path) -> str:
    """The commands that make it start, now and with the machine."""
    user = "" if _is_root() else " --user"
    usual = path.parent.name in ("system", "user") and path.parent.parent.name == "systemd"
    name = path.name if usual else str(path)
    words = f"systemctl{user} daemon-reload && systemctl{user} enable --now {name}"
    return words if not user else f"{words} && loginctl enable-linger"


def _path() -> str:
    """So that jobs find the programs that the user's shell finds."""
    return os.environ.get("PATH") or os.path.dirname(sys.executable)


def _quoted(word: str) -> str:
    """As systemd reads it: `%` and `$` stand for something else there."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if plain != word or " " in word or not word else word


def _is_root() -> bool:
    """Windows has neither the call nor units."""
    return bool(getattr(os, "geteuid", lambda: 1)() == 0)
