"""An answer that lasts (a stream of events) ends when its caller may no longer have it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from windlass.core.access import Right
from windlass.core.errors import NotFound, Unauthenticated, WindlassError
from windlass.server.access.calls import Call
from windlass.server.access.service import KEY_SECONDS


async def while_allowed(
    call: Call, right: Right, source: AsyncGenerator[bytes, None], every: float = KEY_SECONDS
) -> AsyncIterator[bytes]:
    """What `source` gives, as long as the call's credential, looked at again and again, still has
    the right in the same project. Without a database nothing is judged."""
    loop = asyncio.get_running_loop()
    look_at = loop.time() + every
    following = asyncio.ensure_future(anext(source))
    try:
        while True:
            done, _ = await asyncio.wait((following,), timeout=max(0.0, look_at - loop.time()))
            if loop.time() >= look_at:
                if not await _allowed(call, right):
                    return
                look_at = loop.time() + every
            if done:
                try:
                    block = following.result()
                except StopAsyncIteration:
                    return
                yield block
                following = asyncio.ensure_future(anext(source))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await source.aclose()


async def _allowed(call: Call, right: Right) -> bool:
    if call.again is None:
        return True
    try:
        found = await call.again()
    except (NotFound, Unauthenticated):
        return False
    except WindlassError:
        return True
    if found is None:
        return False
    return found.may(right) and found.project_id == call.principal.project_id
