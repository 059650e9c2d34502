"""Being logged in, from the user's side: sessions of browsers, passwords, links."""

from __future__ import annotations

from typing import Any

from windlass.client.http import Http, path_of


class Sessions:
    def __init__(self, http: Http) -> None:
        self._http = http

    def who(self) -> dict[str, Any]:
        """Who calls: user, roles, rights."""
        return dict(self._http.get("/session"))

    def list(self) -> list[dict[str, Any]]:
        """One's own, the one used last first."""
        return [dict(item) for item in self._http.get("/sessions")["items"]]

    def end(self, session_id: str) -> None:
        """Dead at once. Raises NotFound."""
        self._http.call("DELETE", path_of("sessions", session_id), repeatable=False)

    def end_all(self) -> None:
        self._http.call("DELETE", "/sessions", repeatable=False)

    def link(self) -> dict[str, Any]:
        """An address that logs a browser in, once, within a minute: `url`, `expires`."""
        return dict(self._http.call("POST", "/sessions/links", body={}))

    def set_password(self, new: str, old: str | None = None) -> None:
        """One's own; all sessions and tokens end. Raises InvalidInput for one that is too easy,
        Forbidden when the old one is wrong."""
        body = {"new": new} if old is None else {"new": new, "old": old}
        self._http.call("PUT", "/password", body=body, repeatable=False)

    def password_link(self, user: str) -> dict[str, Any]:
        """An address where that user sets a new password, once: `url`, `expires`. For
        administrators."""
        return dict(self._http.call("POST", path_of("users", user, "password-link"), body={}))

    def identify(self, user: str, value: str) -> None:
        """Say which account of the OpenID issuer is this user. For administrators."""
        self._http.call("PUT", path_of("users", user, "identity"), body={"value": value})
