"""Several servers on one database, and the one that leads stops, or is killed: R-F20, R-F22.

Who wrote what is told by PostgreSQL itself: each server has a role of its own, and a trigger notes
with every event whose session wrote it and which epoch was the newest in that transaction.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Client
from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for
from windlass.testing.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("dialect", ["postgresql"])]

LEASE_SECONDS = 4
GPU = {"worker": {"gpus": 1}}

_WATCH = """
CREATE TABLE written (
    event bigint, kind text, job text, server text, epoch bigint, state text,
    at timestamptz DEFAULT clock_timestamp()
);
CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO written SELECT NEW.id, NEW.kind, NEW.job_id, session_user, epoch, NEW.state
    FROM leases WHERE name = 'loops';
    RETURN NEW;
END $$;
CREATE TRIGGER witness AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION witness();
"""


class Servers:
    """Some servers, `a` first; all of them reach the same workers."""

    def __init__(self, folder: Path, postgres: PostgresServer, url: str, *args: str) -> None:
        self._postgres = postgres
        self._url = url
        self._args = ("--lease", f"{LEASE_SECONDS}s", *args)
        self._folder = folder
        self._stack = ExitStack()
        self.database = url.partition("?")[0].rpartition("/")[2]
        self.all: dict[str, Platform] = {}

    def add(self, name: str, *args: str, **env: str) -> Platform:
        known = [row[0] for row in self._postgres.execute("SELECT rolname FROM pg_roles")]
        if name not in known:
            self._postgres.execute(f"CREATE ROLE {name} SUPERUSER LOGIN")
        url = self._url.replace(f"{self._postgres.user}@", f"{name}@")
        words = (*self._args, *args)
        if not self.all:
            made = Platform(self._folder / name, *words, database=url)
        else:
            first = next(iter(self.all.values()))
            made = first.beside(self._folder / name, *words, database=url)
        made.env |= env
        self.all[name] = self._stack.enter_context(made)
        made.env.pop("WINDLASS_FAILPOINT", None)
        if len(self.all) == 1:
            self.query(_WATCH)
        return made

    def query(self, statement: str) -> list[Any]:
        return self._postgres.execute(statement, self.database)

    def leader(self) -> tuple[str, int] | None:
        """Who leads, by the database's word, and since which epoch; None: nobody just now."""
        [(holder, epoch, left)] = self.query(
            "SELECT holder, epoch, until_ms - floor(extract(epoch FROM clock_timestamp()) * 1000)"
            " FROM leases WHERE name = 'loops'"
        )
        names = {(one.home / "id").read_text().strip(): name for name, one in self.all.items()}
        name = names.get(str(holder).partition("/")[0])
        return (name, int(epoch)) if name and left > 0 else None

    def one_leader_an_epoch(self) -> dict[int, str]:
        """What loops write in one epoch is written by one server."""
        writers: dict[int, set[str]] = defaultdict(set)
        for epoch, server in self.query(
            "SELECT DISTINCT epoch, server FROM written WHERE kind IN ('moved', 'attempt')"
        ):
            writers[epoch].add(server)
        doubled = {epoch: names for epoch, names in writers.items() if len(names) > 1}
        assert not doubled, f"more than one server wrote in an epoch: {doubled}"
        return {epoch: names.pop() for epoch, names in writers.items()}

    def no_device_twice(self) -> None:
        """R-I8: no two attempts held one GPU at once, and no job had two attempts at once."""
        held: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
        for job, placement, since, until in self.query(
            "SELECT job_id, placement, created_ms, over_ms FROM attempts"
        ):
            span = (since, until if until is not None else 1 << 62, job)
            held["job", job].append(span)
            for placed in json.loads(placement):
                for gpu in placed["gpu_ids"]:
                    held[placed["node"], gpu].append(span)
        for what, spans in held.items():
            spans.sort()
            for earlier, later in zip(spans, spans[1:], strict=False):
                assert later[0] >= earlier[1], f"R-I8: {what}: {earlier} and {later}"

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *about: object) -> None:
        self._stack.close()


@pytest.fixture
def servers(
    tmp_path: Path, postgres: PostgresServer, database_url: str, server_args: tuple[str, ...]
) -> Iterator[Servers]:
    with Servers(tmp_path, postgres, database_url, *server_args) as made:
        yield made


@pytest.mark.parametrize("server_args", [("--fake-nodes", "1", "--fake-gpus", "1")])
def test_r_f20_a_leader_that_was_stopped_writes_nothing_when_it_wakes_up(
    servers: Servers,
) -> None:
    """It is stopped between a decision and its commit, which is where it does most harm: when it
    wakes up the GPU it has chosen is another's, and the job still waits."""
    old = servers.add("a", WINDLASS_FAILPOINT="before-start-commit:stop@2")
    new = servers.add("b")
    assert servers.leader() == ("a", 1)
    new.client.queues.set("other")
    trains = new.witness("train", 10_000, 0.2)
    wait_for(lambda: new.said(trains, "saved"), 30, "one trains all the while")
    late = new.witness("until", new.gate("late"), name="late", roles=GPU)
    wait_for(old.frozen, 30, "it is stopped with a start in its hands")
    stopped = time.monotonic()
    new.client.queues.set("default", paused=True)
    wait_for(lambda: servers.leader() == ("b", 2), 60, "the other leads")
    took = new.witness("until", new.gate("took"), queue={"name": "other"}, roles=GPU)
    new.wait_state(took, "running", seconds=60)
    new.client.queues.set("default", paused=False)
    wait_for(lambda: new.client.jobs.why(late.id)["sentence"], 10, "it waits for the GPU")
    time.sleep(max(0, stopped + 2 * LEASE_SECONDS - time.monotonic()))
    saved = len(new.said(trains, "saved"))
    old.thaw()
    words = ("another server leads now", "no longer leads 'loops': its epoch is 1, the newest 2")
    wait_for(lambda: any(word in old.log() for word in words), 30, "it learns of the new epoch")
    wait_for(lambda: len(new.said(trains, "saved")) > saved + 5, 60, "all goes on")
    assert new.client.jobs.get(late.id).state == "queued"
    assert old.client.jobs.get(took.id).state == "running", "it answers, too"
    for name in ("took", "late"):
        new.gate(name).touch()
    for job in (took, late):
        over = new.wait(job)
        assert (over.state, over.attempt) == ("succeeded", 1)
    old.client.jobs.stop(trains.id)
    assert new.wait(trains).state == "cancelled"
    assert servers.one_leader_an_epoch() == {1: "a", 2: "b"}
    servers.no_device_twice()
    invariants.check(new)


@pytest.mark.soak
@pytest.mark.parametrize(
    "server_args", [("--fake-nodes", "1", "--fake-gpus", "1", "--lease", "2s")]
)
def test_r_f20_stopped_at_any_moment_for_twice_its_lease(servers: Servers) -> None:
    """Twice: the leader is stopped while jobs come and go, another leads, and it comes back. Who
    leads may change in between, too: the lease is short, and the machine may be busy."""
    servers.add("a"), servers.add("b")
    api = servers.add("c", "--loops", "off")
    gate = api.gate()
    runs_on = api.witness("until", gate)
    with Stream(api, "exit", 0) as stream:
        for _ in range(2):
            done = len(stream.over)
            wait_for(lambda done=done: len(stream.over) > done + 3, 60, "jobs come and go")
            name, epoch = wait_for(servers.leader, 30, "one leads")
            servers.all[name].freeze()
            wait_for(
                lambda name=name: (servers.leader() or (name,))[0] != name, 60, "another leads"
            )
            time.sleep(2)
            servers.all[name].thaw()
            assert wait_for(servers.leader, 30)[1] > epoch
    gate.touch()
    assert (api.wait(runs_on).state, api.client.jobs.get(runs_on.id).attempt) == ("succeeded", 1)
    assert {job.state for job in api.client.jobs.list(limit=10_000)} == {"succeeded"}
    assert all(len(api.said(job.id, "began")) == 1 for job in api.client.jobs.list(limit=10_000))
    assert len(servers.one_leader_an_epoch()) >= 3
    servers.no_device_twice()
    invariants.check(api)


class Stream:
    """Jobs that are submitted one after the other, some of them always waiting."""

    BACKLOG = 12

    def __init__(self, platform: Platform, *words: object) -> None:
        self._platform = platform
        self._command = platform.witness_command(*words)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go)
        self._trouble: list[BaseException] = []
        self.submitted: list[str] = []
        self.over: list[tuple[float, str]] = []
        """When, and which job was seen to have ended."""

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._over.set()
        self._thread.join(120)
        if self._trouble and about[0] is None:
            raise self._trouble[0]

    def ended(self, since: float, until: float) -> int:
        return sum(since <= at < until for at, _ in list(self.over))

    def _go(self) -> None:
        try:
            with self._platform.new_client(60) as api:
                self._submit(api)
        except BaseException as err:
            self._trouble.append(err)

    def _submit(self, api: Client) -> None:
        seen: set[str] = set()
        until = 0.0
        while not self._over.is_set() or len(seen) < len(self.submitted):
            for job in api.jobs.list(state="succeeded", limit=200):
                if job.id in set(self.submitted) - seen:
                    seen.add(job.id)
                    self.over.append((time.monotonic(), job.id))
            if self._over.is_set():
                until = until or time.monotonic() + 90
                assert time.monotonic() < until, "all that were submitted end"
            elif len(self.submitted) - len(seen) < self.BACKLOG:
                self.submitted += [
                    api.jobs.submit({"run": self._command}).id
                    for _ in range(self.BACKLOG - len(self.submitted) + len(seen))
                ]
            time.sleep(0.1)


def leaders_killed(
    servers: Servers, dice: random.Random, every_seconds: float, kills: int, strict: bool
) -> None:
    """Whoever leads is killed again and again, and comes back as one of those that wait. Jobs are
    submitted all the while, through a server that never leads. `strict`: half of the calm rate is
    demanded; not in the ordinary run, since a rate on a busy machine proves nothing."""
    for name in "abc":
        servers.add(name)
    api = servers.add("d", "--loops", "off")
    with Stream(api, "exit", 0) as stream:
        wait_for(lambda: len(stream.over) > 5, 60, "jobs come and go")
        calm = None
        if strict:
            calm_from, calm_seconds = time.monotonic(), 2 * every_seconds
            time.sleep(calm_seconds)
            calm = stream.ended(calm_from, time.monotonic()) / calm_seconds
        began, killed = time.monotonic(), 0
        while killed < kills:
            found = servers.leader()
            if found is not None:
                victim = servers.all[found[0]]
                victim.kill()
                killed += 1
                time.sleep(dice.uniform(0, 0.5))  # as a supervisor would take
                victim.start()
            time.sleep(max(0, began + killed * every_seconds - time.monotonic()))
        now = time.monotonic()
        stormy = stream.ended(began, now) / (now - began)
    print(f"{stormy:.1f} jobs/s with a leader killed every {every_seconds} s, calm: {calm}")
    if calm is not None:
        assert stormy >= calm / 2
    assert stormy > 0, "work goes on between the kills"
    for job_id in stream.submitted:
        assert len(api.said(job_id, "began")) == 1, "it ran once"
    epochs = servers.one_leader_an_epoch()
    print(f"epochs: {epochs}")
    assert max(epochs) > kills, "each that came after it led with an epoch of its own"
    servers.no_device_twice()
    invariants.check(api)


@pytest.mark.parametrize("server_args", [("--fake-nodes", "1", "--lease", "1s")])
def test_r_f22_leaders_are_killed_again_and_again(servers: Servers, dice: random.Random) -> None:
    leaders_killed(servers, dice, every_seconds=4, kills=3, strict=False)


@pytest.mark.soak
@pytest.mark.parametrize("server_args", [("--fake-nodes", "1", "--lease", "1s")])
def test_r_f22_every_five_seconds_for_two_minutes(servers: Servers, dice: random.Random) -> None:
    leaders_killed(servers, dice, every_seconds=5, kills=24, strict=True)
