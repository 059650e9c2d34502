"""Signed requests: AWS Signature Version 4 in form, with our own prefix.

The form is AWS's so that stock tools sign for us:

    curl --aws-sigv4 "wl:wl:local:windlass" --user AK:SK http://127.0.0.1:7400/api/v1/jobs

The secret never travels. What is signed is the method, the path as it was sent (nobody decodes
it a second time), the query, the host, the date, and always the SHA-256 of the body:

    canonical request          string to sign            signature
    ┌──────────────────┐       ┌───────────────────┐
    │ POST             │       │ WL4-HMAC-SHA256   │     HMAC(key, string to sign), where
    │ /api/v1/jobs     │       │ 20261115T085540Z  │     key = HMAC(HMAC(HMAC(HMAC("WL4" + SK,
    │ a=1&b=2          │ sha256│ 20261115/local/   │            date), "local"), "windlass"),
    │ host:127.0.0.1   │──────▶│  windlass/        │            "wl4_request")
    │ x-wl-date:2026…  │       │  wl4_request      │
    │                  │       │ <hash>            │     so it is the same for a whole day and
    │ host;x-wl-date   │       └───────────────────┘     costs nothing once cached.
    │ <hash of body>   │
    └──────────────────┘

Two things differ from one client to the next and are taken both ways: curl 7.88 does not sort
the query before it signs, and does not send the body's hash as a header. All work is on bytes,
because a header's bytes are what both ends have in common.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from calendar import timegm
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from time import gmtime, strftime
from typing import NamedTuple
from urllib.parse import urlsplit

from windlass.core.errors import ClockSkew, Unauthenticated

WINDOW_MS = 300_000
"""How far a signature's date may be from the server's clock, either way."""

EMPTY_HASH = hashlib.sha256(b"").hexdigest()
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_MUST_SIGN = frozenset({b"content-type", b"idempotency-key"})
"""Headers that change what a call means: signed whenever they are there, as are all `x-wl-*`."""


@dataclass(frozen=True, eq=False)
class Scheme:
    """The names in the form. AWS's own differ in these alone, which is what the tests compare."""

    provider: str
    header: str
    region: str
    service: str

    @cached_property
    def algorithm(self) -> str:
        return f"{self.provider.upper()}4-HMAC-SHA256"

    @cached_property
    def terminator(self) -> str:
        return f"{self.provider.lower()}4_request"

    def scope(self, date: str) -> str:
        return f"{date}/{self.region}/{self.service}/{self.terminator}"


WINDLASS = Scheme("wl", "wl", "local", "windlass")

_AUTHORIZATION = re.compile(
    rb"WL4-HMAC-SHA256 +Credential=([A-Za-z0-9]{2,64})/([0-9]{8})/local/windlass/wl4_request, *"
    rb"SignedHeaders=([a-z0-9;_-]{1,2048}), *Signature=([0-9a-f]{64})"
)


class Claim(NamedTuple):
    """What an Authorization header says, before any of it is believed."""

    access_key: str
    date: bytes
    signed: bytes
    """The names of the signed headers, as sent: `host;x-wl-date`."""
    signature: str


class SignedParts(NamedTuple):
    """A request as it came over the wire: raw bytes, header names in lower case."""

    method: str
    path: bytes
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]


class Checked(NamedTuple):
    """A claim and its request once all that needs no secret is in order."""

    claim: Claim
    parts: SignedParts
    headers: list[tuple[bytes, bytes]]
    """The signed ones, in order."""
    timestamp: str
    expires_ms: int
    """When the signature falls out of the window: until then a used one is remembered."""
    content_hash: str | None
    """The body's hash as the caller gave it."""


def sign(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    access_key: str,
    secret_key: str,
    now_ms: int,
    nonce: str | None = None,
) -> dict[str, str]:
    """The headers to add to a request that is sent exactly as given (`url` fully encoded). Of a
    body that is not at hand, `headers` names the hash (`X-Wl-Content-Sha256`).

    A request that changes something gets a random `X-Wl-Nonce`: the server takes each such
    signature once, and two equal calls in one second would otherwise have the same one. So a
    retry must be signed again (with the same idempotency key).
    """
    parts = urlsplit(url)
    timestamp = strftime("%Y%m%dT%H%M%SZ", gmtime(now_ms // 1000))
    given = {name.lower(): value for name, value in headers.items()}
    added = {"X-Wl-Date": timestamp}
    if body:
        added["X-Wl-Content-Sha256"] = hashlib.sha256(body).hexdigest()
    if method.upper() not in SAFE_METHODS:
        added["X-Wl-Nonce"] = nonce if nonce is not None else secrets.token_hex(8)
    lines = {
        name.encode(): value.encode()
        for name, value in given.items()
        if name.encode() in _MUST_SIGN or name.startswith("x-wl-")
    }
    lines[b"host"] = given.get("host", parts.netloc.rpartition("@")[2]).encode()
    lines.update((name.lower().encode(), value.encode()) for name, value in added.items())
    ordered = sorted(lines.items())
    signature = signature_of(
        WINDLASS,
        secret_key,
        timestamp,
        canonical_request(
            method.upper().encode(),
            (parts.path or "/").encode(),
            sorted_query(parts.query.encode()),
            ordered,
            lines.get(b"x-wl-content-sha256", EMPTY_HASH.encode()),
        ),
    )
    added["Authorization"] = (
        f"{WINDLASS.algorithm} Credential={access_key}/{WINDLASS.scope(timestamp[:8])}, "
        f"SignedHeaders={b';'.join(name for name, _ in ordered).decode()}, Signature={signature}"
    )
    return added


def parse(authorization: bytes) -> Claim | None:
    """The claim in an Authorization header; None when it is not of this form."""
    found = _AUTHORIZATION.fullmatch(authorization)
    if found is None:
        return None
    key, date, signed, signature = found.groups()
    return Claim(key.decode(), date, signed, signature.decode())


def check(claim: Claim, parts: SignedParts, now_ms: int) -> Checked:
    """Judge all that needs no secret, and so says nothing about keys.

    Raises `ClockSkew` (with the server's time, so that a client can correct itself once) and
    `Unauthenticated` when something that must be signed is not.
    """
    names, among = _signed_names(claim.signed)
    values: dict[bytes, bytes] = {}
    for name, value in parts.headers:
        if name in among:
            values[name] = values[name] + b"," + value if name in values else value
        elif name in _MUST_SIGN or name.startswith(b"x-wl-"):
            raise Unauthenticated(f"the header {name.decode('latin-1')} must be signed")
    if len(values) != len(names):
        missing = next(name for name in names if name not in values)
        raise Unauthenticated(f"the signed header {missing.decode()} is not there")
    stamp = values[b"x-wl-date"]
    at_ms = _time_ms(stamp)
    if at_ms is None or stamp[:8] != claim.date:
        raise Unauthenticated("X-Wl-Date must be like 20261115T085540Z and match the credential")
    if abs(now_ms - at_ms) > WINDOW_MS:
        raise ClockSkew(
            f"signed {abs(now_ms - at_ms) // 1000} s away from the server's clock",
            hint="set this machine's clock; the window is 5 minutes",
            server_time_ms=now_ms,
        )
    content_hash = values.get(b"x-wl-content-sha256")
    return Checked(
        claim,
        parts,
        [(name, values[name]) for name in names],
        stamp.decode(),
        at_ms + WINDOW_MS + 1000,
        None if content_hash is None else content_hash.decode("latin-1").strip().lower(),
    )


def verify(checked: Checked, secret_key: str, payload_hash: str) -> bool:
    """Whether `secret_key` made this signature over a body of this hash.

    Takes as long for a wrong signature as for a right one of the same form.
    """
    claim, parts, headers, timestamp, _, _ = checked
    method, hashed = parts.method.encode(), payload_hash.encode()
    query = sorted_query(parts.query)
    request = canonical_request(method, parts.path, query, headers, hashed)
    expected = signature_of(WINDLASS, secret_key, timestamp, request)
    matched = hmac.compare_digest(expected, claim.signature)
    if query != parts.query:
        request = canonical_request(method, parts.path, parts.query, headers, hashed)
        expected = signature_of(WINDLASS, secret_key, timestamp, request)
        matched |= hmac.compare_digest(expected, claim.signature)
    return matched


def canonical_request(
    method: bytes,
    path: bytes,
    query: bytes,
    headers: Sequence[tuple[bytes, bytes]],
    payload_hash: bytes,
) -> bytes:
    """The request in the one form both ends hash; `headers` are sorted by their lower names."""
    lines = [method, path, query]
    lines += [name + b":" + b" ".join(value.split()) for name, value in headers]
    lines += [b"", b";".join([name for name, _ in headers]), payload_hash]
    return b"\n".join(lines)


def sorted_query(query: bytes) -> bytes:
    """The pairs in order, each with its `=`; nothing is decoded."""
    if not query or (b"&" not in query and b"=" in query):
        return query
    pairs = sorted(pair.partition(b"=")[::2] for pair in query.split(b"&"))
    return b"&".join([key + b"=" + value for key, value in pairs])


def signature_of(scheme: Scheme, secret_key: str, timestamp: str, request: bytes) -> str:
    date = timestamp[:8]
    hashed = hashlib.sha256(request).hexdigest()
    text = f"{scheme.algorithm}\n{timestamp}\n{scheme.scope(date)}\n{hashed}"
    keyed = signing_key(scheme, secret_key, date).copy()
    keyed.update(text.encode())
    return keyed.hexdigest()


@lru_cache(maxsize=1024)
def signing_key(scheme: Scheme, secret_key: str, date: str) -> hmac.HMAC:
    """The key of one day, set up in an HMAC to be copied: four HMACs, spent once.

    A copy costs a third of starting from the key's bytes; the cached one is never updated.
    """
    key = f"{scheme.provider.upper()}4{secret_key}".encode()
    for word in (date, scheme.region, scheme.service, scheme.terminator):
        key = hmac.digest(key, word.encode(), "sha256")
    return hmac.new(key, digestmod="sha256")


@lru_cache(maxsize=256)
def _signed_names(signed: bytes) -> tuple[tuple[bytes, ...], frozenset[bytes]]:
    names = tuple(signed.split(b";"))
    if list(names) != sorted(set(names)):
        raise Unauthenticated("SignedHeaders must be sorted and unique")
    for name in (b"host", b"x-wl-date"):
        if name not in names:
            raise Unauthenticated(f"the header {name.decode()} must be signed")
    return names, frozenset(names)


@lru_cache(maxsize=256)
def _time_ms(timestamp: bytes) -> int | None:
    found = re.fullmatch(rb"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z", timestamp)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups())
    if not (1970 <= year <= 9998 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    if hour > 23 or minute > 59 or second > 60:
        return None
    return timegm((year, month, day, hour, minute, second)) * 1000
