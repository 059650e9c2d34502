"""PostgreSQL stops, another takes its place, or a connection is cut in the middle of a commit:
R-F10, R-F11, R-F12."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from windlass.testing import invariants
from windlass.testing.platform import Platform, wait_for
from windlass.testing.postgres import PostgresServer
from windlass.testing.proxy import Proxy

pytestmark = pytest.mark.slow

only_postgres = pytest.mark.parametrize("dialect", ["postgresql"])


class Load:
    """Readers and submitters that ask on and keep every answer, and when they asked."""

    def __init__(self, platform: Platform, job_id: str) -> None:
        self.platform = platform
        self.job_id = job_id
        self.answers: list[tuple[float, httpx.Response]] = []
        self.acked: dict[str, str] = {}
        self._over = threading.Event()

    def refused(self, since: float = 0.0) -> int:
        """How often the API has said that the database is away, to who asked since then."""
        return self.codes(since)[503]

    def codes(self, since: float = 0.0) -> Counter[int]:
        return Counter(a.status_code for began, a in list(self.answers) if began >= since)

    @contextmanager
    def running(self) -> Iterator[Load]:
        threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join(120)

    def _ask(self, number: int) -> None:
        turn = 0
        while not self._over.is_set():
            turn += 1
            key = f"load-{number}-{turn}"
            submit = {"spec": {"run": ["true"], "name": key, "hold": True}}
            for method, path, body in (
                ("GET", f"/jobs/{self.job_id}", None),
                ("POST", "/jobs", submit),
                ("GET", "/jobs?limit=5", None),
                ("GET", "/status", None),
            ):
                began = time.monotonic()
                answer = self.platform.call(
                    method, path, body, headers={"Idempotency-Key": key} if body else None
                )
                self.answers.append((began, answer))
                if body and answer.status_code == 201:
                    self.acked[key] = answer.json()["id"]
            time.sleep(0.05)


@only_postgres
def test_r_f10_while_the_database_is_away_nothing_is_judged(
    any_platform: Platform, postgres: PostgresServer
) -> None:
    platform = any_platform
    runs_on, ends_meanwhile = platform.gate("on"), platform.gate("ends")
    long = platform.witness("until", runs_on)
    short = platform.witness("until", ends_meanwhile, 3)
    trains = platform.witness("train", 10_000, 0.1)
    for job in (long, short, trains):
        platform.wait_state(job, "running")
    wait_for(lambda: platform.said(trains, "saved"), 30, "one saves checkpoints")
    with Load(platform, long.id).running() as load:
        wait_for(lambda: len(load.acked) > 5, 20, "the load is on")
        postgres.kill()
        try:
            ends_meanwhile.touch()
            wait_for(lambda: platform.said(short, "ended"), 20, "one ends without a database")
            wait_for(lambda: load.refused() > 10, 20, "the API says that it is away")
            saved = len(platform.said(trains, "saved"))
            wait_for(
                lambda: len(platform.said(trains, "saved")) > saved + 5,
                what="it trains and saves on",
            )
        finally:
            postgres.start()
        back = time.monotonic()
        wait_for(
            lambda: any(at > back and a.status_code == 201 for at, a in list(load.answers)),
            10,
            "submits are taken again",
        )
    said_to_be_away(load)
    invariants.accepted(platform, load.acked)
    over = platform.wait(short)
    assert (over.state, over.exit_code, over.attempt) == ("failed", 3, 1)
    assert platform.client.jobs.get(long.id).state == "running"
    assert platform.client.jobs.get(trains.id).state == "running"
    newest = platform.said(trains, "saved")[-1]["step"]
    wait_for(
        lambda: any(c["step"] >= newest for c in platform.client.jobs.checkpoints(trains.id)),
        30,
        "what it saved meanwhile is registered",
    )
    platform.client.jobs.stop(trains.id)
    runs_on.touch()
    for job, state in ((long, "succeeded"), (trains, "cancelled")):
        over = platform.wait(job)
        assert (over.state, over.attempt) == (state, 1)


def said_to_be_away(load: Load) -> None:
    """Whoever could not be answered was told so, and nothing else."""
    codes = Counter(answer.status_code for _, answer in load.answers)
    print(f"answers: {dict(codes)}")
    assert set(codes) == {200, 201, 503}, [
        (a.status_code, a.text) for _, a in load.answers if a.status_code not in (200, 201, 503)
    ]
    away = [answer for _, answer in load.answers if answer.status_code == 503]
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in away)
    assert all(answer.json()["error"]["code"] == "unavailable" for answer in away)


@pytest.fixture
def pair(postgres: PostgresServer) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary of the test's own, and its standby."""
    with ExitStack() as stack:
        primary = PostgresServer()
        stack.callback(primary.remove)
        primary.start()
        primary.execute(f"CREATE DATABASE windlass OWNER {primary.user}")
        standby = primary.standby()
        stack.callback(standby.remove)
        yield primary, standby


@pytest.mark.parametrize("route", ["proxy", "hosts"])
def test_r_f11_a_standby_takes_over_and_nothing_acknowledged_is_lost(
    tmp_path: Path, pair: tuple[PostgresServer, PostgresServer], route: str
) -> None:
    """The server finds the new primary at the same address, or among the hosts it was given."""
    primary, standby = pair
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(primary.socket))
        url = primary.url("windlass", host="127.0.0.1", port=proxy.port)
        if route == "hosts":
            every = "&".join(f"host={each.directory}:5432" for each in pair)
            url = f"postgresql://{primary.user}@/windlass?{every}&target_session_attrs=read-write"
        platform = stack.enter_context(Platform(tmp_path / "home", database=url))
        runs_on, ends_meanwhile = platform.gate("on"), platform.gate("ends")
        long = platform.witness("until", runs_on)
        short = platform.witness("until", ends_meanwhile, 3)
        trains = platform.witness("train", 10_000, 0.1)
        for job in (long, short, trains):
            platform.wait_state(job, "running")
        wait_for(lambda: platform.said(trains, "saved"), 30, "one saves checkpoints")
        with Load(platform, long.id).running() as load:
            wait_for(lambda: len(load.acked) > 5, 20, "the load is on")
            primary.kill()
            ends_meanwhile.touch()
            wait_for(lambda: platform.said(short, "ended"), 20, "one ends without a database")
            wait_for(lambda: load.refused() > 10, 20, "the API says that it is away")
            refused = load.refused()
            proxy.turn_to(standby.socket)  # it is there, and does not take writes yet
            wait_for(lambda: load.refused() > refused + 10, 20, "that is no primary")
            saved = len(platform.said(trains, "saved"))
            standby.promote()
            acked = len(load.acked)
            wait_for(lambda: len(load.acked) > acked + 10, 20, "submits are taken again")
            back = time.monotonic()
            wait_for(lambda: load.codes(back).total() > 60, 20, "and all the rest")
            assert load.refused(back) == 0, "no connection to the old one is left"
            wait_for(lambda: len(platform.said(trains, "saved")) > saved + 5, what="it trains on")
        said_to_be_away(load)
        invariants.accepted(platform, load.acked)
        over = platform.wait(short)
        assert (over.state, over.exit_code, over.attempt) == ("failed", 3, 1)
        platform.client.jobs.stop(trains.id)
        runs_on.touch()
        for job, state in ((long, "succeeded"), (trains, "cancelled")):
            over = platform.wait(job)
            assert (over.state, over.attempt) == (state, 1)
        assert platform.log().count("leading with epoch") == 1, "the lease was copied, too"
        invariants.check(platform)


@pytest.fixture
def proxied(
    tmp_path: Path, postgres: PostgresServer, database_url: str
) -> Iterator[tuple[Platform, Proxy]]:
    with Proxy(postgres.socket) as proxy:
        name = database_url.partition("?")[0].rpartition("/")[2]
        url = postgres.url(name, host="127.0.0.1", port=proxy.port)
        with Platform(tmp_path / "home", "--loops", "off", database=url) as platform:
            yield platform, proxy
            proxy.heal()
            invariants.check(platform)


@only_postgres
def test_r_f12_a_submit_cut_anywhere_is_settled_by_its_key(
    proxied: tuple[Platform, Proxy], dice: random.Random
) -> None:
    platform, proxy = proxied
    acked: dict[str, str] = {}

    def submit(key: str) -> None:
        spec = {"run": ["true"], "name": key, "hold": True}
        acked[key] = platform.client.jobs.submit(spec, idempotency_key=key).id

    def spent(direction: str) -> int:
        """The bytes that one submit takes; others may speak meanwhile, so the least of some."""
        least = 1 << 30
        for number in range(5):
            before = proxy.passed[direction]
            submit(f"{direction}-{number}")
            least = min(least, proxy.passed[direction] - before)
        return least

    for direction, step in (("down", 6), ("up", 25)):
        whole = spent(direction)
        # The commit is at the end of the conversation: there closely, the rest here and there.
        counts = list(range(whole - 24 * step + dice.randrange(step), whole, step))
        for count in counts + [dice.randrange(1, whole) for _ in range(3)]:
            submit(f"{direction}-whole-{len(acked)}")  # it connects again after the last cut
            proxy.cut_after(max(1, count), direction)
            submit(f"{direction}-cut-{len(acked)}")
            proxy.heal()
    proxy.heal()
    print(f"{proxy.cuts} cuts")
    assert proxy.cuts >= 20
    invariants.accepted(platform, acked)
