"""A folder as storage: another disk, or one that several machines mount."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from windlass.core.errors import NotFound, Unavailable
from windlass.server.storage.base import BLOCK, Listed

_DRAFT = ".draft-"


class Folder:
    def __init__(self, root: Path) -> None:
        self.url = str(root)
        self._root = root

    def put(self, key: str, opened: int, size: int) -> None:
        final = self._root / key
        draft = final.with_name(_DRAFT + secrets.token_hex(8))
        with self._explained():
            final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                with open(draft, "xb", 0) as out:
                    at = 0
                    while at < size and (block := os.pread(opened, min(BLOCK, size - at), at)):
                        at += out.write(block)
                    os.fsync(out.fileno())
                os.rename(draft, final)
            finally:
                draft.unlink(missing_ok=True)
            self._settle(final.parent)

    def _settle(self, folder: Path) -> None:
        """Bring the name to the disk, and those of folders that may be new."""
        while True:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
            if folder == self._root:
                return
            folder = folder.parent

    def read(self, key: str, start: int, end: int) -> bytes:
        with self._explained():
            try:
                with open(self._root / key, "rb", 0) as file:
                    return os.pread(file.fileno(), end - start, start)
            except FileNotFoundError:
                raise NotFound(f"{self.url} has no {key}") from None

    def size(self, key: str) -> int | None:
        with self._explained():
            try:
                about = (self._root / key).stat()
                return about.st_size if stat.S_ISREG(about.st_mode) else None
            except FileNotFoundError:
                return None

    def remove(self, key: str) -> None:
        with self._explained():
            (self._root / key).unlink(missing_ok=True)
        for folder in (self._root / key).parents:
            if folder == self._root:
                break
            with contextlib.suppress(OSError):
                folder.rmdir()  # where it is empty

    def listing(self) -> Iterator[Listed]:
        with self._explained():
            for folder, _, names in os.walk(self._root):
                for name in names:
                    path = Path(folder, name)
                    with contextlib.suppress(FileNotFoundError):
                        about = path.stat()
                        key = path.relative_to(self._root).as_posix()
                        yield Listed(key, about.st_size, about.st_mtime_ns // 1_000_000)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """A mount that is away shows an empty folder: never taken for one without files."""
        if not self._root.is_dir():
            raise Unavailable(f"the storage {self.url} is not there: is it mounted?")
        try:
            yield
        except OSError as err:
            raise Unavailable(f"the storage {self.url} fails: {err}") from err
