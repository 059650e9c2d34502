"""What an operator may say of a Slurm engine: `windlass engine add slurm -s partition=gpu`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from windlass.core.errors import InvalidInput
from windlass.engines.options import seconds

KNOWN = {
    "partition": "the partition that jobs go to; without it the cluster's default",
    "account": "the account that they count for",
    "qos": "the quality of service that they ask for",
    "url": "this server's address as the nodes reach it; without it the address it has itself",
    "sbatch": "more options for sbatch, as one would write them",
    "together": "`yes`: people who share this server trust each other, see below",
    "lease": "seconds without a word from the server after which a worker ends, from 5 to 3600",
    "poll": "seconds between two looks at the queue, from 0.2 to 60",
}
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,+-]{0,127}")
_URL = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
# These are the engine's own: it finds its jobs, nodes and output by them.
_OURS = ("job-name", "J", "nodelist", "w", "nodes", "N", "ntasks", "n", "requeue", "export",
         "output", "o", "error", "e", "array", "a", "wrap", "parsable", "wait", "W",
         "dependency", "d", "hold", "H", "test-only")  # fmt: skip


def checked(given: Mapping[str, str]) -> dict[str, Any]:
    """As the engine takes them. Raises InvalidInput that names the option and what is allowed."""
    for key in given:
        if key not in KNOWN:
            raise InvalidInput(
                f"options.{key}: not known to a Slurm engine", hint=f"one of {', '.join(KNOWN)}"
            )
    found: dict[str, Any] = {}
    for key in ("partition", "account", "qos"):
        if key in given:
            if not _WORD.fullmatch(given[key]):
                raise InvalidInput(f"options.{key}: a name of Slurm's (found {given[key]!r})")
            found[key] = given[key]
    if "url" in given:
        if not _URL.fullmatch(given["url"]):
            raise InvalidInput(f"options.url: http://host:port (found {given['url']!r})")
        found["url"] = given["url"].rstrip("/")
    if "together" in given:
        if given["together"] not in ("yes", "no"):
            raise InvalidInput(f"options.together: yes or no (found {given['together'][:80]!r})")
        found["together"] = given["together"] == "yes"
    for key, least, most in (("poll", 0.2, 60.0), ("lease", 5.0, 3600.0)):
        if key in given:
            found[f"{key}_seconds"] = seconds(key, given[key], least, most)
    if "sbatch" in given:
        found["options"] = _more(given["sbatch"])
    return found


def _more(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as err:
        raise InvalidInput(f"options.sbatch: {err} (found {text!r})") from err
    for word in words:
        name = word.lstrip("-").partition("=")[0]
        if not word.startswith("-"):
            raise InvalidInput(
                f"options.sbatch: {word!r} is no option", hint="write --name=value, not two words"
            )
        if name in _OURS or (not word.startswith("--") and name[:1] in _OURS):
            raise InvalidInput(f"options.sbatch: {word.partition('=')[0]} is the engine's own")
    return words
