"""Passwords: argon2id, in a thread, a few at a time, and the same work for a name nobody has.

A hash takes 64 MiB and a good part of a second of a core: that is its purpose, and it would be a
way to stop the server. So no more than two are computed at once, a bounded number waits, and who
comes after that is told to try later. How often one may guess at all is `attempts.py`.
"""

from __future__ import annotations

import asyncio
import secrets
import unicodedata
from collections.abc import Callable
from typing import Any, TypeVar

from windlass.core.errors import InvalidInput, Unavailable

T = TypeVar("T")

LEAST, MOST = 10, 256
AT_ONCE = 2
MAX_WAITING = 64

_REFUSED = frozenset(
    "1234567890 0123456789 0987654321 123456789a 12345678910 123123123123 1q2w3e4r5t 1qaz2wsx3edc"
    " administrator adminadmin admin12345 admin123456 changeme123 changemenow defaultpassword"
    " helloworld iloveyou123 letmein123 letmeinnow mypassword p@ssw0rd123 passw0rd123 password01"
    " password12 password123 password1234 password12345 passwordpassword princess123 qwerty1234"
    " qwerty12345 qwerty123456 qwertyuiop qwertyuiop123 secretsecret sunshine123 superman123"
    " testpassword trustno1trustno1 welcome123 welcome1234 windlass123 windlass1234"
    " windlasswindlass zaq12wsxcde3".split()
)
_FEW = 5


def check_new(password: str, user: str) -> str:
    """The password in the one form that is kept; `InvalidInput` when it is too easy."""
    clean = _same(password)
    if not LEAST <= len(clean) <= MOST:
        raise InvalidInput(f"password: from {LEAST} to {MOST} characters")
    plain = clean.casefold()
    if plain in _REFUSED or len(set(plain)) < _FEW:
        raise InvalidInput("password: this one is among the first that are tried")
    if len(user) > 3 and user.casefold() in plain and len(plain) < len(user) + 6:
        raise InvalidInput("password: not the user's name with a little added")
    return clean


class Passwords:
    """Hashes and checks. One per server."""

    def __init__(self, **cost: Any) -> None:
        """`cost`: other than the library's (RFC 9106, low memory), for tests."""
        self._cost = cost
        self._hasher: Any = None
        self._decoy = ""
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Raises `Unavailable` when too many wait."""
        return await self._in_turn(lambda: str(self._hasher.hash(_same(password))))

    async def verify(self, password: str, known: str | None) -> bool:
        """Whether it is the one that was hashed. Without a hash: no, after the same time."""
        return await self._in_turn(lambda: self._verify(password, known))

    def outdated(self, known: str) -> bool:
        """Whether it was made at another cost than today's, and should be made again."""
        return self._hasher is not None and bool(self._hasher.check_needs_rehash(known))

    def _verify(self, password: str, known: str | None) -> bool:
        from argon2.exceptions import InvalidHashError, VerificationError

        try:
            self._hasher.verify(known or self._decoy, _same(password))
        except (VerificationError, InvalidHashError):
            return False
        return known is not None

    async def _in_turn(self, work: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise Unavailable("too many people log in at this moment", retry_after_seconds=5)
        self._waiting += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(self._loaded, work)
        finally:
            self._waiting -= 1

    def _loaded(self, work: Callable[[], T]) -> T:
        if self._hasher is None:
            from argon2 import PasswordHasher  # a server where nobody logs in does without

            hasher = PasswordHasher(**self._cost)
            self._decoy = hasher.hash(secrets.token_hex(16))
            self._hasher = hasher
        return work()


def _same(password: str) -> str:
    """One form for what looks the same: keyboards differ in how they compose letters."""
    return unicodedata.normalize("NFKC", password)
