"""From an address to the storage there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from windlass.core.errors import InvalidInput
from windlass.server.storage.base import Storage
from windlass.server.storage.folder import Folder
from windlass.server.storage.remote import PACKAGES, Remote

KINDS = ", ".join(f"{kind}://" for kind in ("file", *PACKAGES))


def check(url: str) -> None:
    """Raises InvalidInput for what is no address of a storage."""
    parts = urlsplit(url)
    if not parts.scheme and not url.startswith("/"):
        raise InvalidInput(f"--storage {url}: an absolute folder, or an address with {KINDS}")
    if parts.username or parts.password or parts.query:
        raise InvalidInput(
            f"--storage {parts.scheme}://…: keys and options do not belong into the address",
            hint="set them in the server's environment: docs/how-to/storage.md",
        )


def open_storage(url: str) -> Storage:
    """Raises InvalidInput; that the other side answers is seen when it is needed."""
    check(url)
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return Folder(Path(parts.path or "/"))
    return Remote(url)
