"""Any address that fsspec knows, as storage. fsspec is imported when there is one, and never else.

Keys and endpoints come from the server's environment, in the words of each driver's own
documentation (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS,
AZURE_STORAGE_CONNECTION_STRING; FSSPEC_<PROTOCOL>_<OPTION> for every other option). They are never
in an address: that one is shown to people, and would be in the list of processes.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator
from typing import Any

from windlass.core.errors import InvalidInput, NotFound, Unavailable
from windlass.server.storage.base import BLOCK, Listed

PACKAGES = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "webhdfs": "requests",
}
"""What each kind of address needs beside fsspec."""
_PATIENT: dict[str, dict[str, Any]] = {
    # A storage that hangs must end in an answer, not in as many threads as the server has.
    "s3": {
        "config_kwargs": {"connect_timeout": 5, "read_timeout": 15, "retries": {"max_attempts": 1}}
    },
}


class Remote:
    """Raises InvalidInput when a package is missing, or the address is of no known kind."""

    def __init__(self, url: str) -> None:
        protocol = url.partition("://")[0]
        try:
            import fsspec
        except ImportError as err:
            raise _missing(url, "fsspec") from err
        options = {"use_listings_cache": False, **_PATIENT.get(protocol, {})}
        try:
            self._files, self._root = fsspec.url_to_fs(url, **options)
        except ImportError as err:
            raise _missing(url, PACKAGES.get(protocol, protocol)) from err
        except Exception as err:  # an unknown kind; some drivers look for their keys here
            raise InvalidInput(f"--storage {url}: {err or type(err).__name__}") from err
        if hasattr(self._files, "retries"):
            self._files.retries = 2  # of s3fs, which would try five times: we try again too
        self._root = self._root.rstrip("/")
        self.url = url

    def put(self, key: str, opened: int, size: int) -> None:
        with self._explained(key):
            if size <= BLOCK:
                self._files.pipe_file(self._path(key), os.pread(opened, size, 0))
                return
            file = self._files.open(
                self._path(key), "wb", block_size=BLOCK, cache_type="none", autocommit=False
            )
            at = 0
            try:
                while at < size and (block := os.pread(opened, min(BLOCK, size - at), at)):
                    at += file.write(block)
                file.close()
                file.commit()
            except BaseException:
                with contextlib.suppress(Exception):
                    file.discard()  # the parts that are there: they would be paid for
                raise

    def read(self, key: str, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        with self._explained(key):
            found: bytes = self._files.cat_file(self._path(key), start=start, end=end)
            return found

    def size(self, key: str) -> int | None:
        try:
            with self._explained(key):
                about = self._files.info(self._path(key))
                return int(about["size"]) if about["type"] == "file" else None
        except NotFound:
            return None

    def remove(self, key: str) -> None:
        with contextlib.suppress(NotFound), self._explained(key):
            self._files.rm_file(self._path(key))

    def listing(self) -> Iterator[Listed]:
        with self._explained(""):
            try:
                found = self._files.find(self._root, detail=True)
            except FileNotFoundError:
                return
        for path, about in found.items():
            yield Listed(path[len(self._root) + 1 :], int(about["size"]), _changed_ms(about))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NotFound(f"{self.url} has no {key}") from None
        except Exception as err:  # each driver has errors of its own, and raises its network's too
            words = str(err) or type(err).__name__
            raise Unavailable(f"the storage {self.url} does not answer: {words}") from err


def _changed_ms(about: dict[str, Any]) -> int:
    """Each driver has its own word for it. Unknown: as new as can be, so that it stays."""
    for word in ("LastModified", "last_modified", "updated", "mtime", "modificationTime"):
        found = about.get(word)
        if isinstance(found, datetime.datetime):
            return int(found.timestamp() * 1000)
        if isinstance(found, str):
            with contextlib.suppress(ValueError):
                return int(datetime.datetime.fromisoformat(found).timestamp() * 1000)
        if isinstance(found, int | float):
            return int(found if word == "modificationTime" else found * 1000)
    return 2**62


def _missing(url: str, package: str) -> InvalidInput:
    return InvalidInput(
        f"--storage {url} needs the package {package}, which is not installed here",
        hint=f"pip install 'windlass[storage]' {package}".replace(" fsspec", ""),
    )
