"""The server, assembled: parts wired, routes added, loops started. Nothing else lives here."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from windlass import __version__
from windlass.core.jobs import JobSpec
from windlass.engines import registry as engine_registry
from windlass.server import feed as feeds
from windlass.server import leases, loops
from windlass.server.access import rekey_routes, sealing, walls
from windlass.server.access.service import TOPIC, Access
from windlass.server.artifacts import routes as artifact_routes
from windlass.server.artifacts.outputs import gather_job
from windlass.server.audit import refusals as audit_refusals
from windlass.server.audit import routes as audit_routes
from windlass.server.audit.chain import Chain
from windlass.server.audit.refusals import Refusals
from windlass.server.boards import routes as board_routes
from windlass.server.bundles import routes as bundle_routes
from windlass.server.bundles.blobs import Blobs
from windlass.server.bundles.references import wanted
from windlass.server.bundles.service import FORGOTTEN, forget
from windlass.server.checkpoints import routes as checkpoint_routes
from windlass.server.checkpoints.cleaning import Cleaning
from windlass.server.clock import SystemClock
from windlass.server.engines import routes as engine_routes
from windlass.server.engines.fleet import Fleet
from windlass.server.events import routes as event_routes
from windlass.server.feed import Feed
from windlass.server.http.application import Application
from windlass.server.http.limits import Rules
from windlass.server.http.marks import check_marked
from windlass.server.http.openapi import describe
from windlass.server.hub import Hub
from windlass.server.jobs import order_routes, output_routes, recipe_routes, tokens, worker_routes
from windlass.server.jobs import routes as job_routes
from windlass.server.jobs.admit import Admit
from windlass.server.jobs.expire import Expire
from windlass.server.jobs.fitting import Fits
from windlass.server.jobs.reconcile import Reconcile
from windlass.server.limits import routes as limit_routes
from windlass.server.mirror import routes as mirror_routes
from windlass.server.mlflow import routes as mlflow_routes
from windlass.server.models import routes as model_routes
from windlass.server.nodes import routes as node_routes
from windlass.server.nodes import service as node_service
from windlass.server.page import Page, Pages
from windlass.server.parts import Parts
from windlass.server.private import write_private
from windlass.server.projects import routes as project_routes
from windlass.server.queues import routes as queue_routes
from windlass.server.quotas import routes as quota_routes
from windlass.server.reading import spec_of
from windlass.server.runs import leftovers, offline, system_routes
from windlass.server.runs import routes as run_routes
from windlass.server.runs.closing import Closing
from windlass.server.runs.pulse import Pulse
from windlass.server.runs.retention import Retention
from windlass.server.runs.tables import tracking as tracking_tables
from windlass.server.saved import routes as saved_routes
from windlass.server.secrets import routes as secret_routes
from windlass.server.sessions import login_routes, oidc_routes, pages
from windlass.server.sessions import routes as session_routes
from windlass.server.sessions.oidc import Issuer
from windlass.server.sessions.passwords import Passwords
from windlass.server.sessions.service import Ages, Sessions
from windlass.server.settings import DAY_MS, Settings
from windlass.server.status import prometheus
from windlass.server.status import routes as status_routes
from windlass.server.storage.moving import Moving
from windlass.server.storage.opening import open_storage
from windlass.server.storage.reading import Shelf
from windlass.server.store.base import Store
from windlass.server.store.claim import Claim
from windlass.server.store.open import open_store
from windlass.server.studies import routes as study_routes
from windlass.server.studies.asking import Sampling
from windlass.server.studies.tuning import Tuning
from windlass.server.troubles import Troubles
from windlass.server.usage import budgets
from windlass.server.usage import routes as usage_routes
from windlass.server.usage.meter import Meter
from windlass.server.users import credential_routes
from windlass.server.users import routes as user_routes
from windlass.server.users.removal import forget_secrets

log = logging.getLogger("windlass.server")


def create_app(parts: Parts) -> FastAPI:
    """The application over parts that run."""
    app = Application(
        Rules.answering_to(
            parts.settings.names, parts.settings.origins, parts.settings.artifact_bytes
        ),
        parts.settings.path,
        title="Windlass",
        version=__version__,
    )
    app.state.parts = parts
    app.state.access = parts.access
    audit_refusals.install(app, parts.refusals)
    for routes in (
        mlflow_routes,  # the first: routes with parameters are tried in turn, and metrics are many
        status_routes, project_routes, user_routes, credential_routes, rekey_routes,
        job_routes, study_routes, run_routes, system_routes, offline, prometheus,
        output_routes, order_routes, recipe_routes, worker_routes, mirror_routes, bundle_routes,
        node_routes, engine_routes, queue_routes, quota_routes, limit_routes, usage_routes,
        event_routes,
        audit_routes,
        secret_routes, checkpoint_routes, artifact_routes, model_routes, board_routes,
        saved_routes,
        session_routes, login_routes, oidc_routes, pages,
    ):  # fmt: skip
        # They have their whole paths: `include_router` would build each of them a second time.
        app.router.routes.extend(routes.router.routes)
    app.router.routes.append(Pages(Page(parts.settings.path)))
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
    # The database's: servers of one database agree on the time, whatever their own clocks say.
    clock = SystemClock(await store.read(leases.database_now_ms))
    troubles = Troubles(clock)
    hub, feed = Hub(), Feed(store, troubles=troubles)
    sealer = sealing.load(settings.home / "kek")
    attempt_tokens = tokens.AttemptTokens(sealer)
    access = Access(store, sealer, tokens.finder(store))
    store.listen(TOPIC, access.forget)
    sessions = Sessions(
        store, access, Passwords(), Ages(settings.session_idle_ms, settings.session_age_ms),
        _issuer(settings),
    )  # fmt: skip
    access.find_session = sessions.find
    local = engine_registry.load("local")(
        settings.home, worker_command, fake_nodes=settings.fake_nodes,
        fake_gpus=settings.fake_gpus, isolation=settings.isolation, uids=settings.uids,
    )  # fmt: skip
    leadership = loops.Leadership(
        store,
        f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        home_id(settings.home),
        settings.lease_ms,
    )
    wake_admit, wake_reconcile, wake_expire = loops.Bell(0.02), loops.Bell(), loops.Bell()
    wake_meter, wake_studies = loops.Bell(), loops.Bell(0.02)
    wake_closing = loops.Bell(0.05)
    wake_storage = loops.Bell(0.2)
    storage = open_storage(settings.storage) if settings.storage else None
    shelf = Shelf(store, storage)
    closing = Closing(store, tracking, clock, ring=wake_closing.ring)

    def poke(*topics: str) -> None:
        if "reconcile" in topics:
            wake_reconcile.ring()
        if "expire" in topics:
            wake_expire.ring()
        for topic in topics:
            if topic.startswith("over:"):
                closing.hint(topic[5:])
                wake_storage.ring()
        hub.poke(*topics)

    engines = Fleet(
        local, store, clock, settings.home, worker_command, settings.url,
        offers=settings.loops, changed=lambda: poke("admit"), troubles=troubles,
    )  # fmt: skip
    reconcile = Reconcile(
        store, clock, engines, guard=leadership.guard,
        launch_facts=lambda job, attempt: launch_facts(settings, job, attempt),
        worker_token=attempt_tokens.worker_token, jitter=random.random,
        ttl_ms=settings.ttl_ms, poke=poke,
        leftovers=lambda attempt, spec, node: leftovers.of_attempt(
            tracking, settings.attempt_folder(attempt["id"], node), attempt, spec
        ),
        troubles=troubles,
    )  # fmt: skip
    admit = Admit(
        store, clock, guard=leadership.guard, new_attempt=attempt_tokens.new_attempt,
        started=reconcile.hint, ttl_ms=settings.ttl_ms, base=settings.scheduling,
        troubles=troubles,
    )  # fmt: skip
    expire = Expire(
        store, tracking, clock, engines, guard=leadership.guard,
        job_folder=settings.folder_of, shelf=shelf, troubles=troubles,
    )  # fmt: skip
    retention = Retention(
        store, tracking, clock, ttl_ms=settings.ttl_ms, guard=leadership.guard
    )  # fmt: skip
    meter = Meter(
        store, clock, guard=leadership.guard, wished=reconcile.hint, troubles=troubles
    )  # fmt: skip
    sampling = Sampling()
    studies = Tuning(
        store, tracking, clock, sampling, guard=leadership.guard, wished=reconcile.hint,
        checkpoints_of=settings.checkpoints_of, ring=wake_studies.ring,
        troubles=troubles,
    )  # fmt: skip
    blobs = Blobs(settings.home / "blobs", shelf, came=wake_storage.ring)
    parts = Parts(
        settings, store, tracking, clock, hub, feed, access, attempt_tokens, blobs, engines,
        Fits(node_service.ReadyNodes(store)), admit, reconcile, clock.now_ms(),
        Chain(store, settings.home, troubles), Refusals(store, troubles=troubles),
        Cleaning(store, tracking, clock, settings.checkpoints_of, troubles), sessions, studies,
        Pulse(store, tracking, troubles=troubles), shelf, troubles, leadership,
    )  # fmt: skip
    await first_key(settings, access)
    await walls.check(store)
    owners = _Owners(store, reconcile)
    await engines.start(owners.hint)
    feed.start()
    parts.pulse.start()
    await parts.chain.start()
    parts.refusals.start()
    parts.cleaning.start()
    store.listen(feeds.TOPIC, wake_admit.ring)
    store.listen(feeds.TOPIC, studies.hear)
    store.listen(budgets.TOPIC, wake_meter.ring)
    every = 0.25 if store.dialect == "postgresql" else 5.0
    tasks = [asyncio.create_task(_tend(parts), name="tend")]
    if settings.loops:
        await engines.offer()

        async def begin() -> None:
            await engines.offer()
            await reconcile.adopt()

        turns = {
            "admit": (admit.turn, wake_admit, every),
            "reconcile": (reconcile.turn, wake_reconcile, 5.0),
            "expire": (expire.turn, wake_expire, 60.0),
            "retention": (retention.turn, loops.Bell(), 600.0),
            "meter": (meter.turn, wake_meter, 10.0),
            "closing": (closing.turn, wake_closing, 60.0),
            "studies": (studies.turn, wake_studies, 5.0),
        }
        if storage is not None:
            moving = Moving(
                store, clock, storage, settings, shelf, guard=leadership.guard,
                gather=partial(gather_job, parts), troubles=troubles,
            )  # fmt: skip
            turns["storage"] = (moving.turn, wake_storage, 5.0)
        tasks.append(
            asyncio.create_task(
                loops.lead(leadership, begin, turns, lost=admit.forget, troubles=troubles),
                name="lead",
            )
        )
    try:
        yield parts
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await leadership.resign()
        await sampling.close()
        await parts.cleaning.close()
        await parts.refusals.close()
        await parts.chain.close()
        await parts.pulse.close()
        await feed.close()
        await engines.stop()


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


def _issuer(settings: Settings) -> Issuer | None:
    if settings.oidc is None:
        return None
    return Issuer(settings.oidc, f"{settings.address}/api/v1/login/oidc/back")


async def _tend(parts: Parts) -> None:
    """Small chores, once a minute: last use of keys, used signatures, code nobody needs."""
    chores: dict[str, Callable[[], Awaitable[Any]]] = {
        "keys": parts.access.tend,
        "jobs of removed projects": partial(project_routes.stop_jobs, parts),
        "secrets": partial(parts.store.write, forget_secrets),
        "sessions": parts.sessions.tend,
        "checkpoints": parts.cleaning.turn,
    }
    handling = parts.troubles.of("chores")
    turn = 0
    while True:
        await asyncio.sleep(60)
        turn += 1
        due = dict(chores)
        if turn % 60 == 0:
            due["old code"] = partial(_sweep, parts)
        for name, chore in due.items():
            try:
                await chore()
            except Exception as err:  # the others are done all the same
                handling.waits(name, err)
            else:
                handling.well(name)


async def _sweep(parts: Parts) -> None:
    old = parts.clock.now_ms() - DAY_MS
    while await parts.store.write(partial(forget, before_ms=old)) == FORGOTTEN:
        pass
    named = await parts.store.read(wanted)
    await asyncio.to_thread(parts.blobs.sweep, named, old)


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
    spec = spec_of(job)
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
        "git": _git(spec),
        "blob_dir": str(settings.home / "blobs" / job["project_id"]),
        "cache_dir": str(settings.home / "cache"),
        "checkpoint_dir": str(settings.checkpoints_of(job["id"])),
        "resume": spec.retry.resume,
        "keep": spec.outputs.keep,
        "host": "127.0.0.1",
        "ifname": "lo",
        "python": spec.environment.python,
        "image": spec.environment.image,
        "vars": {**spec.environment.vars, **_params(spec)},
        "grace_ms": spec.limits.grace,
        "idle_ms": spec.limits.idle,
        "on_idle": "restart" if "hung" in spec.retry.on else "report",
        "log_rate": spec.limits.log_rate,
        "lease_seconds": None,
        "beat_seconds": 10,
        "cgroups": True,
        "isolation": {"level": spec.isolation.level, "network": spec.isolation.network},
        "max_processes": spec.limits.processes,
        "max_disk_bytes": min(filter(None, (spec.limits.disk, settings.job_disk)), default=0),
        "retry_log_patterns": [
            rule[4:] for rule in (*spec.retry.on, *spec.retry.never) if rule.startswith("log:")
        ],
        "respawn": _respawn(spec),
        "pickup": spec.metrics.pickup,
        "parse": list(spec.metrics.parse),
        "sampling": True,
    }


def _git(spec: JobSpec) -> dict[str, Any] | None:
    code = spec.code
    return {"url": code.git, "ref": code.ref, "commit": code.commit} if code.git else None


def _params(spec: JobSpec) -> dict[str, str]:
    """What `windlass.context().params` reads."""
    return {"WINDLASS_PARAMS": json.dumps(spec.params)} if spec.params else {}


def _respawn(spec: JobSpec) -> dict[str, Any] | None:
    """How a worker starts ranks again while the others go on; None: it does not."""
    if spec.on_member_loss != "continue":
        return None
    retry = spec.retry
    return {
        "times": retry.times,
        "on": list(retry.on),
        "never": list(retry.never),
        "backoff_ms": retry.backoff,
        "backoff_cap_ms": retry.backoff_cap,
    }


def _describing(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """The OpenAPI document, made at the first question."""
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(describe(app))
        return made

    return openapi
