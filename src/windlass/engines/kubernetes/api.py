"""Kubernetes' API, as much of it as the engine needs: raw JSON, no models.

No model means no field that a newer or older server has and we do not know; what is read is read
where it is used. A server that is busy (429) is asked again after the time that it names.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from windlass.engines.kubernetes.kubeconfig import Access, BadConfig
from windlass.engines.kubernetes.wire import Answer, Unreached, Wire

Object = dict[str, Any]

_SECONDS = 15.0
_SILENT_SECONDS = 10.0
"""So long after it did not answer it is asked by nobody but who looks for it."""
_BUSY_TRIES = 6
_BUSY_MOST_SECONDS = 8.0
_WATCH_SECONDS = 240
_AGAIN_SECONDS = (0.2, 10.0)
_GONE = 410
_JSON = "application/json"
_ABOUT = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
"""Without its content, where the server can do so."""
_PAGE = 500


class ApiFailed(Exception):
    """A request failed. `unreachable`: no answer, or one that says nothing of the request, so
    nothing is known."""

    def __init__(self, message: str, *, status: int = 0, unreachable: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.unreachable = unreachable


@dataclass(frozen=True)
class Listing:
    """All there are at one moment."""

    items: list[Object]


@dataclass(frozen=True)
class Change:
    """`ADDED`, `MODIFIED` or `DELETED`."""

    kind: str
    item: Object


class Api:
    def __init__(self, access: Callable[[], Access]) -> None:
        """`access` is called at the first request: a file that is missing makes the cluster one
        that does not answer, and is looked for again."""
        self._load = access
        self._access: Access | None = None
        self._wire: Wire | None = None
        self._silent_until = 0.0

    async def access(self) -> Access:
        """Raises ApiFailed where the configuration cannot be used."""
        if self._access is None:
            try:
                found = await asyncio.to_thread(self._load)
            except BadConfig as err:
                raise ApiFailed(str(err), unreachable=True) from err
            if self._access is None:  # another may have come first, and has connections already
                self._access, self._wire = found, Wire(found.address)
        return self._access

    async def close(self) -> None:
        """Its connections; who asks afterwards opens new ones."""
        wire, self._wire, self._access = self._wire, None, None
        if wire is not None:
            await wire.close()

    async def get(self, path: str, *, trying: bool = False, **query: object) -> Object:
        """`trying`: also when it did not answer a moment ago."""
        return await self.ask("GET", path, query=query, trying=trying)

    async def find(self, path: str) -> Object | None:
        try:
            return await self.get(path)
        except ApiFailed as err:
            if err.status == 404:
                return None
            raise

    async def has(self, path: str, name: str) -> bool:
        """Whether there is one of that name; its content stays where it is."""
        query = {"fieldSelector": f"metadata.name={name}"}
        said = await self.ask("GET", path, query=query, accept=_ABOUT)
        return bool(said.get("items"))

    async def items(self, path: str, *, trying: bool = False, **query: object) -> list[Object]:
        """All of them, page by page. Kubernetes leaves out what each item's kind is."""
        found, _ = await self._list(path, query, trying)
        return found

    async def create(self, path: str, body: Object) -> Object | None:
        """None: there is one of that name."""
        try:
            return await self.ask("POST", path, body)
        except ApiFailed as err:
            if err.status == 409:
                return None
            raise

    async def delete(self, path: str, grace_seconds: int | None = None) -> bool:
        """Whether it was there."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_seconds is not None:
            assert grace_seconds > 0, "at 0 the pod is forgotten while its processes run on"
            body["gracePeriodSeconds"] = grace_seconds
        try:
            await self.ask("DELETE", path, body)
        except ApiFailed as err:
            if err.status == 404:
                return False
            raise
        return True

    async def ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Mapping[str, object] | None = None,
        trying: bool = False,
        accept: str = _JSON,
    ) -> Object:
        if time.monotonic() < self._silent_until and not trying:
            raise ApiFailed("the API server did not answer a moment ago", unreachable=True)
        for attempt in range(_BUSY_TRIES):
            try:
                answer = await self._send(method, path, body, query or {}, accept)
            except Unreached as err:
                self._silent_until = time.monotonic() + _SILENT_SECONDS
                at = (await self.access()).where
                raise ApiFailed(f"{at} is not reached: {err}", unreachable=True) from err
            self._silent_until = 0.0
            if answer.status != 429 or attempt == _BUSY_TRIES - 1:
                break
            await asyncio.sleep(_pause_of(answer, attempt))
        return _content(answer, f"{method} {path}")

    async def _send(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, object],
        accept: str,
    ) -> Answer:
        access = await self.access()
        wire = self._wire
        assert wire is not None
        content = b"" if body is None else json.dumps(body).encode()
        headers = {**await self._headers(access), "Accept": accept}
        if content:
            headers["Content-Type"] = _JSON
        return await wire.ask(method, _target(access, path, query), headers, content, _SECONDS)

    async def _headers(self, access: Access) -> dict[str, str]:
        headers = {"Accept": _JSON, "User-Agent": "windlass"}
        said = access.authorization
        try:
            if not isinstance(said, str):
                said = await asyncio.to_thread(said)
        except BadConfig as err:
            raise ApiFailed(str(err), unreachable=True) from err
        if said:
            headers["Authorization"] = said
        return headers

    async def _list(
        self, path: str, query: Mapping[str, object], trying: bool = False
    ) -> tuple[list[Object], str]:
        found: list[Object] = []
        more = ""
        while True:
            page = {**query, "limit": _PAGE} | ({"continue": more} if more else {})
            try:
                said = await self.get(path, trying=trying, **page)
            except ApiFailed as err:
                if err.status == _GONE and more:  # it took too long: from the start
                    found, more = [], ""
                    continue
                raise
            found += said.get("items") or []
            about = said.get("metadata") or {}
            more = about.get("continue") or ""
            if not more:
                return found, str(about.get("resourceVersion") or "0")

    async def follow(self, path: str, **query: object) -> AsyncGenerator[Listing | Change, None]:
        """What there is, then each change, until it is closed. A listing comes again whenever
        changes may have been missed; a connection that ends or breaks is taken up where it was."""
        version, pause = "", _AGAIN_SECONDS[0]
        while True:
            try:
                if not version:
                    items, version = await self._list(path, query, trying=True)
                    yield Listing(items)
                async with aclosing(self._changes(path, version, query)) as changes:
                    async for kind, item in changes:
                        version = item["metadata"]["resourceVersion"]
                        pause = _AGAIN_SECONDS[0]
                        if kind != "BOOKMARK":
                            yield Change(kind, item)
            except ApiFailed as err:
                if err.status == _GONE:
                    version = ""
                    continue
                if err.status in (400, 401, 403, 404, 500):
                    version = ""
            except Unreached:
                pass
            # also after a watch that ended by itself: one that ends at once must not be a storm
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _AGAIN_SECONDS[1])

    async def _changes(
        self, path: str, version: str, query: Mapping[str, object]
    ) -> AsyncGenerator[tuple[str, Object], None]:
        access = await self.access()
        wire = self._wire
        assert wire is not None
        asked = {
            **query, "watch": "true", "allowWatchBookmarks": "true",
            "resourceVersion": version, "timeoutSeconds": _WATCH_SECONDS,
        }  # fmt: skip
        opened = wire.lines(
            _target(access, path, asked), await self._headers(access), _SECONDS,
            _WATCH_SECONDS + _SECONDS,
        )  # fmt: skip
        async with opened as (answer, lines):
            if answer.status == 429:
                await asyncio.sleep(_pause_of(answer, 0))
            if answer.status != 200:
                answer.body = b"".join([line async for line in lines])
                _content(answer, f"watch {path}")
                return
            async for line in lines:
                kind, item = _event(line)
                if kind == "ERROR":
                    code = item.get("code")
                    raise ApiFailed(
                        str(item.get("message") or "watch failed"),
                        status=code if isinstance(code, int) else 500,
                    )
                yield kind, item


def _event(line: bytes) -> tuple[str, Object]:
    """Raises Unreached for what is no event: a line that was cut."""
    try:
        event = json.loads(line)
        kind, item = event["type"], event["object"]
        if kind != "ERROR":
            item["metadata"]["resourceVersion"]
        return str(kind), item
    except (ValueError, KeyError, TypeError) as err:
        raise Unreached(f"no event: {line[:80]!r}") from err


def _target(access: Access, path: str, query: Mapping[str, object]) -> str:
    words = {key: value for key, value in query.items() if value not in (None, "")}
    return access.prefix + quote(path) + (f"?{urlencode(words)}" if words else "")


def _pause_of(answer: Answer, attempt: int) -> float:
    """What it asks for, else longer each time."""
    try:
        asked = float(answer.headers.get("retry-after", ""))
    except ValueError:
        asked = 0.25 * 2**attempt
    return min(max(asked, 0.05), _BUSY_MOST_SECONDS)


def _content(answer: Answer, what: str) -> Object:
    try:
        found = json.loads(answer.body or b"{}")
    except ValueError:
        found = {}
    if not isinstance(found, dict):
        found = {}
    if answer.status < 300:
        return found
    words = str(found.get("message") or "") or answer.body[:200].decode("utf-8", "replace")
    raise ApiFailed(
        f"{words or what} ({answer.status})",
        status=answer.status,
        unreachable=answer.status >= 500 or answer.status == 429,
    )
