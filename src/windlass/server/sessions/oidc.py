"""Another issuer's word on who somebody is: OpenID Connect, authorization code with PKCE.

    /login/oidc ──► the issuer's page ──► /login/oidc/back?code&state
      state, nonce and verifier             the code is changed for an ID token, server to server
      stay in a sealed cookie               whose signature and claims are checked here

The ID token never reaches the browser, which gets a session like any other. What is trusted is
the issuer's key set, fetched from the issuer, and algorithms that have a private half: a token
that names another algorithm, or brings or points to a key of its own, is refused.

Authlib does the protocol. It speaks through `requests`, so everything here runs in threads, a few
at a time, and of its own: an issuer that hangs holds up nobody else's.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from windlass.core.errors import Internal, Unauthenticated, Unavailable
from windlass.server.settings import Oidc

T = TypeVar("T")

ALGORITHMS = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC"}
"""Those taken, with the kind of key each needs. None of them works with a shared secret."""
SCOPE = "openid email profile"
LEEWAY_SECONDS = 60
TIMEOUT_SECONDS = 10.0
KEEP_SECONDS = 600.0
AGAIN_SECONDS = 10.0
"""A key that is not in the set is looked for in a newer one, but not more often than this."""
AT_ONCE, MAX_WAITING = 4, 64
MAX_BYTES = 1 << 20
_LEAST_RSA_BITS = 2048

_REFUSED = "the issuer's word on who you are is not to be believed"


@dataclass(frozen=True, slots=True)
class Journey:
    """What must come back as it went."""

    state: str
    nonce: str
    verifier: str

    @staticmethod
    def new() -> Journey:
        return Journey(*(secrets.token_urlsafe(32) for _ in range(3)))


class Issuer:
    """One issuer. Raises Unauthenticated when it, or who claims to come from it, is not to be
    believed, and Unavailable when it cannot be asked."""

    def __init__(self, settings: Oidc, back: str, now: Callable[[], float] = time.time) -> None:
        """`back`: the address that the issuer sends browsers back to."""
        try:
            import authlib  # noqa: F401
            import requests  # noqa: F401
        except ImportError as err:
            raise Internal(
                "--oidc-issuer needs more packages", hint="pip install 'windlass[oidc]'"
            ) from err
        self.settings = settings
        self._back = back
        self._now = now
        self._lock = threading.Lock()
        self._about: dict[str, Any] | None = None
        self._keys: list[Any] = []
        self._fetched = float("-inf")
        self._threads = ThreadPoolExecutor(AT_ONCE, "oidc")
        self._waiting = 0

    async def leave(self, journey: Journey) -> str:
        """The address of the issuer's page, for this journey."""
        return await self._in_turn(lambda: self._leave(journey))

    async def arrive(self, journey: Journey, state: str, code: str, iss: str) -> dict[str, Any]:
        """The checked claims of who came back."""
        if not hmac.compare_digest(journey.state.encode(), state.encode()):
            raise Unauthenticated(_REFUSED, hint="log in again, in one window")
        if iss and iss != self.settings.issuer:
            raise Unauthenticated(_REFUSED)
        return await self._in_turn(lambda: self._arrive(journey, code))

    async def _in_turn(self, work: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise Unavailable("too many people log in at this moment", retry_after_seconds=5)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def _leave(self, journey: Journey) -> str:
        about, _ = self._known()
        with self._client() as client:
            url, _ = client.create_authorization_url(
                about["authorization_endpoint"], state=journey.state, nonce=journey.nonce,
                code_verifier=journey.verifier,
            )  # fmt: skip
        return str(url)

    def _arrive(self, journey: Journey, code: str) -> dict[str, Any]:
        import requests
        from authlib.integrations.base_client import OAuthError

        about, _ = self._known()
        try:
            with self._client() as client:
                answer = client.fetch_token(
                    about["token_endpoint"], grant_type="authorization_code", code=code,
                    code_verifier=journey.verifier, timeout=TIMEOUT_SECONDS,
                    allow_redirects=False,
                )  # fmt: skip
        except OAuthError as err:
            raise Unauthenticated(f"the issuer refused: {err.error}") from err
        except (requests.RequestException, ValueError) as err:
            raise Unavailable("the issuer does not answer as it should") from err
        token = answer.get("id_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or len(token) > MAX_BYTES:
            raise Unauthenticated(_REFUSED)
        return self.check(token, journey.nonce, str(answer.get("access_token") or ""))

    def check(self, token: str, nonce: str, access_token: str = "") -> dict[str, Any]:
        """The claims of an ID token of this issuer, for us, for this journey, and of now."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import JoseError

        header = _header(token)
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS or "crit" in header:
            raise Unauthenticated(_REFUSED)
        ours = self.settings.client_id
        try:
            found = jwt.decode(token, self._key(header, algorithm), algorithms=[algorithm])
            claims = CodeIDToken(
                found.claims, found.header,
                {"iss": {"essential": True, "value": self.settings.issuer},
                 "aud": {"essential": True, "value": ours},
                 "sub": {"essential": True}},
                {"nonce": nonce, "client_id": ours, "access_token": access_token},
            )  # fmt: skip
            claims.validate(now=int(self._now()), leeway=LEEWAY_SECONDS)
        except (JoseError, ValueError, TypeError, KeyError) as err:
            raise Unauthenticated(_REFUSED) from err
        return dict(claims)

    def _key(self, header: dict[str, Any], algorithm: str) -> Any:
        """The issuer's key that the token names; the only one of its kind when it names none."""
        for newer in (False, True):
            _, keys = self._known(newer)
            fitting = [key for key in keys if key.key_type == ALGORITHMS[algorithm]]
            if "kid" in header:
                fitting = [key for key in fitting if key.kid == header["kid"]]
            if len(fitting) == 1:
                return fitting[0]
        raise Unauthenticated(_REFUSED)

    def _known(self, newer: bool = False) -> tuple[dict[str, Any], list[Any]]:
        """What the issuer says of itself, and its keys, at most ten minutes old."""
        with self._lock:
            age = time.monotonic() - self._fetched
            if self._about is None or age > (AGAIN_SECONDS if newer else KEEP_SECONDS):
                self._about, self._keys = self._fetch()
                self._fetched = time.monotonic()
            return self._about, self._keys

    def _fetch(self) -> tuple[dict[str, Any], list[Any]]:
        issuer = self.settings.issuer
        about = _get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if about.get("issuer") != issuer:
            raise Unauthenticated(f"{issuer} says that it is another")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            _check_address(about.get(name), name)
        return about, _keys(_get(about["jwks_uri"]))

    def _client(self) -> Any:
        from authlib.integrations.requests_client import OAuth2Session

        return OAuth2Session(
            self.settings.client_id, self.settings.client_secret, scope=SCOPE,
            redirect_uri=self._back, code_challenge_method="S256",
        )  # fmt: skip


def _header(token: str) -> dict[str, Any]:
    """What a token says of itself: only good for refusing it."""
    from joserfc.errors import JoseError
    from joserfc.jws import extract_compact

    try:
        found = extract_compact(token.encode("ascii")).headers()
    except (JoseError, ValueError, TypeError) as err:
        raise Unauthenticated(_REFUSED) from err
    return dict(found)


def _keys(told: dict[str, Any]) -> list[Any]:
    """The keys of a set that can only check; secrets, small and broken ones are left out."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    found: list[Any] = []
    listed = told.get("keys")
    for raw in listed if isinstance(listed, list) else ():
        if not isinstance(raw, dict) or raw.get("kty") not in ALGORITHMS.values():
            continue
        if raw.get("use", "sig") != "sig":
            continue
        try:
            key: Any = import_key({k: v for k, v in raw.items() if k != "alg"})
            if raw["kty"] == "RSA" and key.raw_value.key_size < _LEAST_RSA_BITS:
                continue
            found.append(key)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    return found


def _get(url: str) -> dict[str, Any]:
    import requests

    try:
        with requests.get(
            url, timeout=TIMEOUT_SECONDS, allow_redirects=False, stream=True
        ) as answer:
            answer.raise_for_status()
            body = answer.raw.read(MAX_BYTES + 1, decode_content=True)
        if answer.status_code != 200 or len(body) > MAX_BYTES:
            raise ValueError(f"{answer.status_code}, {len(body)} bytes")
        found = json.loads(body)
    except (requests.RequestException, ValueError, OSError) as err:
        raise Unavailable("the issuer does not answer as it should") from err
    if not isinstance(found, dict):
        raise Unavailable("the issuer does not answer as it should")
    return found


def _check_address(address: object, name: str) -> None:
    """Only over TLS, or on this machine."""
    parts = urlsplit(address if isinstance(address, str) else "")
    near = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if not parts.hostname or not (parts.scheme == "https" or (near and parts.scheme == "http")):
        raise Unauthenticated(f"the issuer's {name} is not an address to be trusted")
