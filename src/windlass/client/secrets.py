"""Secrets from the user's side: set, list, remove. No call gives a value back."""

from __future__ import annotations

from typing import Any

from windlass.client.http import Http, path_of


class Secrets:
    """`own`: the user's alone; else the project's, for the jobs of all its members."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> list[dict[str, Any]]:
        """`{"name", "own", "version", "changed", "changed_by"}` of each."""
        found: list[dict[str, Any]] = self._http.get("/secrets")["items"]
        return found

    def set(self, name: str, value: str, *, own: bool = False) -> dict[str, Any]:
        """Make it, or give it another value: the next attempt of a job gets it."""
        path = _path(name, own)
        found: dict[str, Any] = self._http.call("PUT", path, body={"value": value})
        return found

    def delete(self, name: str, *, own: bool = False) -> None:
        """Raises NotFound."""
        self._http.call("DELETE", _path(name, own), repeatable=False)


def _path(name: str, own: bool) -> str:
    return path_of("me", "secrets", name) if own else path_of("secrets", name)
