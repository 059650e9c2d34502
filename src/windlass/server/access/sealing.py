"""Secrets at rest: AES-256-GCM under a key that is never in the database.

An HMAC needs the secret itself, so secret keys cannot be hashed. Each is sealed with a
key-encryption key (KEK) from a file of mode 0600; a row names the KEK that sealed it, so that
two can live side by side while one is replaced. What a secret belongs to is bound to it as
associated data: a sealed secret copied to another row does not open.

The file holds one KEK a line, `<id> <64 hex digits>`; the first line seals, all of them open. A
new one is put before the others (`add_kek`), rows are sealed anew with it (`rekey.py`), and the
old ones go when no row needs them (`drop_keks`). The file is always whole: each step writes
another and renames it. A server that meets a row whose KEK it does not know reads it again.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from windlass.core.errors import Internal

_LINE = re.compile(r"([0-9a-f]{8}) ([0-9a-f]{64})")
_NONCE_BYTES = 12


class Sealer:
    """Seals with the first key, opens with any. Made by `load`."""

    def __init__(
        self, keys: dict[str, bytes], read: Callable[[], dict[str, bytes]] | None = None
    ) -> None:
        self._read = read
        self._take(keys)

    def _take(self, keys: dict[str, bytes]) -> None:
        self._ciphers = {kek: AESGCM(key) for kek, key in keys.items()}
        self.kek = next(iter(keys))

    @property
    def keks(self) -> tuple[str, ...]:
        """The ids of all, the one that seals first."""
        return tuple(self._ciphers)

    def reload(self) -> None:
        """See what the file holds now: another server may have changed it."""
        if self._read is not None:
            self._take(self._read())

    def seal(self, secret: str, *belongs_to: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        bound = _bound(belongs_to)
        return nonce + self._ciphers[self.kek].encrypt(nonce, secret.encode(), bound)

    def opens(self, sealed: bytes, kek: str, *belongs_to: str) -> bool:
        """Whether this one KEK opens it, whatever the row says."""
        try:
            nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            self._ciphers[kek].decrypt(nonce, body, _bound(belongs_to))
        except InvalidTag:
            return False
        return True

    def unseal(self, sealed: bytes, kek: str, *belongs_to: str) -> str:
        """Raises `Internal` when the KEK is not here or the bytes are not what was sealed."""
        if kek not in self._ciphers:
            self.reload()
        ciphers = self._ciphers
        if kek not in ciphers:
            raise Internal(
                f"a secret was sealed with the key-encryption key {kek}, which is not here",
                hint=f"bring back the key file; known: {', '.join(ciphers)}",
            )
        nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        bound = _bound(belongs_to)
        # The named one first. While one replaces another, a row that was written at that very
        # moment may name the wrong one: none opens what another has sealed, so trying is safe.
        for name in (kek, *(other for other in ciphers if other != kek)):
            try:
                return ciphers[name].decrypt(nonce, body, bound).decode()
            except InvalidTag:
                continue
        raise Internal("a sealed secret does not open: it was changed or moved")


def load(path: Path) -> Sealer:
    """The KEKs in `path`; a new one is made when there is no file yet.

    Refuses a file that others than its owner can read. Two servers that start at once agree:
    the file appears whole, and only once.
    """
    if not path.exists():
        _create(path)
    return Sealer(_keys_in(path), lambda: _keys_in(path))


def add_kek(path: Path) -> str:
    """A new KEK, which seals from now on; those before still open. Its id."""
    with _locked(path):
        known = _keys_in(path)
        kek = secrets.token_hex(4)
        while kek in known:
            kek = secrets.token_hex(4)
        _write(path, {kek: os.urandom(32), **known})
    return kek


def drop_keks(path: Path, gone: Sequence[str]) -> None:
    """Take KEKs out of the file, never the one that seals: what they sealed is lost."""
    with _locked(path):
        known = _keys_in(path)
        first = next(iter(known))
        left = {kek: key for kek, key in known.items() if kek == first or kek not in gone}
        _write(path, left)


def _keys_in(path: Path) -> dict[str, bytes]:
    mode = path.stat().st_mode & 0o777
    if os.name == "posix" and mode & 0o077:
        raise Internal(
            f"{path} is readable by others (mode {mode:o})", hint=f"chmod 600 {path}, then again"
        )
    keys: dict[str, bytes] = {}
    for line in path.read_text(encoding="ascii", errors="replace").splitlines():
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise Internal(f"{path} is not a key file: each line is `<8 hex> <64 hex>`")
        keys[found[1]] = bytes.fromhex(found[2])
    if not keys:
        raise Internal(f"{path} holds no key-encryption key")
    return keys


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = _draft(path, {secrets.token_hex(4): os.urandom(32)})
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another server was first: its key is the one
    finally:
        draft.unlink()
    _settle(path.parent)


def _write(path: Path, keys: dict[str, bytes]) -> None:
    real = path.resolve()  # it may be a link to the file that several servers share
    draft = _draft(real, keys)
    try:
        os.replace(draft, real)
    finally:
        draft.unlink(missing_ok=True)
    _settle(real.parent)


def _draft(path: Path, keys: dict[str, bytes]) -> Path:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.writelines(f"{kek} {key.hex()}\n" for kek, key in keys.items())
        file.flush()
        os.fsync(file.fileno())
    return draft


def _settle(folder: Path) -> None:
    parent = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One change of the file at a time, whichever server makes it."""
    beside = path.resolve().with_name(f".{path.name}.lock")
    handle = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _bound(belongs_to: tuple[str, ...]) -> bytes:
    return b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in belongs_to)
