"""What the simulation found, each told once more in small."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from sqlalchemy import Connection, select

from windlass.core.errors import Conflict, Fenced
from windlass.core.jobs import AttemptState, JobSpec, JobState, Outcome
from windlass.core.resources import Node, Resources
from windlass.engines.base import LaunchFailed, Seen, Sight
from windlass.server.clock import SystemClock
from windlass.server.jobs import moves, policy, removal, service
from windlass.server.jobs.admit import Admit
from windlass.server.jobs.decide import Situation
from windlass.server.jobs.reconcile import Reconcile
from windlass.server.jobs.tables import jobs
from windlass.server.nodes import service as node_service
from windlass.server.store.inline import InlineStore
from windlass.testing.simulated.disk import Disk
from windlass.testing.simulated.server import ADA

_numbers = itertools.count(1)
NODE = Node(
    name="n1", engine="local", capacity=Resources(gpus=1, slots=4), gpu_ids=("0",), boot_id="b"
)
"""One GPU: two jobs that want one cannot run at once."""


@pytest.fixture
def store() -> InlineStore:
    store = InlineStore(raw=Disk().raw)
    asyncio.run(store.write(lambda conn: node_service.record(conn, "local", [NODE], 1)))
    return store


def admitting(store: InlineStore, guard: Any = lambda conn: None) -> Admit:
    return Admit(
        store, SystemClock(), guard=guard, new_attempt=_new_attempt, started=lambda job_id: None,
        ttl_ms=1000,
    )  # fmt: skip


def test_a_released_job_keeps_its_place(store: InlineStore) -> None:
    """Admit heard its own release as news, decided the start twice, and gave the place away when
    the second one failed."""

    async def story() -> None:
        admit = admitting(store)
        first = await _submit(store, "first", hold=True)
        await admit.turn()
        await store.write(
            lambda conn: service.wish(conn, ADA, first, "release", reason="go", now_ms=1)
        )
        await admit.turn()
        second = await _submit(store, "second")
        await admit.turn()
        assert await _states(store) == {first: "starting", second: "queued"}

    asyncio.run(story())


def test_a_job_that_is_removed_before_its_end_was_heard_gives_its_place_back(
    store: InlineStore,
) -> None:
    """Its events went with it, so nobody told admit that its place was free."""

    async def story() -> None:
        admit = admitting(store)
        first = await _submit(store, "first")
        await admit.turn()
        await store.write(lambda conn: _end(conn, first, JobState.FAILED))
        await store.write(lambda conn: removal.remove(conn, first, 1))
        second = await _submit(store, "second")
        await admit.turn()
        assert await _states(store) == {second: "starting"}

    asyncio.run(story())


def test_a_server_that_leads_again_counts_what_the_other_one_started(store: InlineStore) -> None:
    """It heard that the job was running, and did not mark its place as taken."""

    async def story() -> None:
        one, other = admitting(store), admitting(store)
        await one.turn()
        first = await _submit(store, "first")
        await other.turn()
        await one.turn()
        second = await _submit(store, "second")
        await one.turn()
        assert await _states(store) == {first: "starting", second: "queued"}

    asyncio.run(story())


def test_a_server_that_no_longer_leads_stops_trying(store: InlineStore) -> None:
    """The refusal looked like any conflict, so it took the start back, decided it again, was
    refused again, without a pause."""

    refused = itertools.count(1)

    def fenced(conn: Connection) -> None:
        if next(refused) > 10:
            raise RuntimeError("it spins")
        raise Fenced("another leads")

    async def story() -> None:
        await _submit(store, "first")
        with pytest.raises(Fenced):
            await admitting(store, fenced).turn()

    asyncio.run(story())


def test_a_gang_of_which_a_node_ran_nothing_has_not_succeeded() -> None:
    """A node that is ended before it has started its ranks has none in its record: those that
    were there had all ended well."""
    well = {
        "node": "a", "outcome": "succeeded",
        "ranks": [{"role": "worker", "index": 0, "local_rank": 0, "exit": 0, "ended_ms": 1}],
    }  # fmt: skip
    never = {"node": "b", "outcome": "cancelled", "reason": "stopped by ada", "ranks": []}
    verdict = policy.judge(
        {"worker": "all"}, [well, never], Outcome.CANCELLED, "stopped by ada", 2
    )
    assert verdict.outcome is Outcome.CANCELLED
    whole = policy.judge({"worker": "all"}, [well], None, "", 1)
    assert whole.outcome is Outcome.SUCCEEDED


def test_an_attempt_whose_repeated_launch_fails_is_not_closed_without_proof() -> None:
    """Launched well, the server crashed before it had written that down, launched again: the
    engine refused, and could not end what ran either. It was closed all the same."""

    class Stubborn:
        ends = 0

        async def end(self, attempt_id: str, node: str) -> Seen:
            self.ends += 1
            return Seen(attempt_id, node, Sight.ALIVE, reason="it does not die")

    class NoStore:
        async def write(self, fn: Any) -> None:
            raise AssertionError("closed without proof")

    engine = Stubborn()
    reconcile = Reconcile(
        NoStore(), SystemClock(), {"local": engine}, guard=lambda conn: None,  # type: ignore
        launch_facts=lambda job, attempt: {}, worker_token=lambda attempt: "", jitter=lambda: 0.0,
        ttl_ms=1, poke=lambda *topics: None,
    )  # fmt: skip
    spec = JobSpec.model_validate({"run": ["true"]})
    job, attempt = {"id": "j"}, {"id": "a", "engine": "local"}
    at = Situation(job, attempt, [{"node": "n1"}], {}, spec, {}, 1)
    asyncio.run(reconcile._refuse(at, LaunchFailed("no more processes")))
    assert engine.ends == 1


def test_only_a_finished_job_can_be_removed(store: InlineStore) -> None:
    """Its files go first, so the question comes before them."""

    async def story() -> None:
        first = await _submit(store, "first")
        with pytest.raises(Conflict):
            await store.read(lambda conn: removal.removable(conn, first))

    asyncio.run(story())


async def _submit(store: InlineStore, name: str, *, hold: bool = False) -> str:
    spec = JobSpec.model_validate(
        {"name": name, "run": ["true"], "hold": hold, "roles": {"worker": {"gpus": 1}}}
    )
    accepted = await store.write(
        lambda conn: service.submit(
            conn, ADA, spec, "python", key=name, digest=name, now_ms=1
        )
    )  # fmt: skip
    return accepted.job_id


async def _states(store: InlineStore) -> dict[str, str]:
    rows = await store.read(lambda conn: conn.execute(select(jobs.c.id, jobs.c.state)).all())
    return {row.id: row.state for row in rows}


def _end(conn: Connection, job_id: str, to: JobState) -> None:
    job = moves.load(conn, job_id)
    attempt = moves.load_attempt(conn, job_id, job["fence"])
    assert attempt is not None
    job, _ = moves.move_attempt(conn, job, attempt, AttemptState.OVER, reason="", now_ms=1)
    moves.move(conn, job, to, owner="reconcile", reason="", now_ms=1)


def _new_attempt() -> dict[str, Any]:
    name = f"{next(_numbers):032x}"
    return {
        "id": name, "worker_hash": "w" + name, "run_hash": "r" + name, "tokens": b"", "kek": "",
    }  # fmt: skip
