"""What an operator may say of a Ray engine: `windlass engine add ray -s address=10.0.0.5:6379`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windlass.core.errors import InvalidInput
from windlass.engines.options import seconds

LOCAL = "local"
KNOWN = {
    "address": "HOST:PORT of a cluster that we are in, ray://HOST:PORT of another, or local",
    "python": "a Python with Ray in it, of the cluster's version; without it the server's own",
    "token-file": "the file with the cluster's token, where it asks for one",
    "url": "this server's address as the nodes reach it; without it the address it has itself",
    "together": "`yes`: people who share this server trust each other, see below",
    "wait": "seconds that a gang waits for room in Ray before it is given up, from 5 to 86400",
    "lease": "seconds without a word from the server after which a worker ends, from 5 to 3600",
    "poll": "seconds between two looks at the cluster, from 0.2 to 60",
}
_ADDRESS = re.compile(r"(ray://)?[A-Za-z0-9][A-Za-z0-9.-]*:\d{1,5}|(ray://)?\[[0-9a-fA-F:]+\]:\d+")
_URL = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
_NUMBERS = (("poll", 0.2, 60.0), ("lease", 5.0, 3600.0), ("wait", 5.0, 86400.0))


def checked(given: Mapping[str, str]) -> dict[str, Any]:
    """As the engine takes them. Raises InvalidInput that names the option and what is allowed."""
    for key in given:
        if key not in KNOWN:
            raise InvalidInput(
                f"options.{key}: not known to a Ray engine", hint=f"one of {', '.join(KNOWN)}"
            )
    if "address" not in given:
        raise InvalidInput(
            "options.address: where the cluster is", hint="-s address=10.0.0.5:6379"
        )
    if given["address"] != LOCAL and not _ADDRESS.fullmatch(given["address"]):
        raise InvalidInput(
            "options.address: HOST:PORT, ray://HOST:PORT or local "
            f"(found {given['address'][:200]!r})"
        )
    if given["address"] == LOCAL and "token-file" in given:
        raise InvalidInput("options.token-file: a cluster of our own makes its token itself")
    found: dict[str, Any] = {"address": given["address"]}
    for key in ("python", "token-file"):
        if key in given:
            if not given[key].startswith("/") or "\0" in given[key]:
                raise InvalidInput(
                    f"options.{key}: a whole path, from / on (found {given[key][:200]!r})"
                )
            found[key.replace("-", "_")] = given[key]
    if "url" in given:
        if not _URL.fullmatch(given["url"]):
            raise InvalidInput(f"options.url: http://host:port (found {given['url']!r})")
        found["url"] = given["url"].rstrip("/")
    if "together" in given:
        if given["together"] not in ("yes", "no"):
            raise InvalidInput(f"options.together: yes or no (found {given['together'][:80]!r})")
        found["together"] = given["together"] == "yes"
    for key, least, most in _NUMBERS:
        if key in given:
            found[f"{key}_seconds"] = seconds(key, given[key], least, most)
    return found
