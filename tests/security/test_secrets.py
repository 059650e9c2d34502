"""Secrets of jobs (R-S15): they reach the ranks that name them, and nothing and nobody else."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import Connection, select, update

from windlass.client import Job
from windlass.core.access import CallerKind, Principal, ProjectRole, rights_in
from windlass.core.errors import Internal, InvalidInput, NotFound
from windlass.server.access import sealing
from windlass.server.access.rekey import rekey
from windlass.server.access.rekey_routes import SEALED
from windlass.server.access.sealing import Sealer
from windlass.server.secrets import service
from windlass.server.secrets.tables import secrets
from windlass.server.store.base import Store
from windlass.testing.browser import Browser
from windlass.testing.people import People
from windlass.testing.platform import Platform, wait_for

VALUE = "known-Secret/Value+0123456789"
OWN = "own-Secret-of-one-user-77"
PASSWORD = "a password that nobody would guess 4711"
PEM = "-----BEGIN THING-----\nQUJDREVGR0hJSktMTU5PUA\nab\n-----END THING-----"
KEYS = {"aaaaaaaa": b"1" * 32, "bbbbbbbb": b"2" * 32}


def who(project: str = "1", user: str = "a") -> Principal:
    return Principal(
        CallerKind.USER, project * 32, user * 32, f"user-{user}", f"project-{project}",
        rights=rights_in(None, ProjectRole.MAINTAINER),
    )  # fmt: skip


def put(store: Store, sealer: Sealer, name: str, value: str, caller: Principal, own: bool) -> int:
    view = asyncio.run(
        store.write(lambda conn: service.put(conn, sealer, caller, name, value, own=own, now_ms=5))
    )
    return view.version


def opened(store: Store, sealer: Sealer, caller: Principal, *names: str) -> dict[str, str]:
    job = {"project_id": caller.project_id, "user_id": caller.user_id}
    rows = asyncio.run(store.read(lambda conn: service.sealed_for(conn, job, names)))
    values, closed = service.opened(sealer, rows)
    assert not closed, closed
    return values


def test_a_job_gets_the_newest_value_and_its_users_own_first(store: Store) -> None:
    sealer = Sealer(KEYS)
    assert put(store, sealer, "TOKEN", "first", who(), False) == 1
    assert put(store, sealer, "TOKEN", "second", who(), False) == 2
    put(store, sealer, "TOKEN", "of a alone", who(), True)
    put(store, sealer, "OTHER", "elsewhere", who("2"), False)
    assert opened(store, sealer, who(), "TOKEN", "OTHER") == {"TOKEN": "of a alone"}
    assert opened(store, sealer, who(user="b"), "TOKEN") == {"TOKEN": "second"}


def test_nobody_sees_or_names_what_is_anothers(store: Store) -> None:
    sealer = Sealer(KEYS)
    put(store, sealer, "SHARED", VALUE, who(), False)
    put(store, sealer, "MINE", VALUE, who(), True)
    seen = {
        user: [
            item.name
            for item in asyncio.run(
                store.read(lambda conn, user=user: service.page(conn, who(user=user)))
            ).items
        ]
        for user in "ab"
    }
    assert seen == {"a": ["MINE", "SHARED"], "b": ["SHARED"]}
    for caller, name in ((who(user="b"), "MINE"), (who("2"), "SHARED")):
        with pytest.raises(InvalidInput) as refused:
            asyncio.run(store.read(lambda conn, c=caller, n=name: service.require(conn, c, [n])))
        others = {"MINE", "SHARED"} - {name}
        shown = refused.value.message.partition("known:")[2]
        assert ("SHARED" in shown) == (caller.project_id == "1" * 32), (shown, others)
    with pytest.raises(NotFound):
        asyncio.run(
            store.write(lambda conn: service.remove(conn, who(user="b"), "MINE", own=True))
        )


def test_a_sealed_value_opens_only_where_it_was_put(store: Store) -> None:
    sealer = Sealer(KEYS)
    put(store, sealer, "ONE", VALUE, who(), False)
    put(store, sealer, "TWO", "another", who(), False)
    put(store, sealer, "ONE", "of the other project", who("2"), False)

    def swap(conn: Connection) -> None:
        sealed = conn.execute(
            select(secrets.c.sealed).where(
                secrets.c.name == "ONE", secrets.c.project_id == "1" * 32
            )
        ).scalar_one()
        conn.execute(update(secrets).where(secrets.c.name == "TWO").values(sealed=sealed))
        conn.execute(update(secrets).where(secrets.c.project_id == "2" * 32).values(sealed=sealed))

    asyncio.run(store.write(swap))
    for caller, name in ((who(), "TWO"), (who("2"), "ONE")):
        with pytest.raises(AssertionError, match=f"the secret {name} does not open"):
            opened(store, sealer, caller, name)


def test_secrets_move_to_a_new_key_encryption_key(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "kek"
    sealer = sealing.load(path)
    for name in ("A", "B", "C"):
        put(store, sealer, name, VALUE + name, who(), False)
    assert asyncio.run(rekey(store, sealer, path, SEALED, drop_old=False)) == 3
    asyncio.run(rekey(store, sealer, path, SEALED, drop_old=True))
    fresh = sealing.load(path)
    assert len(fresh.keks) == 1
    assert opened(store, fresh, who(), "A", "B", "C") == {n: VALUE + n for n in "ABC"}


# The whole


PRINTS = """
import base64, os, signal, sys, time, urllib.parse
value, pem = os.environ['KNOWN'], os.environ['PEM']
print('plain', value, flush=True)
os.write(1, value[:9].encode()); time.sleep(0.2); os.write(1, value[9:].encode() + b'\\n')
print('basic', base64.b64encode(b'user:' + value.encode()).decode())
print('url', urllib.parse.quote(value, safe=''))
print(pem, file=sys.stderr)
def fail(number, frame):
    raise RuntimeError('it fails with ' + value)
signal.signal(signal.SIGTERM, fail)
if 'now' in sys.argv:
    fail(0, None)
time.sleep(600)
"""


class Scene:
    """A server with secrets of every kind, and a job that shouts its own from the roofs."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        for name, value, more in (
            ("KNOWN", VALUE, ()), ("PEM", PEM, ()), ("OWN", OWN, ("--own",)),
        ):  # fmt: skip
            done = platform.cli("secret", "set", name, *more, input=value + "\n")
            assert done.returncode == 0, done.stderr
        self.others = self.credentials()
        self.job = self.shout("shouting")
        platform.wait_state(self.job, "running")
        wait_for(lambda: "url" in platform.logs(self.job), 15, "it has shouted")

    def shout(self, name: str, *words: str) -> Job:
        return self.platform.submit(
            [sys.executable, "-c", PRINTS, *words], name=name,
            environment={"secrets": ["KNOWN", "PEM", "OWN"]}, retry={"times": 0},
        )  # fmt: skip

    def credentials(self) -> dict[str, str]:
        """Of every other kind that there is: made, used, and looked for ever after."""
        platform = self.platform
        people = People(platform)
        ann = people.user("ann", role="member")
        ann.ok("PUT", "/password", {"new": PASSWORD})
        people.owner.ok("POST", "/users/ann/password-link", {})
        wrong = people.anonymous.call("POST", "/login", {"user": "ann", "password": PASSWORD[1:]})
        assert wrong.status_code == 401
        with Browser(platform.url) as browser:
            assert browser.call("POST", "/login", {"user": "ann", "password": PASSWORD}).is_success
            assert browser.call("GET", "/jobs").is_success
            cookies = list(browser.cookies.values())
        fresh = people.key("ann", "default")
        token = people.token(fresh, "read").token
        link = fresh.ok("POST", "/sessions/links", {})["url"]
        return {
            "password": PASSWORD, "wrong password": PASSWORD[1:], "token": token,
            "link": re.split("[#/=]", link)[-1], "second key": fresh.secret_key,
            **{f"cookie {at}": value for at, value in enumerate(cookies)},
        }  # fmt: skip

    def rank(self) -> int:
        about = json.loads((self.platform.attempts(self.job)[-1] / "processes.json").read_text())
        return int(about["ranks"][0]["pid"])


def needles(scene: Scene) -> dict[str, bytes]:
    """Every secret there is, in the forms in which it could lie about."""
    platform = scene.platform
    credentials = platform.credentials()
    kek = (platform.home / "kek").read_text().split()[1]
    found = {"access secret": credentials["secret_key"], "kek": kek, **scene.others}
    assert all(len(value) >= 16 for value in found.values()), found
    for name, value in (("KNOWN", VALUE), ("OWN", OWN), ("PEM line", PEM.splitlines()[1])):
        found[name] = value
        found[f"{name} in base64"] = base64.b64encode(value.encode()).decode().rstrip("=")[:-1]
        found[f"{name} quoted"] = quote(value, safe="")
    return {name: value.encode() for name, value in found.items()}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("secrets")
    with Platform(folder / "home") as platform:
        found = Scene(platform)
        yield found


def test_the_ranks_find_their_secrets_and_the_log_shows_stars(scene: Scene) -> None:
    environ = Path(f"/proc/{scene.rank()}/environ").read_bytes().split(b"\0")
    assert f"KNOWN={VALUE}".encode() in environ
    assert f"OWN={OWN}".encode() in environ
    text = scene.platform.logs(scene.job)
    assert "plain ***" in text
    assert re.search(r"basic \w*\*\*\*", text)
    assert "url ***" in text
    assert text.count("***") == 5


def test_no_process_but_the_ranks_holds_a_secret(scene: Scene) -> None:
    """In its environment or on its command line; processes of other tests have other secrets."""
    ranks = {scene.rank()}
    wanted = needles(scene)
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("environ", "cmdline"):
            try:
                content = (folder / name).read_bytes()
            except OSError:
                continue
            held = [word for word, value in wanted.items() if value in content]
            if int(folder.name) in ranks:
                assert not {"access secret", "kek", *scene.others} & set(held)
            else:
                assert not held, (folder.name, name, held)


def test_no_answer_of_the_api_holds_a_secret(scene: Scene) -> None:
    platform, job = scene.platform, scene.job.id
    paths = [
        "/secrets", "/audit?limit=1000", "/audit/export", "/audit?chain=server", "/jobs",
        f"/jobs/{job}", f"/jobs/{job}/events", f"/jobs/{job}/logs",
        f"/jobs/{job}/logs?format=json", "/keys", "/tokens", "/users", "/sessions", "/projects",
        f"/jobs/{job}/why", f"/jobs/{job}/metrics", "/status", "/nodes", "/openapi.json",
    ]  # fmt: skip
    stacks = platform.call("POST", f"/jobs/{job}/debug", {"kind": "stack"})
    texts = {path: platform.call("GET", path).content for path in paths}
    texts["stacks"] = stacks.content
    for path, content in texts.items():
        held = [word for word, value in needles(scene).items() if value in content]
        assert not held, (path, held)
    for path in ("/secrets/KNOWN", "/me/secrets/OWN"):
        assert platform.call("GET", path).status_code in (404, 405)


def test_what_is_wrong_with_a_secret_is_told_without_it(scene: Scene) -> None:
    for body in (
        {"value": VALUE * 3000}, {"value": 5, "valeu": VALUE}, {"value": [VALUE]},
        {"value": VALUE + "\0"},
    ):  # fmt: skip
        answer = scene.platform.call("PUT", "/secrets/KNOWN", body)
        assert answer.status_code == 422, answer.text
        assert VALUE not in answer.text and "known-Secret" not in answer.text


def test_the_worker_is_told_over_its_token_alone(scene: Scene) -> None:
    """The answer that holds the values needs the attempt's own token; it is in no file."""
    folder = scene.platform.attempts(scene.job)[-1]
    assert VALUE not in (folder / "launch.json").read_text()
    token = (folder / "token").read_text().strip()
    answer = scene.platform.call("GET", "/worker/rendezvous?node=local", token=token)
    assert answer.json()["rendezvous"]["secrets"]["KNOWN"] == VALUE
    for path in ("/worker/rendezvous?node=local",):
        assert scene.platform.call("GET", path).status_code == 403
    run_token = Path(f"/proc/{scene.rank()}/environ").read_bytes()
    found = re.search(rb"WINDLASS_TOKEN=(\S+?)\0", run_token)
    assert found
    refused = scene.platform.call("GET", "/worker/rendezvous?node=local", token=found[1].decode())
    assert refused.status_code == 403


def test_nothing_on_disk_holds_a_secret_after_a_crash(scene: Scene, tmp_path: Path) -> None:
    """The database, its log, the server's and the worker's logs, exit records; last, for the
    server is killed: what it leaves behind is looked at as it lies."""
    platform = scene.platform
    platform.client.jobs.stop(scene.job.id)
    assert platform.wait(scene.job).state == "cancelled"
    failed = platform.wait(scene.shout("failing", "now"))
    assert failed.state == "failed"
    assert "it fails with ***" in failed.reason, failed.reason
    folder = platform.attempts(scene.job)[-1]
    token = (folder / "token").read_text().strip()
    assert platform.call("GET", "/worker/rendezvous?node=local", token=token).status_code in (
        401, 409,
    )  # fmt: skip
    platform.kill()
    allowed = {platform.home / "credentials.json", platform.home / "kek"}
    wanted = needles(scene)
    looked = 0
    for path in platform.home.rglob("*"):
        if not path.is_file() or path in allowed:
            continue
        content = path.read_bytes()
        looked += 1
        held = [word for word, value in wanted.items() if value in content]
        assert not held, (path, held)
    assert looked > 10
    for path in allowed:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_changed_secret_reaches_the_next_attempt_and_a_removed_one_ends_it(
    tmp_path: Path,
) -> None:
    with Platform(tmp_path / "home") as platform:
        platform.client.secrets.set("CHANGING", "the-first-value")
        say = (
            "import os, sys, time, hashlib; v = os.environ['CHANGING']; "
            "print(hashlib.sha256(v.encode()).hexdigest()[:8], flush=True); "
            "time.sleep(0 if 'second' in v else 600)"
        )
        job = platform.submit([sys.executable, "-c", say], environment={"secrets": ["CHANGING"]})
        platform.wait_state(job, "running")
        wait_for(lambda: platform.logs(job).strip(), 10, "it says which value it has")
        first = platform.logs(job)
        platform.client.secrets.set("CHANGING", "the-second-value")
        platform.client.jobs.restart(job.id)
        assert platform.wait(job).state == "succeeded"
        assert platform.logs(job) != first

        held = platform.submit("true", environment={"secrets": ["CHANGING"]}, hold=True)
        platform.client.secrets.delete("CHANGING")
        platform.client.jobs.release(held.id)
        ended = platform.wait(held)
        assert ended.state == "failed"
        assert "CHANGING" in ended.reason and "removed" in ended.reason
        with pytest.raises(InvalidInput, match="no secret CHANGING"):
            platform.submit("true", environment={"secrets": ["CHANGING"]})


def test_a_secret_is_no_variable_of_the_platform_and_no_other_variable(tmp_path: Path) -> None:
    with Platform(tmp_path / "home") as platform:
        platform.client.secrets.set("RANK", "not-a-rank")
        platform.client.secrets.set("TOKEN", "a-real-token")
        with pytest.raises(InvalidInput, match="RANK"):
            platform.submit("true", framework="pytorch", environment={"secrets": ["RANK"]})
        with pytest.raises(InvalidInput, match="both"):
            platform.submit("true", environment={"secrets": ["TOKEN"], "vars": {"TOKEN": "x"}})


def test_the_value_never_stands_on_the_command_line(tmp_path: Path) -> None:
    with Platform(tmp_path / "home") as platform:
        assert platform.cli("secret", "set", "A", "value-as-a-word").returncode == 2
        assert platform.cli("secret", "set", "A", input="").returncode == 2
        done = platform.cli("secret", "set", "A", input="abc\n")
        assert done.returncode == 0 and "too short to be masked" in done.stderr
        listed = json.loads(platform.cli("secret", "ls", "-o", "json").stdout)["items"]
        assert [(each["name"], each["version"], each["own"]) for each in listed] == [
            ("A", 1, False)
        ]
        assert platform.cli("secret", "rm", "A").returncode == 0
        assert platform.cli("secret", "rm", "A").returncode != 0


def test_the_sealer_of_the_server_is_not_in_its_database(tmp_path: Path) -> None:
    sealing.load(tmp_path / "kek")
    assert (tmp_path / "kek").stat().st_mode & 0o777 == 0o600
    os.chmod(tmp_path / "kek", 0o644)
    with pytest.raises(Internal, match="readable by others"):
        sealing.load(tmp_path / "kek")
