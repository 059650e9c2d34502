"""Code in a git repository: fetched by the nodes, the same commit for every node and attempt."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.engines.local import isolation
from windlass.testing.platform import Platform, wait_for
from windlass.testing.repositories import Repository

pytestmark = pytest.mark.slow
ABLE = isolation.look()
SAYS = "import pathlib; print('said', pathlib.Path('text').read_text(), flush=True)"
RUN = [sys.executable, "main.py"]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("git") / "home"
    with Platform(home, "--fake-nodes", "2", "--fake-gpus", "1") as platform:
        yield platform


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    with Repository(tmp_path / "code") as repository:
        repository.first = repository.commit({"main.py": SAYS, "text": "one"})  # type: ignore[attr-defined]
        yield repository


def code_of(platform: Platform, job: Any) -> dict[str, Any]:
    found: dict[str, Any] = platform.call("GET", f"/jobs/{job.id}").json()["spec"]["code"]
    return found


def said(platform: Platform, job: Any) -> list[str]:
    return [line[5:] for line in platform.logs(job).splitlines() if line.startswith("said ")]


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("dumb", [False, True])
def test_a_branch_a_tag_and_commits_are_fetched(
    platform: Platform, tmp_path: Path, dumb: bool, level: int
) -> None:
    if level > ABLE.level:
        pytest.skip("isolation level 1: " + "; ".join(ABLE.missing))
    with Repository(tmp_path / "code", dumb=dumb) as repository:
        first = repository.commit({"main.py": SAYS, "text": "one"})
        repository.git("tag", "--annotate", "v1", "--message", "the first")
        repository.push("v1")
        second = repository.commit({"text": "two"})
        side = repository.commit({"text": "three"}, "feature/side")
        wanted = {None: second, "main": second, "v1": first, first: first, "feature/side": side,
                  first[:9]: first}  # fmt: skip
        jobs = {
            ref: platform.submit(
                RUN, code={"git": repository.url, "ref": ref}, isolation={"level": level}
            )
            for ref in wanted
        }
        texts = {first: "one", second: "two", side: "three"}
        for ref, job in jobs.items():
            assert platform.wait(job).state == "succeeded", platform.call(
                "GET", f"/jobs/{job.id}/why"
            ).json()
            assert code_of(platform, job)["commit"] == wanted[ref]
            assert said(platform, job) == [texts[wanted[ref]]]


def test_a_restart_and_a_rerun_take_the_commit_of_the_first_attempt(
    platform: Platform, repository: Repository
) -> None:
    gate = platform.gate()
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\n"
    first = repository.commit({"main.py": SAYS + "\n" + wait})
    job = platform.submit(RUN, code={"git": repository.url, "ref": "main"})
    platform.wait_state(job, "running")
    (event,) = [e for e in platform.client.jobs.events(job.id) if e["kind"] == "code"]
    assert event["data"] == {"git": repository.url, "ref": "main", "commit": first}
    second = repository.commit({"text": "two"})
    platform.client.jobs.restart(job.id)
    wait_for(lambda: platform.client.jobs.get(job.id).attempt == 2, what="the second attempt")
    gate.touch()
    assert platform.wait(job).state == "succeeded"
    assert said(platform, job)[-1] == "one"
    assert code_of(platform, job)["commit"] == first

    # The same commit again, though its branch has forgotten it; another one when that is asked.
    repository.git("checkout", "--quiet", "--orphan", "new")
    repository.commit({"text": "three"}, force=True)
    again = platform.client.jobs.rerun(job.id)
    assert platform.wait(again).state == "succeeded"
    assert said(platform, again) == ["one"] and code_of(platform, again)["commit"] == first
    done = platform.cli("rerun", job.id, "--git", f"{repository.url}#{second}")
    other = done.stdout.split()[-1]
    assert platform.wait(other).state == "succeeded"
    code = platform.call("GET", f"/jobs/{other}").json()["spec"]["code"]
    said_of_it = {name: value for name, value in code.items() if value}
    assert said_of_it == {"git": repository.url, "ref": second, "commit": second}


def test_all_nodes_of_a_gang_run_the_commit_that_one_of_them_told(
    platform: Platform, repository: Repository
) -> None:
    """The branch moves whenever it was looked at, so no two nodes see it the same."""
    wants: set[bytes] = set()
    one_at_a_time = threading.Lock()
    handler = repository._server.RequestHandlerClass  # type: ignore[union-attr]
    answer = handler._smart  # type: ignore[attr-defined]

    def moving(self: Any, body: bytes) -> None:
        with one_at_a_time:
            wants.update(re.findall(rb"want ([0-9a-f]{40})", body))
            answer(self, body)
            if b"command=ls-refs" in body:
                repository.commit({"text": f"moved {len(repository.asked)}"})

    handler._smart = moving  # type: ignore[attr-defined]
    job = platform.submit(
        RUN, roles={"worker": {"count": 2, "gpus": 1}}, code={"git": repository.url, "ref": "main"}
    )
    assert platform.wait(job).state == "succeeded"
    detail = platform.call("GET", f"/jobs/{job.id}").json()
    assert len(detail["attempts"][0]["nodes"]) == 2
    texts = said(platform, job)
    assert len(texts) == 2 and len(set(texts)) == 1
    commit = detail["spec"]["code"]["commit"]
    assert repository.git("show", f"{commit}:text") == texts[0]
    assert len(wants) == 2 and commit.encode() in wants


def test_why_says_what_was_wrong_and_what_to_do(
    platform: Platform, repository: Repository, tmp_path: Path
) -> None:
    url = repository.url
    with Repository(tmp_path / "closed", login=True) as closed:
        asked = {
            "ref": (url, "nowhere", f"{url} has no branch, tag or commit 'nowhere'", "#REF"),
            "commit": (url, "1" * 40, f"{url} has no commit 111111111111", "#REF"),
            "login": (closed.url, "main", "wants a login", "--code DIR"),
            "repository": (url.replace("repo", "other"), "main", "no repository at", "--git URL"),
        }
        jobs = {
            name: platform.submit(RUN, code={"git": where, "ref": ref})
            for name, (where, ref, _, _) in asked.items()
        }
        for name, (_, _, words, advice) in asked.items():
            assert platform.wait(jobs[name]).state == "failed"
            why = platform.call("GET", f"/jobs/{jobs[name].id}/why").json()
            assert words in why["sentence"] and advice in why["next"], why
            assert why["code"] == "refused"
    job = platform.submit(RUN, code={"git": closed.url})
    assert platform.wait(job).state == "failed"
    why = platform.call("GET", f"/jobs/{job.id}/why").json()
    assert f"does not reach {closed.url}" in why["sentence"], why


def test_a_node_without_git_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    with Platform(tmp_path / "home", env={"PATH": str(folder)}) as platform:
        job = platform.submit(RUN, code={"git": "https://example.org/x.git"})
        assert platform.wait(job).state == "failed"
        why = platform.call("GET", f"/jobs/{job.id}/why").json()
        assert why["sentence"].startswith("node local has no git"), why
        assert "install git on node local" in why["next"]


def test_the_terminal_submits_and_shows_it(platform: Platform, repository: Repository) -> None:
    done = platform.cli("run", "--git", f"{repository.url}#main", "--", "python", "main.py")
    assert done.returncode == 0 and "said one" in done.stdout, done.stderr
    shown = platform.cli("show", "-").stdout
    assert f"{repository.url} main · commit {repository.first}" in shown  # type: ignore[attr-defined]
    refused = platform.cli("run", "--git", "ext::date", "--", "true")
    assert refused.returncode == 2 and "begins with https://" in refused.stderr
    both = platform.cli("submit", "--git", repository.url, "--code", ".", "--", "true")
    assert both.returncode == 2 and "give one" in both.stderr


def test_a_file_address_is_read_as_the_job_itself(
    platform: Platform, repository: Repository
) -> None:
    job = platform.submit(RUN, code={"git": f"file://{repository.bare}"})
    assert platform.wait(job).state == "succeeded"
    assert said(platform, job) == ["one"]


def test_a_job_whose_code_does_not_come_can_be_stopped(
    platform: Platform, repository: Repository
) -> None:
    """Its grace is longer than the test waits: only a worker that hears of it ends in time."""
    asked, open_again = threading.Event(), threading.Event()

    def silent(self: Any, body: bytes) -> None:
        asked.set()
        open_again.wait()

    repository._server.RequestHandlerClass._smart = silent  # type: ignore[union-attr, attr-defined]
    job = platform.submit(RUN, code={"git": repository.url}, limits={"grace": "1h"})
    assert asked.wait(120)
    platform.wait_why(job, "the code is being fetched")
    platform.client.jobs.stop(job.id)
    assert platform.wait(job).state == "cancelled"
    open_again.set()


def test_the_server_asks_nobody(platform: Platform, repository: Repository) -> None:
    """A dry run, a submit, a look: no address is opened but by the worker."""
    spec = {"run": RUN, "code": {"git": repository.url, "ref": "main"}, "hold": True}
    repository.asked.clear()
    dry = platform.call("POST", "/jobs", {"spec": spec, "dry_run": True})
    job = platform.call("POST", "/jobs", {"spec": spec}).json()
    platform.call("GET", f"/jobs/{job['id']}")
    assert dry.status_code == 200 and "--git" in dry.json()["spellings"]["cli"]
    assert repository.asked == []
    platform.client.jobs.release(job["id"])
    assert platform.wait(job["id"]).state == "succeeded"
    assert repository.asked
