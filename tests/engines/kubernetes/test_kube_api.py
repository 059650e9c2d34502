"""The thin client against a real HTTP server on loopback that cuts, throttles and forgets."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from windlass.engines.kubernetes import api as apis
from windlass.engines.kubernetes import wire as wires
from windlass.engines.kubernetes.api import Api, ApiFailed, Change, Listing
from windlass.engines.kubernetes.kubeconfig import Access
from windlass.engines.kubernetes.wire import Address

Handler = Callable[[str, bytes, asyncio.StreamWriter], Awaitable[bool]]
PODS = "/api/v1/namespaces/n/pods"


def _pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}}


def _head(status: int, *more: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", *more, "", ""]).encode()


def _json(value: object, status: int = 200, *more: str) -> bytes:
    body = json.dumps(value).encode()
    return _head(status, f"Content-Length: {len(body)}", *more) + body


def _chunk(*events: tuple[str, dict[str, Any]]) -> bytes:
    body = b"".join(
        json.dumps({"type": kind, "object": item}).encode() + b"\n" for kind, item in events
    )
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


STREAM = _head(200, "Transfer-Encoding: chunked")
LAST = b"0\r\n\r\n"


def _list(version: int, *items: dict[str, Any], more: str = "") -> bytes:
    about = {"resourceVersion": str(version), "continue": more}
    return _json({"metadata": about, "items": list(items)})


class Script:
    """Answers in turn; each is bytes, and `CUT` behind them ends the connection."""

    def __init__(self, *answers: tuple[bytes, bool]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, line: str, body: bytes, writer: asyncio.StreamWriter) -> bool:
        self.asked.append(line)
        if not self._answers:
            await asyncio.Event().wait()
        content, keeps = self._answers.pop(0)
        writer.write(content)
        await writer.drain()
        return keeps


KEEP, CUT = True, False


@asynccontextmanager
async def _serving(script: Handler) -> AsyncIterator[Api]:
    tasks = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                sizes = [each for each in lines if each.lower().startswith("content-length:")]
                size = int(sizes[0].partition(":")[2]) if sizes else 0
                if not await script(lines[0], await reader.readexactly(size), writer):
                    break
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    api = Api(lambda: Access(Address("127.0.0.1", port), "", "Bearer t", "n", "the test"))
    try:
        yield api
    finally:
        await api.close()
        server.close()
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)


async def _take(api: Api, count: int) -> list[Listing | Change]:
    found: list[Listing | Change] = []
    async with asyncio.timeout(60):
        async with aclosing(api.follow(PODS, labelSelector="a=b")) as stream:
            async for each in stream:
                found.append(each)
                if len(found) == count:
                    return found
    raise AssertionError("it ended")


def _run(script: Script, count: int) -> list[str]:
    async def run() -> list[str]:
        async with _serving(script) as api:
            told = []
            for each in await _take(api, count):
                if isinstance(each, Listing):
                    told.append("list " + ",".join(i["metadata"]["name"] for i in each.items))
                else:
                    told.append(f"{each.kind} {each.item['metadata']['name']}")
            return told

    return asyncio.run(run())


def test_a_watch_goes_on_from_a_bookmark_after_a_cut_connection() -> None:
    script = Script(
        (_list(5, _pod("a", 3)), KEEP),
        (STREAM + _chunk(("ADDED", _pod("b", 6)), ("BOOKMARK", _pod("", 40))), CUT),
        (STREAM + _chunk(("DELETED", _pod("a", 41))), KEEP),
    )
    assert _run(script, 3) == ["list a", "ADDED b", "DELETED a"]
    assert "resourceVersion=5&" in script.asked[1] and "allowWatchBookmarks" in script.asked[1]
    assert "resourceVersion=40&" in script.asked[2]


def test_a_watch_that_the_server_ends_goes_on_where_it_was() -> None:
    script = Script(
        (_list(5), KEEP),
        (STREAM + _chunk(("ADDED", _pod("a", 6))) + LAST, KEEP),
        (STREAM + _chunk(("MODIFIED", _pod("a", 7))), KEEP),
    )
    assert _run(script, 3) == ["list ", "ADDED a", "MODIFIED a"]
    assert "resourceVersion=6&" in script.asked[2]


@pytest.mark.parametrize(
    "forgotten",
    [
        _json({"message": "too old", "code": 410}, 410),
        STREAM + _chunk(("ERROR", {"code": 410, "message": "too old resource version"})),
    ],
)
def test_a_version_that_is_forgotten_is_listed_again(forgotten: bytes) -> None:
    script = Script(
        (_list(5, _pod("a", 3)), KEEP),
        (forgotten, KEEP),
        (_list(9, _pod("b", 8)), KEEP),
        (STREAM + _chunk(("MODIFIED", _pod("b", 10))), KEEP),
    )
    assert _run(script, 3) == ["list a", "list b", "MODIFIED b"]
    assert "resourceVersion=9&" in script.asked[3]


def test_a_line_that_was_cut_is_no_event() -> None:
    half = _chunk(("ADDED", _pod("b", 6)))[:-20]
    script = Script(
        (_list(5), KEEP), (STREAM + half, CUT), (STREAM + _chunk(("ADDED", _pod("b", 6))), KEEP)
    )
    assert _run(script, 2) == ["list ", "ADDED b"]
    assert "resourceVersion=5&" in script.asked[2]


def test_a_server_that_restarts_is_found_again() -> None:
    script = Script(
        (_list(5), KEEP),
        (b"", CUT),
        (_json({"message": "not ready"}, 503), CUT),
        (STREAM + _chunk(("ADDED", _pod("b", 6))), KEEP),
    )
    assert _run(script, 2) == ["list ", "ADDED b"]


def test_lists_come_in_pages_and_begin_again_when_one_is_forgotten() -> None:
    script = Script(
        (_list(5, _pod("a", 1), more="next"), KEEP),
        (_json({"message": "expired"}, 410), KEEP),
        (_list(6, _pod("a", 1), more="next"), KEEP),
        (_list(6, _pod("b", 2)), KEEP),
    )
    assert _run(script, 1) == ["list a,b"]
    assert "continue=next" in script.asked[3]


def test_who_is_throttled_waits_as_long_as_he_is_told() -> None:
    waits: list[float] = []

    async def run() -> list[dict[str, Any]]:
        script = Script((_json({}, 429, "Retry-After: 1"), KEEP), (_list(5, _pod("a", 3)), KEEP))
        async with _serving(script) as api:
            real = asyncio.sleep
            apis.asyncio.sleep = lambda seconds: (waits.append(seconds), real(0))[1]  # type: ignore[attr-defined]
            try:
                return await api.items(PODS)
            finally:
                apis.asyncio.sleep = real  # type: ignore[attr-defined]

    assert [each["metadata"]["name"] for each in asyncio.run(run())] == ["a"]
    assert waits == [1.0]


def test_a_kept_connection_that_died_is_no_failure() -> None:
    async def run() -> list[str]:
        script = Script((_list(1), KEEP), (b"", CUT), (_list(2), KEEP))
        async with _serving(script) as api:
            await api.items(PODS)
            await api.items(PODS)
            return script.asked

    assert len(asyncio.run(run())) == 3


def test_what_is_there_already_and_what_is_gone_are_no_failures() -> None:
    async def run() -> tuple[object, ...]:
        script = Script(
            (_json({"message": "exists"}, 409), KEEP),
            (_json({"message": "gone"}, 404), KEEP),
            (_json({"message": "gone"}, 404), KEEP),
            (_json({"message": "pods is forbidden: User x"}, 403), KEEP),
        )
        async with _serving(script) as api:
            found = (
                await api.create(PODS, {}), await api.delete(f"{PODS}/a", 1),
                await api.find(f"{PODS}/a"),
            )  # fmt: skip
            with pytest.raises(ApiFailed, match="pods is forbidden") as caught:
                await api.items(PODS)
            assert caught.value.status == 403 and not caught.value.unreachable
            with pytest.raises(AssertionError):
                await api.delete(f"{PODS}/a", 0)
            return found

    assert asyncio.run(run()) == (None, False, None)


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 X\r\nContent-Le", b"SSH-2.0-x\r\n\r\n", _json({}, 500), _json({}, 503),
     _head(200, "Content-Length: 50") + b"{}"],
)  # fmt: skip
def test_an_answer_that_says_nothing_is_told_as_none(answer: bytes) -> None:
    async def run() -> None:
        async with _serving(Script((answer, CUT), (answer, CUT))) as api:
            with pytest.raises(ApiFailed) as caught:
                await api.items(PODS)
            assert caught.value.unreachable

    asyncio.run(run())


def test_what_is_asked_while_it_is_closed_fails_and_leaves_nothing_open() -> None:
    """On a kept connection it would be asked again, on a new one that nobody closes."""
    came: list[str] = []

    async def run() -> ApiFailed:
        arrived = asyncio.Event()

        async def script(line: str, body: bytes, writer: asyncio.StreamWriter) -> bool:
            came.append(line)
            if len(came) == 2:
                arrived.set()
                await asyncio.sleep(60)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            return True

        async with _serving(script) as api:
            await api.get("/first")
            late = asyncio.create_task(api.get("/second"))
            async with asyncio.timeout(60):
                await arrived.wait()
            await api.close()
            with pytest.raises(ApiFailed) as caught:
                await late
            return caught.value

    assert asyncio.run(run()).unreachable
    gc.collect()  # a socket that was left open is told now
    assert len(came) == 2


def test_who_leaves_while_it_opens_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """An opening that is cancelled at the end of its handshake says goodbye for as long as the
    other side likes, and a loop that ends leaves it open: so it is not cancelled, but dropped."""
    cut_short: list[bool] = []

    async def run() -> list[bool]:
        begun, go_on, made = asyncio.Event(), asyncio.Event(), []
        real = wires.asyncio.open_connection

        async def slow(*place: Any, **more: Any) -> Any:
            made.append(await real(*place, **more))
            begun.set()
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                cut_short.append(True)
                raise
            return made[0]

        async with _serving(Script()) as api:
            monkeypatch.setattr(wires.asyncio, "open_connection", slow)
            asker = asyncio.create_task(api.get("/first"))
            async with asyncio.timeout(60):
                await begun.wait()
            asker.cancel()
            await asyncio.gather(asker, return_exceptions=True)
            asyncio.get_running_loop().call_later(0.05, go_on.set)
            await api.close()
            return [writer.is_closing() for _, writer in made]

    assert asyncio.run(run()) == [True] and not cut_short
