"""R-S1, R-S16: a server as it starts is its owner's alone, and stays so wherever it binds."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import socket
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from windlass.core.access import Right
from windlass.server.options import parser
from windlass.testing.browser import Browser
from windlass.testing.platform import Platform

sys.path.insert(0, str(Path(__file__).parents[2]))
from docs.writers.api import routes

OPEN = {
    "GET /api/v1/health",
    "GET /api/v1/health/ready",
    "GET /api/v1/openapi.json",
    "GET /api/v1/login",
    "POST /api/v1/login",
    "POST /api/v1/login/key",
    "POST /api/v1/login/link",
    "POST /api/v1/login/password",
    "GET /api/v1/login/oidc",
    "GET /api/v1/login/oidc/back",
    "GET /login",
    "GET /login/login.css",
    "GET /login/login.js",
    "GET /{path:path}",  # the dashboard's files, the same for everybody
    "HEAD /{path:path}",
}
"""All that anybody may call. What is added here is open to the whole network."""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("first") / "home") as found:
        yield found


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name)
        .public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )  # fmt: skip
    (folder / "key.pem").write_bytes(plain)
    return folder / "cert.pem", folder / "key.pem"


def listens(platform: Platform) -> set[str]:
    """The addresses that the server's process listens on."""
    assert platform.process is not None
    found = psutil.Process(platform.process.pid).net_connections("inet")
    return {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}


def refused(*words: str) -> subprocess.CompletedProcess[str]:
    """The end of a server that should not start."""
    command = [sys.executable, "-m", "windlass.server", "--port", "0", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_server_listens_on_loopback_alone(platform: Platform):
    assert listens(platform) == {"127.0.0.1"}


def test_only_what_is_listed_here_is_open_to_anybody():
    public = {f"{method} {path}" for method, path, mark in routes() if mark is Right.PUBLIC}
    assert public <= OPEN
    assert public >= OPEN - {path for path in OPEN if "oidc" in path}


@pytest.mark.parametrize("how", [{}, {"Authorization": "Bearer wl_x"}, {"Cookie": "a=b"}], ids=str)
def test_a_stranger_gets_nothing_from_any_other_route(platform: Platform, how: dict[str, str]):
    tried = 0
    with httpx.Client(base_url=platform.url, trust_env=False, timeout=60) as client:
        for method, path, _ in routes():
            if f"{method} {path}" in OPEN:
                continue
            target = path.replace("{", "").replace("}", "")
            answer = client.request(method, target, headers=how)
            wanted = (401, 403) if "Cookie" in how else (401,)
            assert answer.status_code in wanted, (method, path, answer.text)
            tried += 1
    assert tried > 60


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "windlass.example"])
def test_it_does_not_start_in_the_open_without_tls(tmp_path: Path, host: str):
    ended = refused("--home", str(tmp_path / "home"), "--host", host)
    assert ended.returncode == 2, ended
    assert "other machines" in ended.stderr and "--tls-cert" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "home").exists(), "it left nothing"


def test_nothing_switches_authentication_off(tmp_path: Path):
    words = {flag for action in parser()._actions for flag in action.option_strings}
    for word in ("auth", "anonymous", "no-login", "public-read", "disable", "trust-header"):
        assert not [flag for flag in words if word in flag], word
    with Platform(tmp_path / "home", "--host", "0.0.0.0", "--insecure") as open_one:
        assert listens(open_one) == {"0.0.0.0"}
        for path in ("/jobs", "/status", "/users", "/feed"):
            answer = httpx.get(f"{open_one.url}/api/v1{path}", trust_env=False, timeout=60)
            assert answer.status_code == 401
        assert open_one.call("GET", "/status").status_code == 200


def test_with_a_certificate_it_speaks_tls_and_jobs_run(
    tmp_path: Path, certificate: tuple[Path, Path]
):
    cert, key = certificate
    words = ("--host", "0.0.0.0", "--tls-cert", str(cert), "--tls-key", str(key))
    with Platform(tmp_path / "home", *words) as platform:
        assert platform.about()["url"].startswith("http://127.0.0.1:"), "for its own workers"
        assert listens(platform) == {"0.0.0.0", "127.0.0.1"}
        job = platform.submit("echo through loopback")
        assert platform.wait(job).state == "succeeded"
        process = psutil.Process(platform.process.pid)  # type: ignore[union-attr]
        port = next(
            each.laddr.port
            for each in process.net_connections("inet")
            if each.status == psutil.CONN_LISTEN and each.laddr.ip == "0.0.0.0"
        )
        context = ssl.create_default_context(cafile=str(cert))
        with Browser(f"https://127.0.0.1:{port}", verify=context) as browser:
            answer = browser.call("GET", "/health")
            assert answer.status_code == 200
            assert "max-age" in answer.headers["strict-transport-security"]
            assert browser.call("GET", "/session").status_code == 401
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/api/v1/health", trust_env=False, timeout=60)
        _old_tls(port)


def _old_tls(port: int) -> None:
    """A client of the last decade is not served."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(plain)


@pytest.mark.parametrize(
    "words",
    [
        ("--tls-cert", "cert.pem"),
        ("--tls-cert", "missing.pem", "--tls-key", "missing.pem"),
        ("--tls-cert", __file__, "--tls-key", __file__),
        ("--public-url", "http://windlass.example"),
        ("--oidc-issuer", "http://issuer.example"),
        ("--oidc-issuer", "https://issuer.example"),
        ("--oidc-client-id", "x"),
    ],
    ids=str,
)
def test_half_a_setting_does_not_start(tmp_path: Path, words: tuple[str, ...]):
    ended = refused("--home", str(tmp_path / "home"), *words)
    assert ended.returncode == 2, ended
    assert "Traceback" not in ended.stderr and ended.stderr


def test_the_first_start_makes_one_key_and_no_password(platform: Platform):
    """R-S16: others shipped accounts whose password was blank for years."""
    path = platform.home / "credentials.json"
    assert path.stat().st_mode & 0o777 == 0o600
    held = json.loads(path.read_text())
    with closing(sqlite3.connect(f"file:{platform.home}/windlass.db?mode=ro", uri=True)) as db:
        people = db.execute("SELECT name, kind, role, password FROM users").fetchall()
        keys = db.execute("SELECT access_key FROM keys").fetchall()
        assert db.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM tokens").fetchone() == (0,)
    assert people == [("owner", "person", "owner", None)]
    assert keys == [(held["access_key"],)]
    assert held["secret_key"] not in platform.log()
    for name in os.listdir(platform.home):
        if (platform.home / name).is_file() and name != "credentials.json":
            assert held["secret_key"].encode() not in (platform.home / name).read_bytes(), name


def test_no_account_that_is_there_by_default_lets_anybody_in(platform: Platform):
    guesses = [
        ("owner", "owner"), ("owner", ""), ("owner", "windlass"), ("owner", "default"),
        ("admin", "admin"), ("admin", ""), ("determined", ""), ("root", "root"),
        ("windlass", "windlass"), ("test", "test"), ("guest", "guest"),
        ("owner", json.loads((platform.home / "credentials.json").read_text())["access_key"]),
    ]  # fmt: skip
    with Browser(platform.url) as browser:
        for user, password in guesses:
            answer = browser.login(user, password)
            assert answer.status_code in (401, 422, 429), (user, password)
            assert not browser.cookies


def test_a_second_start_makes_no_second_key(tmp_path: Path):
    platform = Platform(tmp_path / "home")
    with platform:
        first = platform.credentials()
        platform.stop()
        platform.start()
        assert platform.credentials() == first
        assert platform.call("GET", "/status").status_code == 200
