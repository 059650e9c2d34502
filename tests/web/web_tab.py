"""One tab of a browser, for tests that look at pages."""

from __future__ import annotations

from typing import Any

WIDE, NARROW = 1280, 390
HEIGHT = 900


class Watched:
    """A tab whose every complaint is noted."""

    def __init__(self, page: Any, origin: str) -> None:
        self.page = page
        self.origin = origin
        self.complaints: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)
        page.on("request", self._asked)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _failed(self, request: Any) -> None:
        # A stream or a question that the page itself gave up when it was left.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed: {request.url} {request.failure}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.status}: {response.request.method} {response.url}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.origin + "/", "data:", "blob:")):
            self.complaints.append(f"left the origin: {request.url}")

    def go(self, path: str) -> None:
        """Open a path of the server, and wait until the page has what it shows."""
        self.page.goto(self.origin + path, wait_until="load")
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_selector("main h1", timeout=60_000)
        self.page.wait_for_function(
            "() => !document.querySelector('[aria-busy=true], .mantine-Loader-root,"
            " .mantine-Skeleton-root[data-visible]')",
            timeout=60_000,
        )
        # What is drawn after the data came: two frames later it stands.
        self.page.evaluate(
            "() => document.fonts.ready.then(() => new Promise((done) =>"
            " requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))))"
        )
