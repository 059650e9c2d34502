"""Logging in, as it goes over HTTP."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from windlass.core.strict import Line, Name, Strict

Secret = Annotated[Line, Field(min_length=1, max_length=1024)]
"""A password or a link."""


class _Hidden(Strict):
    """A body with a secret in it: no answer repeats what was sent."""

    model_config = ConfigDict(hide_input_in_errors=True)


class Nothing(Strict):
    """`{}`: there is nothing to choose."""


class LoginBody(_Hidden):
    user: Name
    password: Secret


class KeyLoginBody(_Hidden):
    """For a program of the user: it gets a key of its own instead of a session."""

    user: Name
    password: Secret
    name: Name
    """What the key is called: the machine's name."""
    project: Name | None = None


class LinkBody(_Hidden):
    link: Secret


class NewPasswordBody(_Hidden):
    """From a link that an administrator made."""

    link: Secret
    password: Secret


class PasswordBody(_Hidden):
    old: Secret | None = None
    """Needed when there is one."""
    new: Secret


class IdentityBody(Strict):
    """Which account of the OpenID issuer is this user."""

    value: Annotated[Line, Field(min_length=1, max_length=255)]


class SessionView(Strict):
    id: str
    how: str
    address: str
    browser: str
    created: str
    seen: str
    expires: str
    current: bool


class SessionPage(Strict):
    items: tuple[SessionView, ...]


class WhoView(Strict):
    """Who calls, and with what."""

    user: str
    kind: str
    role: str | None
    """In the organisation."""
    project: str | None
    project_role: str | None
    rights: tuple[str, ...]
    has_password: bool
    session: SessionView | None
    """None: the call came with a key or a token."""
    header: str
    """What a page must send with each call that changes something, whatever its value."""


class LinkView(Strict):
    """An address that is good once."""

    url: str
    expires: str


class NewKeyView(Strict):
    access_key: str
    secret_key: str
    user: str
    project: str
    name: str


class WaysView(Strict):
    """How one can log in here."""

    password: bool
    oidc: str | None
    """The issuer's name, when there is one."""
