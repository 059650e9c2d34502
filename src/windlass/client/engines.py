"""Engines from the user's side: where gangs run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.client.http import Http, path_of


class Engines:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._http.get("/engines")["items"]
        return items

    def add(
        self, name: str, kind: str, options: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The same again changes nothing. Raises InvalidInput, Conflict."""
        body = {"kind": kind, "options": dict(options or {})}
        answer: dict[str, Any] = self._http.call("PUT", path_of("engines", name), body=body)
        return answer

    def check(self, name: str) -> dict[str, Any]:
        """`findings`: what was looked at, whether it is well, and what was found."""
        answer: dict[str, Any] = self._http.call(
            "POST", path_of("engines", name, "check"), body={}, repeatable=True
        )
        return answer

    def delete(self, name: str) -> None:
        """Raises Conflict while a job is at work there."""
        self._http.call("DELETE", path_of("engines", name), repeatable=False)
