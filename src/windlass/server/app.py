"""The server, assembled: parts wired, routes added, loops started. Nothing else lives here."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from windlass import __version__
from windlass.core.jobs import JobSpec
from windlass.engines import registry as engine_registry
from windlass.engines.base import Engine
from windlass.server import feed as feeds
from windlass.server import loops
from windlass.server.access import sealing
from windlass.server.access.service import Access
from windlass.server.bundles import routes as bundle_routes
from windlass.server.bundles.service import Blobs, collect
from windlass.server.clock import SystemClock
from windlass.server.events import routes as event_routes
from windlass.server.feed import Feed
from windlass.server.http.application import Application
from windlass.server.http.limits import Rules
from windlass.server.http.marks import check_marked
from windlass.server.http.openapi import describe
from windlass.server.hub import Hub
from windlass.server.jobs import order_routes, tokens, worker_routes
from windlass.server.jobs import routes as job_routes
from windlass.server.jobs.admit import Admit
from windlass.server.jobs.expire import Expire
from windlass.server.jobs.fitting import Fits
from windlass.server.jobs.reconcile import Reconcile
from windlass.server.nodes import routes as node_routes
from windlass.server.nodes import service as node_service
from windlass.server.parts import Parts
from windlass.server.private import write_private
from windlass.server.queues import routes as queue_routes
from windlass.server.quotas import routes as quota_routes
from windlass.server.runs.tables import tracking as tracking_tables
from windlass.server.settings import DAY_MS, Settings
from windlass.server.status import routes as status_routes
from windlass.server.store.base import Store
from windlass.server.store.claim import Claim
from windlass.server.store.open import open_store

log = logging.getLogger("windlass.server")


def create_app(parts: Parts) -> FastAPI:
    """The application over parts that run."""
    app = Application(
        Rules.answering_to(parts.settings.hosts), title="Windlass", version=__version__
    )
    app.state.parts = parts
    app.state.access = parts.access
    for routes in (
        status_routes, job_routes, order_routes, worker_routes, bundle_routes, node_routes,
        queue_routes, quota_routes, event_routes,
    ):  # fmt: skip
        app.include_router(routes.router)
    app.openapi = _describing(app)  # type: ignore[method-assign]  # FastAPI's own documented way
    check_marked(app)
    app.middleware_stack = app.build_middleware_stack()  # now: it refuses routes it cannot serve
    return app


@asynccontextmanager
async def running(settings: Settings, worker_command: list[str]) -> AsyncIterator[Parts]:
    """All parts of a server, wired and running. Raises Conflict when another runs in this home:
    they would take each other's workers for strays."""
    claim = Claim(settings.home / "home")
    try:
        async with _stores(settings) as (store, tracking):
            async with _wired(settings, store, tracking, worker_command) as parts:
                yield parts
    finally:
        claim.release()


@asynccontextmanager
async def _stores(settings: Settings) -> AsyncIterator[tuple[Store, Store]]:
    store = await open_store(settings.control_url)
    try:
        tracking = await open_tracking(settings)
        try:
            yield store, tracking
        finally:
            await tracking.close()
    finally:
        await store.close()


async def open_tracking(settings: Settings) -> Store:
    return await open_store(
        settings.tracking_url, migrate=False, create=tracking_tables,
        **({} if settings.database.startswith("postgresql") else {"synchronous": "NORMAL"}),
    )  # fmt: skip


@asynccontextmanager
async def _wired(
    settings: Settings, store: Store, tracking: Store, worker_command: list[str]
) -> AsyncIterator[Parts]:
    clock, hub, feed = SystemClock(), Hub(), Feed(store)
    sealer = sealing.load(settings.home / "kek")
    attempt_tokens = tokens.AttemptTokens(sealer)
    access = Access(store, sealer, tokens.finder(store))
    engine = engine_registry.load("local")(
        settings.home, worker_command, fake_nodes=settings.fake_nodes, fake_gpus=settings.fake_gpus
    )
    engines: dict[str, Engine] = {engine.name: engine}
    leadership = loops.Leadership(
        store,
        f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        home_id(settings.home),
        settings.lease_ms,
    )
    wake_admit, wake_reconcile, wake_expire = loops.Bell(0.02), loops.Bell(), loops.Bell()

    def poke(*topics: str) -> None:
        if "reconcile" in topics:
            wake_reconcile.ring()
        if "expire" in topics:
            wake_expire.ring()
        hub.poke(*topics)

    reconcile = Reconcile(
        store, clock, engines, guard=leadership.guard,
        launch_facts=lambda job, attempt: launch_facts(settings, job, attempt),
        worker_token=attempt_tokens.worker_token, jitter=random.random,
        ttl_ms=settings.ttl_ms, poke=poke,
    )  # fmt: skip
    admit = Admit(
        store, clock, guard=leadership.guard, new_attempt=attempt_tokens.new_attempt,
        started=reconcile.hint, ttl_ms=settings.ttl_ms, base=settings.scheduling,
    )  # fmt: skip
    expire = Expire(
        store, tracking, clock, engines, guard=leadership.guard,
        job_folder=lambda job_id: settings.home / "jobs" / job_id,
    )  # fmt: skip
    blobs = Blobs(settings.home / "blobs")
    parts = Parts(
        settings, store, tracking, clock, hub, feed, access, attempt_tokens, blobs, engines,
        Fits(node_service.ReadyNodes(store)), admit, reconcile, clock.now_ms(),
    )  # fmt: skip
    await first_key(settings, access)
    owners = _Owners(store, reconcile)
    await engine.start(owners.hint)
    feed.start()
    store.listen(feeds.TOPIC, wake_admit.ring)
    every = 0.25 if store.dialect == "postgresql" else 5.0
    tasks = [asyncio.create_task(_tend(parts), name="tend")]
    if settings.loops:
        await _offer(parts, engine)

        async def begin() -> None:
            await _offer(parts, engine)
            await reconcile.adopt()

        turns = {
            "admit": (admit.turn, wake_admit, every),
            "reconcile": (reconcile.turn, wake_reconcile, 5.0),
            "expire": (expire.turn, wake_expire, 60.0),
        }
        tasks.append(
            asyncio.create_task(
                loops.lead(leadership, begin, turns, lost=admit.forget), name="lead"
            )
        )
    try:
        yield parts
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await leadership.resign()
        await feed.close()
        await engine.stop()


class _Owners:
    """Turns an engine's hint about an attempt into a look at its job."""

    def __init__(self, store: Store, reconcile: Reconcile) -> None:
        self._store = store
        self._reconcile = reconcile
        self._tasks: set[asyncio.Task[None]] = set()

    def hint(self, attempt_id: str) -> None:
        task = asyncio.get_running_loop().create_task(self._tell(attempt_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, attempt_id: str) -> None:
        with suppress(Exception):  # a hint only: the sweep finds what this misses
            job_id = await self._store.read(lambda conn: tokens.job_of(conn, attempt_id))
            if job_id:
                self._reconcile.hint(job_id)


async def _offer(parts: Parts, engine: Engine) -> None:
    offers = await engine.nodes()
    now = parts.clock.now_ms()
    await parts.store.write(lambda conn: node_service.record(conn, engine.name, offers, now))


async def _tend(parts: Parts) -> None:
    """Small chores, once a minute: last use of keys, used signatures, code nobody needs."""
    turn = 0
    while True:
        await asyncio.sleep(60)
        turn += 1
        try:
            await parts.access.tend()
            if turn % 60 == 0:
                old = parts.clock.now_ms() - DAY_MS
                wanted = await parts.store.write(partial(collect, before_ms=old))
                await asyncio.to_thread(parts.blobs.sweep, wanted, old)
        except Exception as err:
            log.warning("chores put off: %s", err)


async def first_key(settings: Settings, access: Access) -> None:
    """The owner's key, in a file that only its owner reads. Made anew when the file is gone."""
    key = await access.first_start()
    path = credentials_path(settings.home)
    if key is None and path.exists():
        return
    key = key or await access.issue()
    content = {
        "url": settings.url, "access_key": key.access_key, "secret_key": key.secret_key,
        "project": key.project, "user": key.user,
    }  # fmt: skip
    write_private(path, json.dumps(content, indent=2) + "\n")


def home_id(home: Path) -> str:
    """The name of this home, made once."""
    path = home / "id"
    if not path.exists():
        write_private(path, secrets.token_hex(8))
    return path.read_text().strip()


def credentials_path(home: Path) -> Path:
    if os.environ.get("WINDLASS_HOME"):
        return home / "credentials.json"
    return Path.home() / ".config" / "windlass" / "credentials.json"


def launch_facts(
    settings: Settings, job: dict[str, Any], attempt: dict[str, Any]
) -> dict[str, Any]:
    """What a worker's `launch.json` holds beside its node and members."""
    spec = JobSpec.model_validate(job["spec"])
    return {
        "api": 1,
        "job_id": job["id"],
        "job_name": job["name"],
        "project": spec.project or "default",
        "attempt_id": attempt["id"],
        "attempt": attempt["number"],
        "urls": [settings.url],
        "server_file": str(settings.home / "server.json"),
        "bundle": job["bundle"],
        "blob_dir": str(settings.home / "blobs"),
        "cache_dir": str(settings.home / "cache"),
        "checkpoint_dir": str(settings.checkpoints_of(job["id"])),
        "resume": spec.retry.resume,
        "keep": spec.outputs.keep,
        "host": "127.0.0.1",
        "ifname": "lo",
        "python": spec.environment.python,
        "vars": dict(spec.environment.vars),
        "grace_ms": spec.limits.grace,
        "idle_ms": spec.limits.idle,
        "on_idle": "restart" if "hung" in spec.retry.on else "report",
        "log_rate": spec.limits.log_rate,
        "lease_seconds": None,
        "beat_seconds": 10,
        "cgroups": True,
        "retry_log_patterns": [
            rule[4:] for rule in (*spec.retry.on, *spec.retry.never) if rule.startswith("log:")
        ],
        "min_members": None,
    }


def _describing(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """The OpenAPI document, made at the first question."""
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(describe(app))
        return made

    return openapi
