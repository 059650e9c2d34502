"""TensorBoard as a job behind the server: kept apart from everything else. Who may come to it at
all: tests/security/test_board_door.py."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from windlass.client import boards
from windlass.client.jobs import Job
from windlass.core.errors import Unavailable
from windlass.testing import chromium, environments
from windlass.testing.browser import Browser
from windlass.testing.environments import environment
from windlass.testing.people import People
from windlass.testing.platform import Platform, wait_for

PASSWORD = "correct horse battery"
TRAIN = """
    import os, pathlib, windlass
    for step in range(100):
        windlass.log(step=step, loss=1 / (1 + step))
    trace = pathlib.Path(os.environ["WINDLASS_OUTPUT_DIR"], "profiles", "x.pt.trace.json")
    trace.parent.mkdir()
    trace.write_text("{}")
"""
ODD = """
    import os, socket
    os.chdir(os.environ["WINDLASS_RUN_DIR"])
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("board.sock")
    listening.listen()
    while True:
        plug, _ = listening.accept()
        asked = b""
        while b"\\r\\n\\r\\n" not in asked:
            piece = plug.recv(65536)
            if not piece:
                break
            asked += piece
        answers = {
            "/echo": "200 OK|Set-Cookie: a=b|Content-Security-Policy: none|"
                     "Content-Type: text/html|X-Other: y|Connection: upgrade||",
            "/elsewhere": "302 Found|Location: http://example.org/||",
            "/chunked": "200 OK|Transfer-Encoding: chunked||1|x|0||",
            "/huge": "200 OK|Content-Length: 99999999999||",
            "/short": "200 OK|Content-Length: 10||abc",
            "/nothing": "",
        }
        path = asked.split(b" ")[1].decode() if asked else "/nothing"
        if answers[path]:
            told = ("HTTP/1.0 " + answers[path]).replace("|", "\\r\\n").encode()
            plug.sendall(told + (asked if path == "/echo" else b""))
        plug.close()
"""


class Town:
    """A server with a job that logged, a job that answers oddly, and who may look at them."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform = platform
        People(platform).project("elsewhere")
        People(platform).user("stranger", project="elsewhere", role="maintainer")
        # So there are several people, and jobs, boards among them, are kept apart (level 1).
        assert platform.call("PUT", "/password", {"new": PASSWORD}).status_code == 204
        (folder / "train.py").write_text(textwrap.dedent(TRAIN))
        (folder / "odd.py").write_text(textwrap.dedent(ODD))
        jobs = platform.client.jobs
        self.odd = jobs.submit(run=[sys.executable, "odd.py"], code=folder, name="odd")
        self.train = jobs.submit(run=[sys.executable, "train.py"], code=folder, name="train")
        assert platform.wait(self.train).state == "succeeded", platform.logs(self.train)
        wait_for(lambda: self.about(self.odd)["ready"], 60, "the odd board answers")

    def about(self, job: Job | str) -> Any:
        ref = job if isinstance(job, str) else job.id
        answer = self.platform.call("GET", f"/jobs/{ref}/board")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def address(self, job: Job | str) -> str:
        return str(self.about(job)["url"])


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with Platform(tmp_path_factory.mktemp("home")) as platform:
        yield Town(platform, tmp_path_factory.mktemp("code"))


def get(address: str, method: str = "GET", **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.request(method, address, headers=sent, trust_env=False, timeout=60)


def test_a_board_is_told_of_no_credential_and_tells_the_browser_nothing_of_its_own(
    town: Town,
) -> None:
    answer = get(
        town.address(town.odd) + "echo", Cookie="__Host-windlass=x", X_Forwarded_For="1.2.3.4",
        Sec_Fetch_Site="none", Sec_Fetch_Mode="navigate", TE="trailers", Accept="text/html",
    )  # fmt: skip
    assert answer.status_code == 200
    told = answer.text.lower()
    assert "accept: text/html" in told and "connection: close" in told
    assert not [word for word in ("cookie", "forwarded", "authorization", "te:") if word in told]
    assert not {"set-cookie", "x-other", "connection"} & set(answer.headers)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts allow-downloads; default-src 'none'")
    assert "allow-same-origin" not in policy and "'self'" not in policy
    own = town.address(town.odd).partition("//")[2].split("/")[:3]
    assert f"connect-src {'/'.join(own)}/" in policy
    assert answer.headers["access-control-allow-origin"] == "null"
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("path", ["elsewhere", "chunked", "huge", "nothing"])
def test_what_is_no_plain_answer_is_a_502_in_words(town: Town, path: str) -> None:
    answer = get(town.address(town.odd) + path)
    assert answer.status_code == 502 and "the board does not answer" in answer.text
    assert "location" not in answer.headers


def test_half_an_answer_is_seen_to_be_half(town: Town) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        get(town.address(town.odd) + "short")


def test_an_address_is_of_one_job_and_cannot_be_changed(town: Town) -> None:
    address = town.address(town.odd)
    assert get(address + "echo").status_code == 200
    other = address.replace(town.odd.id, town.train.id)
    assert get(other + "echo").status_code == 401
    secret = urlsplit(address).path.split("/")[3]
    turned = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    for wrong in (turned, secret[:40], "x", secret.partition(".")[0] + ".", "0" * 8 + secret[8:]):
        assert get(address.replace(secret, wrong) + "echo").status_code == 401, wrong
    assert get(address.replace(town.odd.id, "odd") + "echo").status_code == 401


def test_a_page_of_another_origin_is_refused(town: Town) -> None:
    address = town.address(town.odd) + "echo"
    own = town.platform.url
    for origin in ("http://evil.example", own):
        for method in ("GET", "POST", "OPTIONS"):
            assert get(address, method, Origin=origin).status_code == 403, (origin, method)
    cross = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"}
    assert get(address, "POST", Origin="null", **cross).status_code == 200
    with_cookie = get(address, "POST", Origin="null", Cookie="__Host-windlass=x", **cross)
    assert with_cookie.status_code == 403
    elsewhere = get(f"{own}/api/v1/jobs", "POST", Origin="null", **cross)
    assert elsewhere.status_code == 403
    asked = get(address, "OPTIONS", Origin="null", **cross)
    assert asked.status_code == 204 and "POST" in asked.headers["access-control-allow-methods"]


def test_an_address_ends_with_the_session_that_asked_for_it(town: Town) -> None:
    with Browser(town.platform.url) as browser:
        assert browser.login("owner", PASSWORD).status_code == 204
        sent = browser.open(f"{town.platform.url}/tb/odd")
        assert sent.status_code == 303 and sent.headers["referrer-policy"] == "no-referrer"
        address = town.platform.url + sent.headers["location"]
        assert get(address + "echo").status_code == 200
        assert browser.call("POST", "/logout", {}).status_code == 204
        assert get(address + "echo").status_code == 401


def test_a_program_may_look_with_its_own_credential(town: Town) -> None:
    caller = People(town.platform).owner
    answer = caller.call("GET", f"/tb/{town.odd.id}/-/echo", root="")
    assert answer.status_code == 200 and "authorization" not in answer.text.lower()


def test_a_job_that_is_over_and_one_that_waits_say_so(town: Town) -> None:
    answer = get(town.address(town.train))
    assert answer.status_code == 410 and "train is over (succeeded)" in answer.text
    held = town.platform.submit("true", hold=True, name="held")
    answer = get(town.address(held))
    assert answer.status_code == 409 and "held is held" in answer.json()["error"]["message"]
    other = town.platform.submit([sys.executable, "-c", "import time; time.sleep(600)"])
    town.platform.wait_state(other, "running", seconds=60)
    answer = get(town.address(other))
    assert answer.status_code == 409 and "has no board" in answer.json()["error"]["message"]
    town.platform.client.jobs.stop(other.id, now=True)


def test_the_audit_log_never_has_an_address(town: Town) -> None:
    secret = urlsplit(town.address(town.odd)).path.split("/")[3]
    get(town.address(town.odd) + "echo", Origin="http://evil.example")

    def told() -> str:
        asked = "/audit?chain=server&limit=200&action=boards.look"
        return str(town.platform.call("GET", asked).text)

    wait_for(lambda: "boards.look" in told(), 60, "the refusal is told")
    assert town.odd.id in told() and secret[10:60] not in told()


def test_who_waits_for_a_board_asks_when_the_job_says_something_and_not_by_the_clock(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, http = town.platform.client.jobs, town.platform.client.http
    late = (  # it works for a while before it listens, as TensorBoard does
        "import os, socket, time\n"
        "time.sleep(1)\n"
        "os.chdir(os.environ['WINDLASS_RUN_DIR'])\n"
        "with socket.socket(socket.AF_UNIX) as listening:\n"
        "    listening.bind('board.sock')\n"
        "    listening.listen()\n"
        "    print('up', flush=True)\n"
        "    while True: listening.accept()[0].close()\n"
    )
    (tmp_path / "late.py").write_text(late)
    asked: list[Any] = []
    really = http.get

    def get(path: str, *words: Any, **named: Any) -> Any:
        answer = really(path, *words, **named)
        if path.endswith("/board"):
            asked.append(answer["ready"])
        return answer

    monkeypatch.setattr(http, "get", get)
    job = jobs.submit(run=[sys.executable, "late.py"], code=tmp_path)
    about = boards.wait(town.platform.client, job, seconds=120)
    assert about["ready"] and asked[-1] and not asked[0], asked
    told = len(jobs.events(job.id)) + len(list(jobs.logs(job.id)))
    assert len(asked) <= told + 3, "one for what the job told, and its progress"
    with pytest.raises(Unavailable, match="is running after 0.3 s"):
        silent = [sys.executable, "-c", "import time; time.sleep(600)"]
        silent_job = jobs.submit(run=silent)
        town.platform.wait_state(silent_job, "running", seconds=60)
        boards.wait(town.platform.client, silent_job, seconds=0.3)
    for each in (job, silent_job):
        jobs.stop(each.id, now=True)


def test_where_tensorboard_is_not_installed_the_command_says_what_to_do(
    town: Town,
) -> None:
    if importlib.util.find_spec("tensorboard"):
        pytest.skip("it is installed here")
    done = town.platform.cli("tb", "train", "odd", "--python", sys.executable)
    assert done.returncode != 0
    assert "is not installed" in done.stderr and "windlass[tb]" in done.stderr


@pytest.fixture(scope="module")
def tensorboard() -> str:
    try:
        return str(environment("tensorboard", "tensorboard==2.20.0"))
    except environments.Unavailable as err:
        pytest.skip(str(err))


@pytest.fixture(scope="module")
def address(town: Town, tensorboard: str) -> str:
    """Of a board over the job that logged."""
    done = town.platform.cli("tb", "train", "--python", tensorboard)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_tensorboard_runs_as_a_job_over_what_a_job_logged_and_left(
    town: Town, address: str
) -> None:
    platform = town.platform
    assert address.startswith(f"{platform.url}/tb/")
    run = f"train-{town.train.id[:6]}"
    wait_for(lambda: get(f"{address}data/runs").json() == [run], 60, "it has read them")
    asked = f"{address}data/plugin/scalars/scalars?run={run}&tag=loss"
    points = wait_for(lambda: get(asked).json(), 60, "the points are there")
    assert [point[1] for point in points] == list(range(100))
    board = platform.client.jobs.get(urlsplit(address).path.split("/")[2])
    assert board.state == "running" and board.work == "notebook"
    assert board.data["spec"]["engine"] == "local", "where the server reaches it"
    [folder] = platform.attempts(board)
    assert (folder / "run").stat().st_mode & 0o777 == 0o700
    assert (folder / "run" / "board.sock").stat().st_mode & 0o777 == 0o600
    assert list(folder.rglob(f"{run}/files/profiles/x.pt.trace.json"))


@pytest.mark.slow
def test_the_same_jobs_have_one_board(town: Town, address: str, tensorboard: str) -> None:
    done = town.platform.cli("tb", "train", "--python", tensorboard)
    assert urlsplit(done.stdout.strip()).path.split("/")[2] == urlsplit(address).path.split("/")[2]


@pytest.mark.slow
@pytest.mark.skipif(not chromium.installed(), reason="Chromium is not installed")
def test_in_a_real_browser_it_draws_and_gets_nowhere_else(
    town: Town, address: str, tmp_path: Path
) -> None:
    with chromium.Chromium(tmp_path) as browser:
        page = browser.open(address + "#timeseries")
        page.wait("document.body && document.body.innerText.includes('loss') && "
                  "document.querySelector('line-chart')", 60)  # fmt: skip
        assert page.run("window.origin") == "null"
        assert page.complaints() == []
        for path in ("/api/v1/health", "/login", f"/tb/{town.train.id}"):
            tried = f"fetch('{town.platform.url}{path}').then(() => 'in', () => 'out')"
            assert page.run(tried) == "out"
        assert "connect-src" in "".join(page.complaints())


@pytest.mark.slow
def test_a_board_ends_when_nobody_looks(town: Town, tensorboard: str) -> None:
    platform = town.platform
    about = [platform.client.jobs.detail("odd")]
    board = boards.start(platform.client, about, python=tensorboard, idle_seconds=1)
    assert platform.wait(board).state == "succeeded", platform.logs(board)
    assert "nobody has looked for 1 s" in platform.logs(board)
    assert get(town.address(board)).status_code == 410
