"""An answer that lasts is for as long as its caller may have it."""

from __future__ import annotations

import asyncio

import pytest

from windlass.core.access import CallerKind, Principal, ProjectRole, Right, rights_in
from windlass.core.errors import NotFound, Unauthenticated, Unavailable
from windlass.server.access.calls import Call
from windlass.server.access.lasting import while_allowed

MEMBER = Principal(
    kind=CallerKind.USER, project_id="p", user_id="u", rights=rights_in(None, ProjectRole.MEMBER)
)
ELSEWHERE = Principal(
    kind=CallerKind.USER, project_id="q", user_id="u", rights=rights_in(None, ProjectRole.MEMBER)
)
NOTHING = Principal(kind=CallerKind.USER, project_id="p", user_id="u")


class Source:
    def __init__(self, blocks: int | None) -> None:
        self.blocks, self.closed = blocks, False

    async def run(self):
        try:
            count = 0
            while self.blocks is None or count < self.blocks:
                yield b"%d" % count
                count += 1
            if self.blocks is None or self.blocks == 1:
                await asyncio.Event().wait()
        finally:
            self.closed = True


def heard(source, *looks, every=0.01, most=5):
    """What comes through while the credential is looked at with these results, then for ever
    with the last."""
    turns = iter(looks)
    last = looks[-1]

    async def again():
        found = next(turns, last)
        if isinstance(found, Exception):
            raise found
        return found

    async def listen():
        got = []
        through = while_allowed(Call(MEMBER, again=again), Right.JOB_READ, source.run(), every)
        async for block in through:
            got.append(block)
            if len(got) >= most:
                await through.aclose()
                break
        return got

    return asyncio.run(asyncio.wait_for(listen(), 60))


def test_what_ends_by_itself_ends_and_is_told_whole():
    source = Source(3)
    assert heard(source, MEMBER) == [b"0", b"1", b"2"] and source.closed


@pytest.mark.parametrize(
    "look",
    [None, NOTHING, ELSEWHERE, NotFound("no project p"), Unauthenticated("its time is over")],
    ids=["dead", "without the right", "elsewhere", "no project", "over"],
)
def test_a_silent_stream_ends_too_when_its_caller_may_no_longer(look):
    source = Source(1)
    assert heard(source, MEMBER, MEMBER, look) == [b"0"]
    assert source.closed, "and nothing of it is left running"


def test_without_a_database_nothing_is_judged():
    source = Source(1)
    assert heard(source, Unavailable("away"), Unavailable("away"), MEMBER, None) == [b"0"]


def test_who_leaves_takes_the_source_along():
    source = Source(None)
    assert len(heard(source, MEMBER, every=60, most=5)) == 5 and source.closed
