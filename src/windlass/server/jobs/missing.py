"""Why a script does not find a file that its user has: it was not sent. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

_SAID = re.compile(
    r"(?:No such file or directory|Unable to (?:synchronously )?open file|cannot find)[^'\"\n]*"
    r"['\"]([^'\"\n]{1,1000})['\"]"
)


def sentence(said: str, code: Mapping[str, Any]) -> str:
    """What is known of a file that `said`, a traceback, misses; "" where nothing is."""
    found = _SAID.search(said)
    if found is None or code.get("here") or not code.get("bundle"):
        return ""
    path = found[1]
    if path.startswith("/"):
        return (
            f"{path} is not on the node: only the code's folder was sent; a path in it, or --here"
            " (on this machine), finds it"
        )
    inside = posixpath.normpath(posixpath.join(code.get("workdir") or "", path))
    if inside.startswith(".."):
        return (
            f"{path} lies outside what was sent: name a folder above both (--code DIR), the job"
            " still runs where you stand; or --here"
        )
    for name in code.get("left_out") or ():
        folder = name.rstrip("/")
        if inside == folder or inside.startswith(folder + "/") or folder.startswith(inside + "/"):
            return f"{path} was left out when the code was sent: --include {folder}, or --here"
    return ""
