"""Logging in, projects, keys and tokens, as people do it on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windlass.client import Client
from windlass.core.errors import Forbidden, Unauthenticated
from windlass.testing.platform import Platform, wait_for


class Machine:
    """Somebody's own machine: another home, the same server."""

    def __init__(self, platform: Platform, home: Path, **env: str) -> None:
        self.platform = platform
        self.home = home
        home.mkdir()
        self.env = {**platform.env, "WINDLASS_HOME": str(home), **env}

    def run(self, *words: str, give: str = "", code: int = 0) -> tuple[str, str]:
        """What a command says on its two streams; it must end with `code`."""
        done = self.platform.cli(*words, env=self.env, input=give, cwd=self.home)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout, done.stderr

    def say(self, *words: str, give: str = "", code: int = 0) -> str:
        return "".join(self.run(*words, give=give, code=code))

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json")[0])


def test_a_second_user_logs_in_works_in_a_second_project_and_leaves(
    shared: Platform, tmp_path: Path
) -> None:
    owner = Machine(shared, tmp_path / "owner", WINDLASS_HOME=str(shared.home))
    owner.say("project", "create", "vision")
    key = owner.json("user", "create", "ann", "--in", "vision", "--key")
    ann = Machine(shared, tmp_path / "ann")
    login = ("login", shared.url, "--access-key", str(key["access_key"]), "--name", "lab")
    assert "does not match" in ann.say(*login, give="wrong\n", code=104)
    assert not (ann.home / "config.toml").exists(), "what does not work is not kept"
    said = ann.say(*login, give=f"{key['secret_key']}\n")
    assert "ann in project vision" in said and str(key["secret_key"]) not in said
    assert (ann.home / "config.toml").stat().st_mode & 0o777 == 0o600
    who = ann.json("whoami")
    assert (who["user"], who["project"], who["role"]) == ("ann", "vision", "member")

    job = json.loads(ann.run("submit", "-o", "json", "--no-code", "echo", "hello")[0])
    assert job["project"] == "vision" and job["user"] == "ann"
    assert str(job["name"]) in ann.say("ps")
    assert str(job["name"]) not in owner.say("ps", "-a")
    assert str(job["name"]) in owner.say("ps", "-a", "--project", "vision")
    ann.say("wait", str(job["id"]))

    assert "no project default" in ann.say("ps", "--project", "default", code=102)
    owner.say("project", "add", "default", "ann", "--role", "viewer")
    ann.say("ps", "--project", "default")
    ann.say("project", "use", "default")
    assert ann.json("whoami")["role"] == "viewer"
    assert "lacks the right job.write" in ann.say("submit", "--no-code", "true", code=104)
    assert [p["name"] for p in ann.json("project", "ls")["items"]] == ["default", "vision"]
    assert "lab" in ann.say("context", "ls")

    ann.say("logout", "--revoke")
    assert "access key" in ann.say("whoami", "--url", shared.url, code=104)
    assert "lab" not in ann.say("context", "ls")
    states = owner.json("key", "ls", "--user", "ann", "-a")["items"]
    assert [each["state"] for each in states] == ["dead"]


def test_a_token_on_the_command_line_and_in_python(shared: Platform, tmp_path: Path) -> None:
    owner = Machine(shared, tmp_path / "owner", WINDLASS_HOME=str(shared.home))
    token = owner.say("token", "create", "ci", "--scope", "read", "--expires", "2h").split()[0]
    tool = Machine(
        shared, tmp_path / "tool", WINDLASS_URL=shared.url, WINDLASS_TOKEN=token
    )  # fmt: skip
    assert tool.json("whoami")["user"] == "owner"
    tool.say("ps")
    assert "lacks the right" in tool.say("submit", "--no-code", "true", code=104)
    assert "lacks the right" in tool.say("token", "create", "more", code=104)
    with Client(shared.url, token=token) as client:
        assert client.whoami()["project"] == "default"
    owner.say("token", "revoke", "ci")
    assert "not known" in tool.say("ps", code=104)


def test_a_service_account_and_its_keys(shared: Platform, tmp_path: Path) -> None:
    owner = Machine(shared, tmp_path / "owner", WINDLASS_HOME=str(shared.home))
    owner.say("project", "create", "speech")
    owner.say("project", "add", "speech", "nightly", "--service")
    first = owner.json("key", "create", "cron", "--project", "speech", "--user", "nightly")
    with Client(shared.url, access_key=first["access_key"], secret_key=first["secret_key"]) as c:
        assert c.whoami()["kind"] == "service"
        second = c.keys.rotate(str(first["access_key"]), overlap="1h")
        assert {key["state"] for key in c.keys.list()} == {"live", "retiring"}
        assert c.keys.list()[0]["access_key"] == second["access_key"]
    assert "sealed anew" in owner.say("key", "rekey")
    assert "sealing with" in owner.say("key", "rekey", "--drop-old")
    with Client(shared.url, access_key=second["access_key"], secret_key=second["secret_key"]) as c:
        assert c.whoami()["user"] == "nightly"
    owner.say("user", "disable", "nightly")
    assert "disabled" in owner.say("user", "show", "nightly")
    assert "the last owner" in owner.say("user", "disable", "owner", code=1)
    assert "no one to ask" in owner.say("project", "rm", "speech", code=2)
    owner.say("project", "rm", "speech", "-y")
    assert "speech" not in owner.say("project", "ls")


def test_a_job_file_may_name_its_project(shared: Platform, tmp_path: Path) -> None:
    owner = Machine(shared, tmp_path / "owner", WINDLASS_HOME=str(shared.home))
    for name in ("files", "flags"):
        owner.say("project", "create", name)
    (owner.home / "job.yaml").write_text("project: files\nrun: 'true'\nname: from-file\n")
    owner.say("run", "-f", "job.yaml")
    owner.say("run", "-f", "job.yaml", "--project", "flags")
    for project in ("files", "flags"):
        assert "from-file" in owner.say("ps", "-a", "--project", project)
    assert "from-file" not in owner.say("ps", "-a")


def test_somebody_leaves_and_another_one_gets_the_name(platform: Platform, tmp_path: Path) -> None:
    owner = Machine(platform, tmp_path / "owner", WINDLASS_HOME=str(platform.home))
    said = owner.say("user", "create", "ann", "--in", "default", "--as", "maintainer")
    assert "several users share this server now" in said
    assert "several users" not in owner.say("user", "create", "bob"), "told once"
    key = owner.json("key", "create", "--user", "ann")
    with Client(platform.url, access_key=key["access_key"], secret_key=key["secret_key"]) as ann:
        kept = ann.jobs.submit(run=["sleep", "600"], name="kept")
        platform.wait_state(kept, "running")
        assert "no one to ask" in owner.say("user", "rm", "ann", code=2)
        assert "1 of its jobs go on" in owner.say("user", "rm", "ann", "-y")
        with pytest.raises(Unauthenticated):
            ann.jobs.list()
    assert "no user ann" in owner.say("user", "show", "ann", code=102)
    assert "no user ann" in owner.say("user", "rm", "ann", "-y", code=102)
    assert "1 of its jobs have not ended" in owner.say("user", "create", "ann", code=1)
    assert platform.client.jobs.get(kept.id).state == "running"
    assert platform.client.jobs.get(kept.id).user == "ann"
    platform.client.jobs.stop(kept.id)
    assert platform.wait(kept).state == "cancelled"
    owner.say("user", "create", "ann", "--in", "default")
    assert owner.json("user", "show", "ann")["keys"] == 0

    second = owner.json("key", "create", "--user", "ann")
    with Client(
        platform.url, access_key=second["access_key"], secret_key=second["secret_key"]
    ) as ann:
        with pytest.raises(Forbidden, match="is ann's"):
            ann.jobs.delete(kept.id)
        running = ann.jobs.submit(run=["sleep", "600"], name="running")
        waiting = ann.jobs.submit({"run": "true", "name": "waiting", "hold": True})
        platform.wait_state(running, "running")
    said = owner.say("user", "rm", "ann", "--stop-jobs", "-y")
    assert "2 of its jobs are ending" in said or "1 of its jobs are ending" in said
    for job in (running, waiting):
        over = platform.wait(job)
        assert (over.state, over.reason) == ("cancelled", "user ann was removed")

    def told() -> list[tuple[str, str]]:
        rows = owner.json("audit", "ls", "--server", "--action", "users.remove")["items"]
        return [(row["object"], row["outcome"]) for row in rows[-2:]]

    # On PostgreSQL a row is seen once it has its place in the chain.
    wait_for(lambda: told() == [("ann", "ok")] * 2, what="both removals are told")
