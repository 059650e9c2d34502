"""A job's code in a git repository: which addresses and refs may be asked for.

The address is written down by the server and opened by the worker alone, in the job's own
isolation: nobody makes the server call an address of their choice. What is refused here git would
mostly refuse too; but neither may ever be an option, another transport, or a password that
everybody who sees the job can read.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

SCHEMES = ("https", "http", "ssh", "file")
COMMIT = r"^([0-9a-f]{40}|[0-9a-f]{64})$"
_HOST = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$|^\[[0-9A-Fa-f:.]+\]$")
_USER = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")
_SCP = re.compile(r"^(?P<user>[\w.-]+@)?(?P<host>[\w.-]+):(?P<path>[^/:].*)$")
_UNFIT = re.compile(r"^\+|[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)")
_MOST = 255


def split(text: str) -> tuple[str, str | None]:
    """`URL#REF` as (URL, REF)."""
    url, mark, ref = text.partition("#")
    return url, ref if mark else None


def check_url(url: str) -> str:
    """The same, when it may be asked for. Raises ValueError with the reason and what to do."""
    known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
    if re.search(r"[\x00-\x20\x7f]", url) or not url.isascii():
        raise ValueError("a repository's address is of plain letters, without spaces")
    scheme, mark, _ = url.partition("://")
    if not mark or scheme not in SCHEMES:
        short = _SCP.match(url)
        as_url = short and f"ssh://{short['user'] or ''}{short['host']}/{short['path']}"
        instead = f"; write {as_url}" if as_url and "::" not in url else ""
        raise ValueError(f"a repository's address begins with {known}{instead}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as err:
        raise ValueError(f"not an address: {err}") from None
    if parts.query or parts.fragment or "#" in url:
        raise ValueError(
            "a repository's address has no `?` and no `#`: "
            "the branch, tag or commit goes into `ref`"
        )
    who, at, place = parts.netloc.rpartition("@")
    if at and (scheme != "ssh" or ":" in who):
        raise ValueError(
            "a name or password in the address would be shown to everybody who sees the job: "
            "leave it out"
        )
    if scheme == "file":
        if place or not parts.path.startswith("/"):
            raise ValueError("a file address is file:///absolute/path")
    elif not _HOST.match(_without_port(place, port)) or (at and not _USER.match(who)):
        raise ValueError("an address names a host")
    if parts.path.strip("/") == "":
        raise ValueError("an address names a repository on its host")
    return url


def check_ref(ref: str) -> str:
    """The same, when git could have such a branch, tag or commit. Raises ValueError."""
    if (
        not 0 < len(ref) <= _MOST
        or ref[0] in "-/."
        or ref[-1] in "/."
        or ref == "@"
        or _UNFIT.search(ref)
    ):
        raise ValueError("a ref is a branch, a tag or a commit, such as main, v1.2 or 3f2a…")
    return ref


def _without_port(place: str, port: int | None) -> str:
    return place if port is None else place.rpartition(":")[0]
