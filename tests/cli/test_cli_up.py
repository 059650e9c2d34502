"""`windlass up` with settings: kept, never passed over; ports that others have; a unit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windlass.cli import doctor, local, told, unit
from windlass.cli.session import Session
from windlass.client import config
from windlass.client.config import Config
from windlass.core.errors import Conflict
from windlass.testing.platform import Platform


def test_settings_are_kept_and_a_running_server_says_which_it_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Platform(tmp_path / "own")
    try:
        assert platform.cli("up", "--port", "0", "--fake-nodes", "2").returncode == 0
        port = json.loads((platform.home / "up.json").read_text())["port"]
        other = platform.cli("up", "--fake-nodes", "3", "--fake-gpus", "4")
        assert other.returncode == 1
        assert "--fake-nodes 2" in other.stderr
        assert "windlass down && windlass up --fake-gpus 4 --fake-nodes 3" in other.stderr
        assert platform.cli("up", "--fake-nodes", "2").returncode == 0

        # A stranger's server: the port that was asked for, the usual port, the usual address.
        second = {**platform.env, "WINDLASS_HOME": str(tmp_path / "second")}
        taken = platform.cli("up", "--port", str(port), env=second)
        assert taken.returncode == 1
        assert f"--port {port}: another Windlass server" in taken.stderr
        said: list[str] = []
        monkeypatch.setattr(local, "DEFAULT_PORT", port)
        assert local.with_port({}, said.append) == {"port": 0}
        assert "--port chooses" in said[0]
        monkeypatch.setenv("WINDLASS_HOME", str(tmp_path / "second"))
        monkeypatch.delenv("WINDLASS_URL", raising=False)
        monkeypatch.setitem(config.DEFAULTS, "url", f"http://127.0.0.1:{port}")
        [check] = doctor.server(Session(Config.load(), "table", False))
        assert (check.state, "a stranger's" in check.found) == ("note", True)

        assert platform.cli("down").returncode == 0
        assert platform.cli("up").returncode == 0
        nodes = json.loads(platform.cli("node", "ls", "-o", "json").stdout)["items"]
        assert len(nodes) == 2
        status = json.loads(platform.cli("status", "-o", "json").stdout)
        assert status["url"].endswith(f":{port}")
    finally:
        platform.cli("down")


def test_what_was_kept_is_passed_on_and_can_be_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_HOME", str(tmp_path))
    told.keep({"fake_nodes": 2, "base_path": "/w"})
    words = local.command()
    assert words[words.index("--base-path") + 1] == "/w"
    assert "--fake-nodes" not in local.command({})
    told.keep({})
    assert told.kept() == {}
    with pytest.raises(Conflict, match="in use|another"):
        with _listening() as port:
            local.with_port({"port": port}, print)


def test_a_unit_is_a_file_that_starts_this_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Platform(tmp_path / "home of it")
    platform.home.mkdir()
    file = tmp_path / "windlass.service"
    done = platform.cli("up", "--fake-nodes", "2", "--install", str(file))
    assert done.returncode == 0, done.stderr
    assert "systemctl" in done.stderr and "enable --now" in done.stderr
    text = file.read_text()
    assert f'Environment="WINDLASS_HOME={platform.home}"' in text
    assert f'--home "{platform.home}" --fake-nodes 2' in text
    assert "KillMode=process" in text
    assert platform.cli("status").returncode == 105  # nothing was started
    assert platform.cli("up", "--install", str(file)).returncode == 1
    assert unit.path("").name == "windlass.service"


def _listening():  # type: ignore[no-untyped-def]
    import contextlib
    import socket

    @contextlib.contextmanager
    def listening():  # type: ignore[no-untyped-def]
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            yield server.getsockname()[1]

    return listening()
