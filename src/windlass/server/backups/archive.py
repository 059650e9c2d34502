"""One file with everything in it: a tar, so that anybody can look inside, read and written as a
stream. Its last member, `manifest.json`, tells size and SHA-256 of every other: an archive that
was cut short has none, and one that was changed does not agree with it.

    database/windlass.db, database/tracking.db   or   database/windlass.dump (PostgreSQL)
    home/…                                       files, as they lie in the home
    secrets/…                                    only when they were asked for
    manifest.json
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import secrets
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from windlass.core.errors import Conflict, InvalidInput

MANIFEST = "manifest.json"
FORMAT = 1
_BLOCK = 1 << 20
_LARGEST_MANIFEST = 1 << 30


class Entry(BaseModel):
    size: int
    sha256: str


class Manifest(BaseModel):
    """What an archive holds, and of what it was made."""

    model_config = ConfigDict(extra="ignore")

    format: int = FORMAT
    windlass: str
    """The version that wrote it."""
    revision: str
    """Of the database's schema."""
    database: str
    """sqlite | postgresql."""
    made: str
    home: str
    """Where it lay: rows name paths below it."""
    secrets: bool
    outputs: bool
    stored: int = 0
    """Files that lie in the server's storage, and so not in here."""
    left_out: list[str] = []
    """What could not be read, or changed while it was."""
    files: dict[str, Entry] = {}


class Writer:
    """Adds files to an archive. Made by `writing`."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self.files: dict[str, Entry] = {}
        self.left_out: list[str] = []

    def add(self, path: Path, name: str) -> None:
        """A plain file. One that is gone, or cannot be read, is named in `left_out`; of one that
        grows (a log) what was there at first is taken."""
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0) as file:
                self._copy(cast("IO[bytes]", file), name, path)
        except OSError as err:
            self.left_out.append(f"{name}: {err.strerror or err}")

    def _copy(self, file: IO[bytes], name: str, path: Path) -> None:
        status = os.fstat(file.fileno())
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = status.st_size, status.st_mtime, status.st_mode & 0o700
        source = _Hashing(file, status.st_size)
        self._tar.addfile(info, cast("IO[bytes]", source))
        if source.short:  # the archive goes on, and says that this one is not to be used
            self.left_out.append(f"{name}: it became shorter while it was read")
            return
        self.files[name] = Entry(size=status.st_size, sha256=source.digest.hexdigest())

    def finish(self, manifest: Manifest) -> Manifest:
        whole = manifest.model_copy(update={"files": self.files, "left_out": self.left_out})
        content = whole.model_dump_json(indent=1).encode()
        info = tarfile.TarInfo(MANIFEST)
        info.size, info.mode = len(content), 0o600
        self._tar.addfile(info, io.BytesIO(content))
        return whole


class _Hashing:
    """The first `size` bytes of a file; zeros where it has become shorter."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size
        self.digest = hashlib.sha256()
        self.short = False

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        found = b"" if self.short else self._read(wanted)
        if len(found) < wanted:
            self.short = True
            found += bytes(wanted - len(found))
        self._left -= wanted
        self.digest.update(found)
        return found

    def _read(self, wanted: int) -> bytes:
        parts = []
        while wanted and (part := self._file.read(wanted)):
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)


@contextmanager
def writing(file: Path) -> Iterator[Writer]:
    """The archive stands under its name once all of it is on the disk, and not before. Compressed
    when the name ends in `.gz`. Raises Conflict when there is such a file."""
    if os.path.lexists(file):
        raise Conflict(f"{file} is there already", hint="give the backup another name")
    draft = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            with _compressed(out, file.suffix == ".gz") as stream:
                with tarfile.open(
                    fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_BLOCK
                ) as tar:
                    yield Writer(tar)
            out.flush()
            os.fsync(out.fileno())
        os.link(draft, file)  # unlike a rename, never over another
        sync_folder(file.parent)
    except FileExistsError:
        raise Conflict(f"{file} is there already", hint="give the backup another name") from None
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _compressed(out: IO[bytes], wanted: bool) -> Iterator[IO[bytes]]:
    if not wanted:
        yield out
        return
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) as stream:
        yield cast("IO[bytes]", stream)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check(file: Path) -> Manifest:
    """Read all of it and compare every digest. Raises InvalidInput, and Conflict for an archive
    of another form."""
    found: dict[str, Entry] = {}
    manifest: Manifest | None = None
    with _told(file):
        for info, content in _members(file):
            if manifest is not None:
                raise _bad(file, f"{info.name} comes after its manifest")
            if info.name == MANIFEST:
                manifest = _manifest(file, info, content)
            else:
                _check_name(file, info)
                found[info.name] = Entry(size=info.size, sha256=_digest(content))
    if manifest is None:
        raise _bad(file, "it was cut short: its manifest, which comes last, is not there")
    for name, entry in manifest.files.items():
        if name not in found:
            raise _bad(file, f"{name} is not in it")
        if found[name] != entry:
            raise _bad(file, f"{name} was changed: its digest is not the one that was noted")
    return manifest


def extract(file: Path, manifest: Manifest, folder: Path) -> None:
    """All that the manifest names, into an empty folder; each file is compared once more."""
    with _told(file):
        for info, content in _members(file):
            entry = manifest.files.get(info.name)
            if entry is None:
                continue
            _check_name(file, info)
            if _unpack(info, content, folder / info.name) != entry.sha256:
                raise _bad(file, f"{info.name} was changed while it was read")


def _unpack(info: tarfile.TarInfo, content: IO[bytes], path: Path) -> str:
    """The digest of what was written."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    seen = hashlib.sha256()
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, info.mode & 0o700 | 0o600)
    with open(opened, "wb") as out:
        while block := content.read(_BLOCK):
            seen.update(block)
            out.write(block)
        out.flush()
        os.fsync(out.fileno())
    os.utime(path, (info.mtime, info.mtime))
    return seen.hexdigest()


def _members(file: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    try:
        opened = open(file, "rb")
    except OSError as err:
        raise InvalidInput(f"{file} cannot be read: {err.strerror or err}") from err
    with opened, tarfile.open(fileobj=opened, mode="r|*", bufsize=_BLOCK) as tar:
        for info in tar:
            content = tar.extractfile(info) if info.isreg() else None
            if content is None:
                raise _bad(file, f"{info.name} is not a plain file")
            yield info, content


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """What reading an archive raises when it is none, or not all of one, in our words."""
    try:
        yield
    except (EOFError, tarfile.ReadError) as err:
        raise _bad(file, f"it was cut short, or is none at all ({err})") from err
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error) as err:
        raise _bad(file, str(err)) from err


def _manifest(file: Path, info: tarfile.TarInfo, content: IO[bytes]) -> Manifest:
    if info.size > _LARGEST_MANIFEST:
        raise _bad(file, "its manifest is too large")
    try:
        told: Any = json.loads(content.read())
        if isinstance(told, dict) and told.get("format") != FORMAT:
            raise Conflict(
                f"{file} has the form {told.get('format')!r}; this Windlass reads {FORMAT}",
                hint=f"restore it with the version that wrote it: {told.get('windlass')}",
            )
        return Manifest.model_validate(told)
    except (ValueError, ValidationError) as err:
        raise _bad(file, "its manifest cannot be read") from err


def _check_name(file: Path, info: tarfile.TarInfo) -> None:
    parts = info.name.split("/")
    if parts[0] not in ("database", "home", "secrets") or {"", ".", ".."} & set(parts):
        raise _bad(file, f"{info.name!r} has no place in a home")


def _digest(content: IO[bytes]) -> str:
    seen = hashlib.sha256()
    while block := content.read(_BLOCK):
        seen.update(block)
    return seen.hexdigest()


def _bad(file: Path, why: str) -> InvalidInput:
    return InvalidInput(
        f"{file} is not a whole backup: {why}", hint="nothing was restored; take another one"
    )
