"""How a kubeconfig is read, and what is said of one that cannot be used."""

from __future__ import annotations

import base64
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from windlass.engines.kubernetes import kubeconfig
from windlass.engines.kubernetes.kubeconfig import BadConfig, load


def _written(folder: Path, user: dict[str, Any], **cluster: Any) -> str:
    document = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "jobs"}},
            {"name": "two", "context": {"cluster": "nowhere"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/k", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_a_token_and_an_address_are_read(tmp_path: Path) -> None:
    path = _written(tmp_path, {"token": "secret"}, **{"insecure-skip-tls-verify": True})
    access = load(path, "")
    assert (access.address.host, access.address.port) == ("10.0.0.1", 6443)
    assert access.prefix == "/k" and access.namespace == "jobs"
    assert access.authorization == "Bearer secret"
    assert access.address.tls is not None
    assert access.address.tls.verify_mode is ssl.CERT_NONE


def test_certificates_are_checked_unless_that_was_given_up(tmp_path: Path) -> None:
    access = load(_written(tmp_path, {}), "")
    assert access.address.tls is not None and access.address.tls.verify_mode is ssl.CERT_REQUIRED
    assert access.authorization == ""


def test_a_token_file_is_read_again_when_it_was_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubeconfig, "_TOKEN_SECONDS", 0.0)
    (tmp_path / "token").write_text("old\n")
    said = load(_written(tmp_path, {"tokenFile": "token"}), "").authorization
    assert callable(said) and said() == "Bearer old"
    (tmp_path / "token").write_text("new\n")
    assert said() == "Bearer new"


def test_a_clouds_own_program_is_asked_for_the_token(tmp_path: Path) -> None:
    program = "import json; print(json.dumps({'status': {'token': 'lent'}}))"
    user = {"exec": {"command": sys.executable, "args": ["-c", program]}}
    said = load(_written(tmp_path, user), "").authorization
    assert callable(said) and said() == "Bearer lent"
    user = {
        "exec": {"command": sys.executable, "args": ["-c", "raise SystemExit('log in first')"]}
    }
    said = load(_written(tmp_path, user), "").authorization
    assert callable(said)
    with pytest.raises(BadConfig, match="log in first"):
        said()


def test_a_pod_knows_the_way_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a kubeconfig and with what Kubernetes gives to a pod, except a real authority."""
    monkeypatch.setattr(kubeconfig, "IN_CLUSTER", tmp_path)
    (tmp_path / "token").write_text("mine")
    (tmp_path / "namespace").write_text("home")
    found = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(BadConfig, match=str(tmp_path)):
        load("", "", found)
    system = ssl.get_default_verify_paths().cafile
    if system is None or not Path(system).exists():
        pytest.skip("no certificates here")
    (tmp_path / "ca.crt").write_bytes(Path(system).read_bytes())
    access = load("", "", found)
    assert access.namespace == "home" and access.address.host == "10.0.0.1"
    assert callable(access.authorization) and access.authorization() == "Bearer mine"


@pytest.mark.parametrize(
    ("change", "context", "words"),
    [
        ({}, "three", "no context 'three', there are: one, two"),
        ({}, "two", "no cluster 'nowhere', there are: c"),
        ({"server": "10.0.0.1"}, "", "server: an http.*'10.0.0.1'"),
        ({"server": 7}, "", "server: text"),
        ({"proxy-url": "http://p"}, "", "proxy-url"),
        ({"certificate-authority-data": "!"}, "", "certificate-authority-data: no base64"),
        ({"certificate-authority-data": base64.b64encode(b"x").decode()}, "", "its certificates"),
        ({"certificate-authority": "gone.crt"}, "", "gone.crt: No such file"),
    ],
)
def test_what_cannot_be_used_is_told_with_file_and_entry(
    tmp_path: Path, change: dict[str, Any], context: str, words: str
) -> None:
    with pytest.raises(BadConfig, match=words) as caught:
        load(_written(tmp_path, {}, **change), context)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "a: [", "\0"])
def test_a_file_that_is_no_kubeconfig_is_told_so(tmp_path: Path, content: str) -> None:
    (tmp_path / "config").write_text(content)
    with pytest.raises(BadConfig, match="kubeconfig"):
        load(str(tmp_path / "config"), "")
    with pytest.raises(BadConfig, match="No such file"):
        load(str(tmp_path / "absent"), "")
