"""What tests ask of the API server and do to it, apart from the client under test."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import httpx

_PATCH = {"Content-Type": "application/json-patch+json"}


class Api:
    """Answers are parsed; whatever is not a success raises httpx.HTTPStatusError with the API
    server's own words in its text."""

    def __init__(self, url: str, token: str, authority: Path) -> None:
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=str(authority)),
            trust_env=False,
            timeout=60,
        )

    def get(self, path: str, **query: Any) -> Any:
        return _read(self._http.get(path, params=query))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return _read(self._http.post(path, json=body))

    def patch(self, path: str, *operations: dict[str, Any]) -> Any:
        return _read(self._http.patch(path, json=list(operations), headers=_PATCH))

    def delete(self, path: str, **query: Any) -> Any:
        return _read(self._http.delete(path, params=query))

    def text(self, path: str, **query: Any) -> str:
        return _checked(self._http.get(path, params=query)).text

    def close(self) -> None:
        self._http.close()


def _read(answer: httpx.Response) -> Any:
    return _checked(answer).json()


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_error:
        raise httpx.HTTPStatusError(
            f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}",
            request=answer.request,
            response=answer,
        )
    return answer
