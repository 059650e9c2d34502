"""Rows of people who are logged in, of links that log in once, and of logins that failed."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Integer, String, Table, UniqueConstraint

from windlass.server.store.metadata import Id, Millis, metadata

sessions = Table(
    "sessions",
    metadata,
    Column("id", Id, primary_key=True),
    # SHA-256 of what the browser holds: 256 random bits need no slow hash.
    Column("hash", String(64), nullable=False, unique=True),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False, index=True),
    Column("epoch", Integer, nullable=False),  # the user's when it was made
    Column("how", String(20), nullable=False),  # password | link | oidc
    Column("address", String(64), nullable=False),
    Column("browser", String(200), nullable=False),
    Column("created_ms", Millis, nullable=False),
    Column("seen_ms", Millis, nullable=False),
    Column("expires_ms", Millis, nullable=False),
)

login_links = Table(
    "login_links",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("purpose", String(20), nullable=False),  # browser | password | oidc
    Column("user_id", Id, ForeignKey("users.id"), index=True),  # None: a way back that was used
    Column("expires_ms", Millis, nullable=False, index=True),
)

login_attempts = Table(
    "login_attempts",
    metadata,
    Column("key", String(64), primary_key=True),  # an account's or an address's
    Column("count", Integer, nullable=False),
    Column("last_ms", Millis, nullable=False, index=True),
    Column("until_ms", Millis, nullable=False),
)

identities = Table(
    "identities",
    metadata,
    # Who another issuer's accounts are here. `value` is what an administrator writes (a mail
    # address); `subject` is what the issuer gives to nobody else, known from the first login.
    Column("issuer", String(500), primary_key=True),
    Column("value", String(255), primary_key=True),
    Column("subject", String(255)),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False, index=True),
    Column("created_ms", Millis, nullable=False),
    UniqueConstraint("issuer", "subject"),
)
