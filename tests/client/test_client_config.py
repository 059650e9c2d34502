"""Settings: which place wins, and that it is told."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from windlass.client.config import Config, choose_context, forget_context, save, save_context
from windlass.core.errors import InvalidInput


def test_each_place_wins_over_the_next(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def project(flag: str | None = None) -> tuple[str, str]:
        found = Config.load({"project": flag}).get("project")
        return found.value, os.path.basename(found.origin)

    assert project() == ("", "default"), "the key has one of its own"
    (home / "credentials.json").write_text(json.dumps({"project": "p1"}))
    assert project() == ("p1", "credentials.json")
    (home / "config.toml").write_text('project = "p2"')
    assert project() == ("p2", "config.toml")
    Path("pyproject.toml").write_text('[tool.windlass]\nproject = "p3"')
    assert project() == ("p3", "pyproject.toml")
    Path("windlass.toml").write_text('project = "p4"')
    assert project() == ("p4", "windlass.toml")
    monkeypatch.setenv("WINDLASS_PROJECT", "p5")
    assert project() == ("p5", "env")
    assert project("p6") == ("p6", "flag")


def test_a_project_file_is_found_from_below_and_may_hold_no_keys(home: Path) -> None:
    Path("windlass.toml").write_text('project = "above"')
    Path("a/b").mkdir(parents=True)
    assert Config.load(start=Path("a/b").absolute()).get("project").value == "above"
    Path("windlass.toml").write_text('secret_key = "x"')
    with pytest.raises(InvalidInput, match="no setting 'secret_key' here; known: url"):
        Config.load()


def test_the_address_is_that_of_the_server_that_runs_here(home: Path) -> None:
    credentials = {"url": "http://127.0.0.1:7400", "access_key": "a", "secret_key": "b"}
    (home / "credentials.json").write_text(json.dumps(credentials))
    (home / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:7499", "pid": 1}))
    config = Config.load()
    assert config.get("url").value == "http://127.0.0.1:7499"
    assert config.local
    credentials["url"] = "http://elsewhere:7400"
    (home / "credentials.json").write_text(json.dumps(credentials))
    assert Config.load().get("url").value == "http://elsewhere:7400"
    assert not Config.load().local


def test_a_context_stands_for_a_whole_server(home: Path) -> None:
    save("contexts.lab.url", "http://lab:7400")
    save("contexts.lab.access_key", "LAB")
    (home / "credentials.json").write_text(json.dumps({"access_key": "LOCAL"}))
    config = Config.load({"context": "lab"})
    assert config.get("url").value == "http://lab:7400"
    assert config.get("access_key").value == "LAB"
    assert config.get("secret_key").value == "", "another server's key is not mixed in"
    assert not config.local
    with pytest.raises(InvalidInput, match=r"no context 'lap' \(from flag\); known: lab"):
        Config.load({"context": "lap"})


def test_a_saved_file_is_private_and_keeps_what_was_there(home: Path) -> None:
    path = save("project", 'q"uote\\')
    save("contexts.a b.url", "http://x")
    save("url", "http://y")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Config.load().get("project").value == 'q"uote\\'
    assert Config.load({"context": "a b"}).get("url").value == "http://x"


@pytest.mark.parametrize("name", ["projct", "contexts.lab", "contexts.lab.key"])
def test_unknown_settings_name_the_known_ones(name: str, home: Path) -> None:
    with pytest.raises(InvalidInput, match="known: "):
        save(name, "x")


def test_a_file_that_cannot_be_understood_is_named(home: Path) -> None:
    (home / "config.toml").write_text("=")
    with pytest.raises(InvalidInput, match=r"config\.toml is not valid TOML"):
        Config.load()
    (home / "config.toml").write_text("")
    (home / "credentials.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"credentials\.json cannot be read"):
        Config.load()


def test_a_secret_is_never_shown_whole(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_SECRET_KEY", "0123456789")
    assert Config.load().get("secret_key").shown == "…6789"


def test_nobody_said_which_project_so_it_is_the_keys_own(home: Path) -> None:
    assert Config.load().project is None
    assert Config.load({"project": "vision"}).project == "vision"
    (home / "config.toml").write_text('project = "speech"')
    assert Config.load().project == "speech"


def test_the_project_beside_a_key_is_not_said_with_another_key(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"url": "http://127.0.0.1:7400", "access_key": "a", "secret_key": "b", "project": "p"}
    (home / "credentials.json").write_text(json.dumps(own))
    assert Config.load().project == "p"
    monkeypatch.setenv("WINDLASS_ACCESS_KEY", "other")
    assert Config.load().project is None, "the other key has a project of its own"
    monkeypatch.setenv("WINDLASS_PROJECT", "q")
    assert Config.load().project == "q"


def test_of_a_key_and_a_token_the_nearer_one_is_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"url": "http://127.0.0.1:7400", "access_key": "a", "secret_key": "b", "project": "p"}
    (home / "credentials.json").write_text(json.dumps(own))
    key, token = Config.load().credential
    assert (key.value, token.value) == ("a", "")
    monkeypatch.setenv("WINDLASS_TOKEN", "wlr_of-an-attempt")
    key, token = Config.load().credential
    assert (key.value, token.value) == ("a", ""), "a job's own token is for its own calls"
    monkeypatch.setenv("WINDLASS_TOKEN", "wl_mine")
    key, token = Config.load().credential
    assert (key.value, token.value) == ("", "wl_mine") and Config.load().project is None
    key, token = Config.load({"access_key": "flag"}).credential
    assert (key.value, token.value) == ("flag", "")
    assert Config.load().get("token").shown == "…mine"


def test_contexts_are_kept_chosen_and_forgotten(home: Path) -> None:
    values = {"url": "https://lab.example", "access_key": "k", "secret_key": "s", "project": "p"}
    path = save_context("lab", values)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Config.load().get("url").value == "https://lab.example"
    assert Config.load().project == "p"
    save_context("other", {"url": "https://other.example", "token": "wl_x"}, choose=False)
    assert Config.load().get("context").value == "lab"
    choose_context("other")
    assert Config.load().credential[1].value == "wl_x"
    choose_context("")
    assert Config.load().get("url").origin == "default"
    with pytest.raises(InvalidInput, match="no context 'nowhere'; known: lab, other"):
        choose_context("nowhere")
    choose_context("lab")
    forget_context("lab")
    assert Config.load().get("context").value == "" and "secret" not in path.read_text()
    with pytest.raises(InvalidInput, match="known: other"):
        forget_context("lab")
