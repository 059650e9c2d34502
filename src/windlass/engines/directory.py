"""The directory of one worker: `<home>/attempts/<attempt id>/<node>/`.

Its files are those of docs/internals/protocol.md. Beside them the engine keeps `spawn.json`:
first "a start is under way", then whom it started. It lets a later engine tell a worker that is
slow from one that died before it could take its lock, and is measured on the boot clock, so that
a wall clock that jumps declares nobody dead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.core.errors import InvalidInput
from windlass.engines import needs
from windlass.engines.base import NodeLaunch
from windlass.engines.processes import Identity, boot_id, boot_seconds
from windlass.engines.removal import remove_tree

_ATTEMPT_ID = re.compile(r"[0-9a-f]{32}")
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_RECORD_BYTES = 16 * 2**20
_RESERVE_BYTES = 16384
_RESERVE_BYTES_A_RANK = 8192


@dataclass(frozen=True)
class Directory:
    """One worker's directory; it may not exist. Raises InvalidInput for names that are not
    plain, so that no path can lead out of `attempts/`."""

    attempts: Path
    attempt_id: str
    node: str

    def __post_init__(self) -> None:
        check_attempt_id(self.attempt_id)
        if not _NODE_NAME.fullmatch(self.node):
            raise InvalidInput(
                f"{self.node!r} is no node's name", hint="letters, digits, '.', '_', '-'"
            )

    @property
    def path(self) -> Path:
        return self.attempts / self.attempt_id / self.node

    def exists(self) -> bool:
        return self.path.is_dir() and not self.path.is_symlink()

    def create(self, worker: NodeLaunch) -> bool:
        """Lay the directory down whole, or not at all. False when it was there already."""
        parent = self.path.parent
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = parent / f".new-{secrets.token_hex(8)}"
        fresh.mkdir(mode=0o700)
        try:
            _write(fresh / "launch.json", json.dumps(worker.launch).encode(), 0o600)
            _write(fresh / "token", worker.token.encode(), 0o400)
            _write(fresh / "spawn.json", _spawn_mark(None), 0o600)
            _write(fresh / "lock", b"", 0o600)
            if not worker.launch.get("mirror"):  # else its record comes over the network
                _reserve(fresh / "exit.reserve", _ranks_of(worker))
            fresh.rename(self.path)
        except OSError as err:
            _discard(fresh)
            if err.errno in (errno.EEXIST, errno.ENOTEMPTY):
                return False
            raise
        return True

    def renew(self, worker: NodeLaunch) -> None:
        """The same content again, for a start that a crash cut short."""
        _replace(self.path / "token", worker.token.encode(), 0o400)
        _replace(self.path / "launch.json", json.dumps(worker.launch).encode(), 0o600)
        self.mark_spawned(None)

    def mark_spawned(self, identity: Identity | None) -> None:
        """`None`: a start is under way. Never synced: after a reboot the boot id tells all."""
        _replace(self.path / "spawn.json", _spawn_mark(identity), 0o600)

    def sync(self) -> None:
        """What was laid down survives a power cut from here on."""
        for path in (self.path / "launch.json", self.path / "token"):
            _fsync(path)
        for path in (self.path, self.path.parent, self.attempts):
            _fsync(path)

    def spawn_mark(self) -> dict[str, Any] | None:
        return _read_json(self.path / "spawn.json")

    def laid_seconds(self) -> float:
        """How long ago a start was last begun here: by the wall clock only where this machine
        was restarted since. Infinite when nobody knows."""
        laid = _seconds_since(self.spawn_mark())
        if laid == math.inf:
            with contextlib.suppress(OSError):
                return abs(time.time() - os.stat(self.path / "spawn.json").st_mtime)
        return laid

    def fenced_seconds(self) -> float:
        """Put up the fence, which tells a worker that reaches its files to end, unless it stands;
        how long it has stood. Counted anew where its first moment cannot be told."""
        fence = self.path / "fence"
        stood = _seconds_since(_read_json(fence))
        if stood == math.inf:
            _replace(fence, _boot_mark(), 0o600)
            return 0.0
        return stood

    def worker(self) -> Identity | None:
        return Identity.read(_read_json(self.path / "worker.json"))

    def has_worker_file(self) -> bool:
        return os.path.lexists(self.path / "worker.json")

    def record(self) -> dict[str, Any] | None:
        """The exit record, if it is one of this attempt; a worker that could not read its
        `launch.json` leaves the id empty."""
        record = _read_json(self.path / "exit.json")
        if record is None or record.get("attempt_id") not in (self.attempt_id, ""):
            return None
        return record

    def put_aside_broken_record(self) -> bool:
        """An `exit.json` that is no record would keep a true one from being written."""
        if self.record() is not None or not os.path.lexists(self.path / "exit.json"):
            return False
        aside = self.path / f"exit.json.broken-{secrets.token_hex(4)}"
        (self.path / "exit.json").rename(aside)
        return True

    def is_locked(self) -> bool:
        """Whether the worker holds its lock. A shared lock, tried and given back at once: two
        who look do not see each other, and a worker that starts just now tries again."""
        try:
            lock = os.open(self.lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as err:
            if needs.of(err):
                raise  # we could not look: that is no sign of its death
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # Not left to close(): a child that is just being forked has a copy of this descriptor.
            fcntl.flock(lock, fcntl.LOCK_UN)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(lock)

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    def last_words(self) -> str:
        """The last line the worker itself printed, for the reason of an early death."""
        with contextlib.suppress(OSError):
            with open(self.path / "worker.log", "rb", opener=_open_no_follow) as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - 4096))
                lines = log.read(4096).decode("utf-8", "replace").split("\n")
            return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
        return ""


def is_attempt_id(text: str) -> bool:
    return _ATTEMPT_ID.fullmatch(text) is not None


def check_attempt_id(attempt_id: str) -> None:
    if not is_attempt_id(attempt_id):
        raise InvalidInput(f"{attempt_id!r} is no attempt's id", hint="32 hexadecimal digits")


def every(attempts: Path, engine: str = "local") -> Iterator[Directory]:
    """Each worker directory of an engine below `attempts`; anything else there is none of ours."""
    for attempt_id in _directories_in(attempts):
        if _ATTEMPT_ID.fullmatch(attempt_id) and owner(attempts, attempt_id) == engine:
            yield from of_attempt(attempts, attempt_id)


def unfinished(attempts: Path, engine: str, over: set[str]) -> Iterator[Directory]:
    """The same without the attempts in `over`, for who looks again and again. Another engine's
    are put there: they never become ours."""
    for attempt_id in _directories_in(attempts):
        if attempt_id in over or not _ATTEMPT_ID.fullmatch(attempt_id):
            continue
        places = list(of_attempt(attempts, attempt_id))
        if owner(attempts, attempt_id) == engine:
            yield from places
        elif places:  # an attempt is claimed before anything is laid down
            over.add(attempt_id)


def owner(attempts: Path, attempt_id: str) -> str:
    """The engine that runs an attempt; the local one leaves no mark."""
    try:
        return (attempts / attempt_id / "engine").read_text().strip()
    except OSError:
        return "local"


def claim(attempts: Path, attempt_id: str, engine: str) -> None:
    """Before anything else of the attempt is laid down."""
    check_attempt_id(attempt_id)
    parent = attempts / attempt_id
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if owner(attempts, attempt_id) != engine:
        _replace(parent / "engine", engine.encode(), 0o600)


def of_attempt(attempts: Path, attempt_id: str) -> Iterator[Directory]:
    check_attempt_id(attempt_id)
    for node in _directories_in(attempts / attempt_id):
        if _NODE_NAME.fullmatch(node):
            yield Directory(attempts, attempt_id, node)


def remove_attempt(attempts: Path, attempt_id: str) -> None:
    """Remove an attempt's files. A crash half-way leaves nothing that looks like an attempt;
    `sweep` removes the rest."""
    check_attempt_id(attempt_id)
    parent = os.open(attempts, os.O_RDONLY | os.O_DIRECTORY)
    try:
        trash = f".trash-{attempt_id}-{secrets.token_hex(4)}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(attempt_id, trash, src_dir_fd=parent, dst_dir_fd=parent)
            remove_tree(trash, parent)
    finally:
        os.close(parent)


def remove_worker(place: Directory) -> None:
    """Remove one worker's directory, of which nothing runs."""
    _discard(place.path)


def sweep(attempts: Path) -> None:
    """Remove what an interrupted removal or start left behind."""
    parent = os.open(attempts, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.listdir(parent):
            if name.startswith(".trash-"):
                with contextlib.suppress(OSError):
                    remove_tree(name, parent)
            elif _ATTEMPT_ID.fullmatch(name):
                for half in (attempts / name).glob(".new-*"):
                    _discard(half)
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=parent)
    finally:
        os.close(parent)


def _directories_in(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _spawn_mark(identity: Identity | None) -> bytes:
    return _boot_mark(
        pid=identity.pid if identity else None,
        start_time=identity.start_time if identity else None,
    )


def _boot_mark(**more: int | None) -> bytes:
    """Now, on a clock that a step of the wall clock does not move."""
    mark = {"boot_id": boot_id(), "boot_seconds": boot_seconds(), **more}
    return json.dumps(mark).encode()


def _seconds_since(mark: Mapping[str, Any] | None) -> float:
    since = (mark or {}).get("boot_seconds")
    if (mark or {}).get("boot_id") != boot_id() or not isinstance(since, (int, float)):
        return math.inf
    return max(0.0, boot_seconds() - since)


def _write(path: Path, content: bytes, mode: int) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(opened, "wb") as file:
        file.write(content)


def _reserve(path: Path, ranks: int) -> None:
    """Blocks for the exit record, so that a disk which is full by then takes it all the same. The
    worker writes it in place (`windlass.worker.record`)."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        size = _RESERVE_BYTES + _RESERVE_BYTES_A_RANK * ranks
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(opened, 0, size)
        else:
            os.write(opened, bytes(size))
    finally:
        os.close(opened)


def _ranks_of(worker: NodeLaunch) -> int:
    return sum(int(member.get("nproc") or 1) for member in worker.launch.get("members", ()))


def _replace(path: Path, content: bytes, mode: int) -> None:
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        _write(fresh, content, mode)
        fresh.rename(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def _fsync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            remove_tree(path.name, parent)
        finally:
            os.close(parent)


def _read_json(path: Path) -> dict[str, Any] | None:
    """A small JSON object that we or a worker of ours wrote; None for anything else: a link, a
    pipe, another user's file, a torn or outsized one. Raises OSError when this process has too
    little left to look."""
    try:
        with open(path, "rb", opener=_open_no_follow) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                return None
            content = file.read(_MAX_RECORD_BYTES + 1)
        if len(content) > _MAX_RECORD_BYTES:
            return None
        value = json.loads(content, parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as err:
        if needs.of(err):
            raise  # we could not look: that is no sign that it is not there
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _open_no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
