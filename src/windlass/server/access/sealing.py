"""Secrets at rest: AES-256-GCM under a key that is never in the database.

An HMAC needs the secret itself, so secret keys cannot be hashed. Each is sealed with a
key-encryption key (KEK) from a file of mode 0600; a row names the KEK that sealed it, so that
two can live side by side while one is replaced. What a secret belongs to is bound to it as
associated data: a sealed secret copied to another row does not open.

The file holds one KEK a line, `<id> <64 hex digits>`; the first line seals, all of them open.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from windlass.core.errors import Internal

_LINE = re.compile(r"([0-9a-f]{8}) ([0-9a-f]{64})")
_NONCE_BYTES = 12


class Sealer:
    """Seals with the first key, opens with any. Made by `load`."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        self.kek = next(iter(keys))
        self._ciphers = {kek: AESGCM(key) for kek, key in keys.items()}

    def seal(self, secret: str, *belongs_to: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        bound = _bound(belongs_to)
        return nonce + self._ciphers[self.kek].encrypt(nonce, secret.encode(), bound)

    def unseal(self, sealed: bytes, kek: str, *belongs_to: str) -> str:
        """Raises `Internal` when the KEK is not here or the bytes are not what was sealed."""
        cipher = self._ciphers.get(kek)
        if cipher is None:
            raise Internal(
                f"a secret was sealed with the key-encryption key {kek}, which is not here",
                hint=f"bring back the key file; known: {', '.join(self._ciphers)}",
            )
        try:
            nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            return cipher.decrypt(nonce, body, _bound(belongs_to)).decode()
        except InvalidTag:
            raise Internal("a sealed secret does not open: it was changed or moved") from None


def load(path: Path) -> Sealer:
    """The KEKs in `path`; a new one is made when there is no file yet.

    Refuses a file that others than its owner can read. Two servers that start at once agree:
    the file appears whole, and only once.
    """
    if not path.exists():
        _create(path)
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
    return Sealer(keys)


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_hex(4)} {secrets.token_hex(32)}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # another server was first: its key is the one
    finally:
        draft.unlink()
    parent = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _bound(belongs_to: tuple[str, ...]) -> bytes:
    return b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in belongs_to)
