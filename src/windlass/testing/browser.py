"""A browser, as far as a server can tell: it keeps cookies and says where a call comes from."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx


class Browser:
    """One page of `url` in one browser. `call` is what a script of that page does with fetch;
    `headers` given to it win, None takes one away."""

    def __init__(self, url: str, *, verify: Any = True) -> None:
        self.url = url
        self.cookies: dict[str, str] = {}
        self._http = httpx.Client(trust_env=False, timeout=60, verify=verify)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str | None] | None = None,
        *,
        content: bytes | None = None,
    ) -> httpx.Response:
        """Below `/api/v1`."""
        whole: dict[str, str | None] = {
            "Origin": self.url, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors",
            "X-Wl-Client": "test",
        }  # fmt: skip
        if body is not None:
            content = json.dumps(body).encode()
            whole["Content-Type"] = "application/json"
        return self.send(method, "/api/v1" + path, {**whole, **(headers or {})}, content or b"")

    def open(self, address: str, headers: dict[str, str | None] | None = None) -> httpx.Response:
        """What typing an address does: no redirect is followed."""
        parts = urlsplit(address)
        whole = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", **(headers or {})}
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        return self.send("GET", path, whole)

    def send(
        self, method: str, path: str, headers: dict[str, str | None], content: bytes = b""
    ) -> httpx.Response:
        sent = {name.encode(): v.encode("latin-1") for name, v in headers.items() if v is not None}
        if self.cookies:
            line = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            sent.setdefault(b"Cookie", line.encode("latin-1"))
        answer = self._http.request(method, self.url + path, headers=sent, content=content)
        self._http.cookies.clear()  # ours are kept here, by their rules
        for line in answer.headers.get_list("set-cookie"):
            self._keep(line)
        return answer

    def login(self, user: str, password: str) -> httpx.Response:
        return self.call("POST", "/login", {"user": user, "password": password})

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _keep(self, line: str) -> None:
        first, *rest = [part.strip() for part in line.split(";")]
        name, _, value = first.partition("=")
        rules = {word.partition("=")[0].lower(): word.partition("=")[2] for word in rest}
        if name.startswith("__Host-"):
            whole = "secure" in rules and rules.get("path") == "/" and "domain" not in rules
            assert whole, f"a browser would not take {line}"
        if rules.get("max-age") == "0":
            self.cookies.pop(name, None)
        else:
            self.cookies[name] = value
