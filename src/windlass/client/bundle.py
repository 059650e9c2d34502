"""The user's code as a list of files by content: unchanged files are not read or sent again.

`scan` walks a directory (regular files with names that can be sent, ignore files honoured) and
hashes what it does not know by (path, size, mtime, inode); the digest of the bundle is that of its
canonical manifest, as in docs/internals/protocol.md. `upload` sends the blobs that the server
lacks.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.client.http import Http, path_of
from windlass.client.ignore import ALWAYS, FILES, Included, Rule, rules, verdict
from windlass.client.places import cache_dir, data_dir, write_private
from windlass.core.errors import InvalidInput, TooLarge
from windlass.core.paths import wrong_code_path

MAX_BYTES = 512 * 2**20
MAX_FILES = 20_000
LARGE_BYTES = 64 * 2**20
"""A file over this is data, unless it is code by its name or was asked for."""
SETTLED_SECONDS = 2.0
"""A file changed more recently than this may change again within the same time stamp."""


@dataclass(frozen=True)
class File:
    path: str
    digest: str
    size: int
    mode: int


@dataclass(frozen=True)
class Bundle:
    root: Path
    files: tuple[File, ...]
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """What a script may look for and will not find: too large, or named by an ignore file."""
    made: Mapping[str, bytes] = field(default_factory=dict)
    """By path, files that lie nowhere: a notebook's script."""

    def read(self, path: str) -> bytes:
        made = self.made.get(path)
        return (self.root / path).read_bytes() if made is None else made

    @property
    def manifest(self) -> list[dict[str, Any]]:
        return [
            {"path": file.path, "digest": file.digest, "size": file.size, "mode": file.mode}
            for file in sorted(self.files, key=lambda file: file.path)
        ]

    @property
    def digest(self) -> str:
        text = json.dumps(self.manifest, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass
class _Walk:
    root: str
    max_files: int
    include: Included
    left_out: list[str] = field(default_factory=list)
    found: list[tuple[str, os.stat_result]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def directory(self, relative: str, known: list[Rule]) -> None:
        here = os.path.join(self.root, relative) if relative else self.root
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as err:
            self.notes.append(f"left out {relative or '.'}: {err.strerror}")
            return
        names = {entry.name for entry in entries}
        for name in FILES:
            if name in names:
                with open(os.path.join(here, name), encoding="utf-8", errors="replace") as file:
                    known = known + rules(file, relative)
        for entry in entries:
            path = f"{relative}/{entry.name}" if relative else entry.name
            self.entry(entry, path, known)

    def entry(self, entry: os.DirEntry[str], path: str, known: list[Rule]) -> None:
        is_link = entry.is_symlink()
        is_directory = entry.is_dir(follow_symlinks=False)
        said = verdict(path, is_directory, known)
        wanted = bool(self.include) and self.include.wants(path)
        if said and not wanted:
            if entry.name not in ALWAYS_NAMES:
                self.miss(path + "/" * is_directory)
            if is_directory and self.include.may_be_below(path):
                self.directory(path, [*known, _NOTHING_BELOW])
            return
        # Of a folder: as it would be for a file in it.
        reason = wrong_code_path(f"{path}/_" if is_directory else path)
        if reason:
            self.notes.append(f"left out {path!a}: {reason}")
            return
        if is_directory:
            self.directory(path, known)
            return
        try:
            if is_link and not self.link_inside(entry.path):
                self.notes.append(f"left out {path}: a link to a directory or out of the code")
                self.miss(path)
                return
            seen = os.stat(entry.path)
        except OSError as err:
            self.notes.append(f"left out {path}: {err.strerror}")
            return
        if not stat.S_ISREG(seen.st_mode):
            self.notes.append(f"left out {path}: not a regular file")
            return
        if seen.st_size > LARGE_BYTES and not (wanted or said is False or path.endswith(".py")):
            self.miss(path)
            self.notes.append(
                f"left out {path} ({_megabytes(seen.st_size)}): a file over "
                f"{LARGE_BYTES >> 20} MiB is seldom code; --include {shlex.quote(path)} sends it,"
                " --here runs in this folder as it is"
            )
            return
        self.found.append((path, seen))
        if len(self.found) > self.max_files:
            raise TooLarge(
                f"{self.root} has more than {self.max_files:,} files: is this only code?",
                hint=_NARROW + _folders(self.found),
            )

    def miss(self, path: str) -> None:
        if len(self.left_out) < MOST_LEFT_OUT and path.isprintable():
            self.left_out.append(path)

    def link_inside(self, path: str) -> bool:
        """A link to a file of the same tree travels as that file."""
        target = os.path.realpath(path)
        return os.path.isfile(target) and target.startswith(os.path.realpath(self.root) + os.sep)


ALWAYS_NAMES = frozenset(each.rstrip("/") for each in ALWAYS)
"""Of these nobody misses anything."""
MOST_LEFT_OUT = 100
_NOTHING_BELOW = rules(["*"])[0]
"""In a folder that is left out only what was asked for is looked for."""
_NARROW = "name the directory with --code DIR, or leave things out in .windlassignore; "


def scan(
    root: str | os.PathLike[str],
    *,
    ignore: Iterable[str] = (),
    include: Iterable[str] = (),
    made: Mapping[str, bytes] | None = None,
    max_bytes: int = MAX_BYTES,
    max_files: int = MAX_FILES,
) -> Bundle:
    """The bundle of a directory. Raises InvalidInput (no directory) or TooLarge."""
    base = Path(root).expanduser().absolute()
    if not base.is_dir():
        raise InvalidInput(f"code: {str(root)!r} is not a directory")
    if base == Path.home().absolute():
        raise TooLarge(
            f"the code directory is your home, {base}",
            hint="go to the code's own directory, or name it: --code DIR, or --no-code",
        )
    walk = _Walk(str(base), max_files, Included(include))
    walk.directory("", rules([*ALWAYS, *_own_data(base), *ignore]))
    total = sum(seen.st_size for _, seen in walk.found)
    if total > max_bytes:
        largest = sorted(walk.found, key=lambda item: -item[1].st_size)[:3]
        named = ", ".join(f"{path} ({_megabytes(seen.st_size)})" for path, seen in largest)
        raise TooLarge(
            f"the code in {base} is {_megabytes(total)}, more than {_megabytes(max_bytes)}; "
            f"the largest: {named}",
            hint=_NARROW + "--here runs in the folder as it is, on this machine",
        )
    memory = _Memory(base)
    files = tuple(
        File(path, memory.digest(path, seen), seen.st_size, _mode(seen))
        for path, seen in walk.found
        if path not in (made or {})
    )
    memory.save()
    files += tuple(
        File(path, hashlib.sha256(text).hexdigest(), len(text), 0o644)
        for path, text in (made or {}).items()
    )
    return Bundle(base, files, tuple(walk.notes), tuple(walk.left_out), made or {})


def _own_data(base: Path) -> list[str]:
    """A server's home below the code changes while it is read, and is nobody's code."""
    home = data_dir()
    return ["/" + home.relative_to(base).as_posix() + "/"] if base in home.parents else []


def upload(http: Http, bundle: Bundle) -> int:
    """Make the server have the bundle. Returns how many bytes were sent."""
    sent = 0
    paths = {file.digest: file for file in bundle.files}
    for _turn in range(3):
        missing = http.call("POST", "/bundles", body={"files": bundle.manifest}, repeatable=True)[
            "missing"
        ]
        if not missing:
            return sent
        for digest in missing:
            file = paths[digest]
            data = bundle.read(file.path)
            if hashlib.sha256(data).hexdigest() != digest:
                raise InvalidInput(f"{file.path} changed while it was sent: submit again")
            http.call("PUT", path_of("blobs", digest), data=data)
            sent += len(data)
    raise InvalidInput("the server still lacks parts of the code after three uploads")


class _Memory:
    """Digests of files already read, one small file per directory bundled."""

    def __init__(self, base: Path) -> None:
        name = hashlib.sha256(str(base).encode()).hexdigest()[:24]
        self._base = base
        self._path = cache_dir() / "hashes" / f"{name}.json"
        self._now = time.time()
        self._new: dict[str, list[Any]] = {}
        try:
            self._old = json.loads(self._path.read_text(encoding="utf-8"))
            assert isinstance(self._old, dict)
        except (OSError, ValueError, AssertionError):
            self._old = {}

    def digest(self, path: str, seen: os.stat_result) -> str:
        mark = [seen.st_size, seen.st_mtime_ns, seen.st_ino]
        old = self._old.get(path)
        if isinstance(old, list) and old[:3] == mark:
            self._new[path] = old
            return str(old[3])
        try:
            with open(self._base / path, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as err:
            raise InvalidInput(
                f"{path} cannot be read: {err.strerror}", hint="or leave it out: .windlassignore"
            ) from err
        if self._now - seen.st_mtime > SETTLED_SECONDS:
            self._new[path] = [*mark, found]
        return found

    def save(self) -> None:
        if self._new == self._old:
            return
        try:
            write_private(self._path, json.dumps(self._new, separators=(",", ":")))
        except OSError:
            pass  # only a cache: a read-only home must not stop a submit


def _mode(seen: os.stat_result) -> int:
    """Two modes only, so that a umask does not change the digest."""
    return 0o755 if seen.st_mode & 0o100 else 0o644


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _folders(found: list[tuple[str, os.stat_result]]) -> str:
    counts: dict[str, int] = {}
    for path, _ in found:
        top = path.split("/")[0]
        counts[top] = counts.get(top, 0) + 1
    most = sorted(counts.items(), key=lambda item: -item[1])[:3]
    return "most files: " + ", ".join(f"{name} ({count:,})" for name, count in most)
