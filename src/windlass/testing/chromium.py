"""A real browser, driven over a pipe: for what only a browser can show.

    with Chromium(tmp_path) as chromium:
        page = chromium.open("http://127.0.0.1:7400/login")
        page.wait("document.title == 'Windlass'")

Speaks the DevTools protocol (JSON, NUL-separated) on two pipes; no port is opened.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_SECONDS = 60.0


def installed() -> str | None:
    """The program, where there is one."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Chromium:
    def __init__(self, folder: Path) -> None:
        program = installed()
        assert program is not None, "look with `installed` first"
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        words = [
            program, "--headless=new", "--remote-debugging-pipe", "--no-first-run",
            "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-sandbox",
            "--disable-dev-shm-usage", "--no-proxy-server", f"--user-data-dir={folder}",
            "about:blank",
        ]  # fmt: skip
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words], pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._number = 0
        self._held = b""
        self.told: list[dict[str, Any]] = []
        """Events that came, in order."""

    def open(self, url: str) -> Page:
        """A new tab; it has begun to load."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Log", "Runtime", "Network"):
            page.call(f"{domain}.enable")
        page.go(url)
        return page

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            asked["sessionId"] = session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        end = time.monotonic() + _SECONDS
        while True:
            said = self._next(end)
            if said.get("id") == self._number:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result
            self.told.append(said)

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser has ended"
            self._held += piece
        first, _, self._held = self._held.partition(b"\0")
        said: dict[str, Any] = json.loads(first)
        return said

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._out)
        os.close(self._in)
        os.killpg(self._process.pid, signal.SIGKILL)  # its own session: it and its children
        self._process.wait(20)


class Page:
    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is waited for."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
            userGesture=True,
        )  # fmt: skip
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, f"not within {seconds} s: {condition}"
            time.sleep(0.05)

    def cookies(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in self.call("Network.getCookies")["cookies"]}

    def complaints(self) -> list[str]:
        """What the browser wrote to its console: errors, and what its policy forbade."""
        self.run("1")
        return [
            str(said["params"])
            for said in self._browser.told
            if said.get("sessionId") == self._session
            and (
                said["method"] == "Runtime.exceptionThrown"
                or (
                    said["method"] == "Log.entryAdded"
                    and said["params"]["entry"]["source"] in ("security", "javascript")
                )
            )
        ]
