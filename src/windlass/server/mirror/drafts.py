"""A checkpoint on its way from a worker: announced by its manifest, sent file by file, kept when
all of it is there and every digest holds.

    jobs/<job>/checkpoints/.tmp-<attempt>-0-mirror-<digest>/
        <digest of a file>-<its bytes>      as much of it as has come
        tree/                               all files by their names, just before the rename

Files are named by what they hold until they are all there, so no path of a manifest is a place on
the disk before it was checked, and a file that is there twice comes once. The name begins as
those do that are no checkpoint yet: whoever reads the folder passes it over. A file that one of
the last checkpoints has too is taken from there and does not come again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.core.errors import InvalidInput, NotFound
from windlass.core.paths import MAX_PART_BYTES, plain_path
from windlass.core.reports import CheckpointNote
from windlass.engines.removal import remove_tree
from windlass.server.checkpoints import files
from windlass.server.mirror import landing

_DRAFT = re.compile(r"\.tmp-(\d+)-0-mirror-[0-9a-f]{64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 20
_LOOKED_AT = 3
"""So many of the newest checkpoints may have a file already."""
_RANK = re.compile(r"rank-\d+")


@dataclass(frozen=True)
class Part:
    """A file by what it holds."""

    digest: str
    bytes: int

    @property
    def name(self) -> str:
        return f"{self.digest}-{self.bytes}"


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of. `own` is the path that a script's own files are loaded by;
    None: the writer of `windlass.job` made it."""

    attempt: int
    step: int
    digest: str
    own: str | None
    entries: tuple[tuple[str, Part], ...]
    text: bytes

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(dict.fromkeys(part for _, part in self.entries))

    @property
    def name(self) -> str:
        """Its path below the job's folder."""
        return self.own or f"step-{self.step:012d}-{self.attempt:06d}"

    def note(self, folder: Path) -> CheckpointNote:
        """As it is registered."""
        tops = {path.split("/")[0] for path, _ in self.entries}
        return CheckpointNote(
            attempt=self.attempt,
            step=self.step,
            path=str(folder / self.name),
            digest=self.digest,
            bytes=sum(part.bytes for _, part in self.entries),
            ranks=0 if self.own else len([top for top in tops if _RANK.fullmatch(top)]),
            source="files" if self.own else "windlass",
        )


def read(found: dict[str, Any]) -> Manifest:
    """A manifest as `job/manifest.py` and the worker's noticing write it. Raises InvalidInput."""
    try:
        own = found.get("path")
        listed = found["files"]
        if not 1 <= len(listed) <= files.MAX_FILES:
            raise InvalidInput(f"manifest.files: from 1 to {files.MAX_FILES} files")
        entries = tuple(_entry(each) for each in listed)
        canonical = json.dumps(
            sorted(listed, key=lambda each: str(each["path"])),
            sort_keys=True,
            separators=(",", ":"),
        )
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        if digest != found["digest"]:
            raise InvalidInput("manifest.digest: not that of its list of files")
        named = {path for path, _ in entries}
        if len(named) != len(entries):
            raise InvalidInput("manifest.files: a path is there twice")
        for path in named:
            parts = path.split("/")
            if any("/".join(parts[:depth]) in named for depth in range(1, len(parts))):
                raise InvalidInput(f"manifest.files: {path!a} lies below another file")
            if any(len(part.encode()) > MAX_PART_BYTES for part in parts):
                raise InvalidInput(f"manifest.files: a name in {path!a} is too long")
        made = Manifest(
            _count(found, "attempt"),
            _count(found, "step"),
            digest,
            None if own is None else _own_path(own),
            entries,
            json.dumps(found, indent=1).encode(),
        )
    except (KeyError, TypeError, AttributeError) as err:
        raise InvalidInput(f"manifest: api, attempt, step, files, digest ({err!r})") from err
    if made.own is None and any(path == "manifest.json" for path, _ in entries):
        raise InvalidInput("manifest.files: manifest.json is the platform's own")
    if made.own is not None:
        for path, _ in entries:
            _own_path(path)
    return made


def missing(folder: Path, attempt: int, wanted: Manifest) -> list[tuple[Part, int]] | None:
    """Which files must still come, and how much of each is there; None: it is kept already. What
    attempts before this one left unfinished goes."""
    _sweep(folder, attempt)
    if _is_kept(folder, wanted):
        return None
    place = _place(folder, attempt, wanted.digest)
    if not place.is_dir():
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _take_known(folder, place, wanted)
    found = []
    for part in wanted.parts:
        opened = os.open(place / part.name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            size = os.fstat(opened).st_size
        finally:
            os.close(opened)
        if size < part.bytes:
            found.append((part, size))
    return found


def append(folder: Path, attempt: int, digest: str, part: Part, offset: int, data: bytes) -> int:
    """More of one of its files; how many bytes are there now. Raises NotFound for a file, or a
    checkpoint, that was not announced."""
    place = _place(folder, attempt, digest)
    if not (place / part.name).is_file():
        raise NotFound(f"no file {part.digest[:12]} of {part.bytes} bytes was announced")
    return landing.append(place, (part.name,), offset, data, most=part.bytes)


def keep(folder: Path, attempt: int, wanted: Manifest) -> list[Part]:
    """Make it a checkpoint, on the disk when this returns. Files whose digest differs are dropped
    and returned: they must come again. Raises InvalidInput when another one has its name."""
    place = _place(folder, attempt, wanted.digest)
    with _turn(place):
        if _is_kept(folder, wanted):
            return []
        wrong = [part for part in wanted.parts if not _holds(place / part.name, part)]
        for part in wrong:
            (place / part.name).unlink(missing_ok=True)
        if wrong:
            return wrong
        if wanted.own is None:
            _lay_tree(folder, place, wanted)
        else:
            _lay_files(folder, place, wanted)
    _remove(folder, place.name)
    return []


def _take_known(folder: Path, place: Path, wanted: Manifest) -> None:
    """Files that did not change since: their digests are checked with all others in the end."""
    named = sorted(
        (name for name in os.listdir(folder) if files.OWN.fullmatch(name)),
        key=lambda name: tuple(reversed(name.split("-"))),
    )
    needed = set(wanted.parts)
    for name in named[-_LOOKED_AT:]:
        with contextlib.suppress(NotFound):
            root, entries = files.manifest(folder, str(folder / name))
            for entry in entries:
                part = Part(entry["digest"], entry["bytes"])
                if part in needed and part.bytes:
                    with contextlib.suppress(OSError):
                        os.link(root / entry["path"], place / part.name, follow_symlinks=False)
                        needed.discard(part)


def _lay_tree(folder: Path, place: Path, wanted: Manifest) -> None:
    final, tree = folder / wanted.name, place / "tree"
    if final.exists():
        raise InvalidInput(f"manifest: {wanted.name} was saved before, with other files")
    _remove(place, tree.name)
    tree.mkdir(mode=0o700)
    for path, part in wanted.entries:
        target = tree / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _name_again(place / part.name, target)
    _write(tree / "manifest.json", wanted.text)
    for inner, _, _ in os.walk(tree, topdown=False):
        _sync(Path(inner))
    os.rename(tree, final)
    _sync(folder)


def _lay_files(folder: Path, place: Path, wanted: Manifest) -> None:
    """Over what a script wrote to the same places before; the manifest last."""
    for path, part in wanted.entries:
        parts = path.split("/")
        target = _folders(folder, parts[:-1]) / parts[-1]
        fresh = place / "fresh"
        fresh.unlink(missing_ok=True)
        _name_again(place / part.name, fresh)
        os.replace(fresh, target)
        _sync(target.parent)
    noticed = _folders(folder, [files.NOTICED])
    which = hashlib.sha256(wanted.name.encode()).hexdigest()[:8]
    name = f"step-{wanted.step:012d}-{wanted.attempt:06d}-{which}.json"
    fresh = place / "fresh"
    fresh.unlink(missing_ok=True)
    _write(fresh, wanted.text)
    os.replace(fresh, noticed / name)
    _sync(noticed)


def _folders(root: Path, parts: Sequence[str]) -> Path:
    for part in parts:
        root = root / part
        with contextlib.suppress(FileExistsError):
            root.mkdir(mode=0o700)
        if root.is_symlink() or not root.is_dir():
            raise InvalidInput(f"manifest: {part!r} is no folder here")
    return root


def _is_kept(folder: Path, wanted: Manifest) -> bool:
    try:
        _, entries = files.manifest(folder, str(folder / wanted.name))
    except NotFound:
        return False
    have = {(each["path"], each["digest"], each["bytes"]) for each in entries}
    if have != {(path, part.digest, part.bytes) for path, part in wanted.entries}:
        return False
    return wanted.own is None or all(_holds(folder / path, part) for path, part in wanted.entries)


def _holds(path: Path, part: Part) -> bool:
    """Whether a file is what it should be; if so it is on the disk."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            return digest == part.digest and file.tell() == part.bytes
    except OSError:
        return False


def _name_again(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links, or too many of them
        with open(source, "rb") as file, open(target, "xb") as copy:
            while block := file.read(_BLOCK):
                copy.write(block)
            copy.flush()
            os.fsync(copy.fileno())


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    opened = os.open(folder, landing.FOLDER)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def _turn(place: Path) -> Iterator[None]:
    """One at a time: a call that was given up may be at work still, here or in another server."""
    try:
        opened = os.open(place, landing.FOLDER)
    except FileNotFoundError:
        yield  # it was kept meanwhile, or nothing of it has come
        return
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _sweep(folder: Path, attempt: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            found = _DRAFT.fullmatch(name)
            if found and int(found[1]) < attempt:
                _remove(folder, name)


def _remove(folder: Path, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        parent = os.open(folder, landing.FOLDER)
        try:
            remove_tree(name, parent)
        finally:
            os.close(parent)


def _place(folder: Path, attempt: int, digest: str) -> Path:
    return folder / f".tmp-{attempt}-0-mirror-{digest}"


def _entry(found: dict[str, Any]) -> tuple[str, Part]:
    digest, size = found["digest"], found["bytes"]
    if set(found) != {"path", "bytes", "digest"}:
        raise InvalidInput("manifest.files: each has path, bytes, digest and nothing else")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InvalidInput(f"manifest.files.digest: 64 hex digits (found {ascii(digest)[:80]})")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**62:
        raise InvalidInput(f"manifest.files.bytes: a size (found {ascii(size)[:40]})")
    if not isinstance(found["path"], str):
        raise InvalidInput("manifest.files.path: text")
    return plain_path(found["path"], "manifest.files.path"), Part(digest, size)


def _own_path(path: Any) -> str:
    """Of a script's own files: anything but our own names."""
    if not isinstance(path, str):
        raise InvalidInput("manifest.path: text")
    first = plain_path(path, "manifest.path").split("/")[0]
    if first.startswith(".") or files.OWN.fullmatch(first):
        raise InvalidInput(f"manifest.path: {first!r} is a name of the platform's own")
    return path


def _count(found: dict[str, Any], name: str) -> int:
    value = found[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise InvalidInput(f"manifest.{name}: a number from 0 (found {ascii(value)[:40]})")
    return value
