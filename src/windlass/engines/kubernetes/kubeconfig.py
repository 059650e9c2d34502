"""How the cluster is reached and as whom: a kubeconfig file, or what every pod finds in itself."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from windlass.engines.kubernetes.wire import Address

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_SECONDS = 60.0
_EXEC_SECONDS = 30.0


class BadConfig(Exception):
    """What the file says cannot be used; the message names the file and the entry."""


@dataclass(frozen=True)
class Access:
    address: Address
    prefix: str
    """Of every path, where the API server stands below one."""
    authorization: str | Callable[[], str]
    """The header's value, empty: none; or a call that reads it anew where it may change, and may
    block."""
    namespace: str
    where: str
    """For people."""


def load(path: str, context: str, environ: Mapping[str, str] = os.environ) -> Access:
    """Without a path: $KUBECONFIG, inside of a pod its service account, ~/.kube/config."""
    if not path and not environ.get("KUBECONFIG") and not context:
        if environ.get("KUBERNETES_SERVICE_HOST") and (IN_CLUSTER / "token").exists():
            return _in_cluster(environ)
    found = path or environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    file = Path(found) if found else Path.home() / ".kube" / "config"
    try:
        document = yaml.safe_load(file.read_text())
    except OSError as err:
        raise BadConfig(f"kubeconfig {file}: {err.strerror}") from err
    except (yaml.YAMLError, ValueError) as err:
        raise BadConfig(f"kubeconfig {file}: no YAML: {str(err).splitlines()[0]}") from err
    return read(document, context, file)


def read(document: object, context: str, file: Path) -> Access:
    """Raises BadConfig. Files that it names lie beside it."""
    entries = _Entries(document, file)
    name = context or entries.text(entries.top, "current-context", "")
    if not name:
        raise BadConfig(f"kubeconfig {file}: current-context: none is set, name one")
    chosen = entries.named("contexts", "context", name)
    cluster = entries.named("clusters", "cluster", entries.text(chosen, "cluster"))
    user_name = entries.text(chosen, "user", "")
    user = entries.named("users", "user", user_name) if user_name else {}
    server = entries.text(cluster, "server")
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadConfig(f"kubeconfig {file}: server: an http(s) address (found {server!r})")
    if cluster.get("proxy-url"):
        raise BadConfig(f"kubeconfig {file}: proxy-url: proxies are not supported")
    tls = _tls(entries, cluster, user) if parts.scheme == "https" else None
    return Access(
        Address(
            parts.hostname,
            parts.port or (443 if tls else 80),
            tls,
            entries.text(cluster, "tls-server-name", ""),
        ),
        parts.path.rstrip("/"),
        _authorization(entries, user),
        entries.text(chosen, "namespace", "") or "default",
        f"{server} (context {name})",
    )


class _Entries:
    """A kubeconfig's lists by name, with words for what is missing."""

    def __init__(self, document: object, file: Path) -> None:
        if not isinstance(document, dict):
            raise BadConfig(f"kubeconfig {file}: no kubeconfig")
        self.top: dict[str, Any] = document
        self.file = file

    def named(self, many: str, one: str, name: str) -> dict[str, Any]:
        entries = self.top.get(many)
        found = {
            str(each.get("name")): each.get(one)
            for each in (entries if isinstance(entries, list) else [])
            if isinstance(each, dict)
        }
        if name not in found:
            there = ", ".join(sorted(found)) or "none"
            raise BadConfig(f"kubeconfig {self.file}: no {one} {name!r}, there are: {there}")
        value = found[name]
        return value if isinstance(value, dict) else {}

    def text(self, entry: Mapping[str, Any], key: str, default: str | None = None) -> str:
        value = entry.get(key, default)
        if not isinstance(value, str):
            raise BadConfig(f"kubeconfig {self.file}: {key}: text (found {value!r})")
        return value

    def content(self, entry: Mapping[str, Any], key: str) -> bytes | None:
        """Of `<key>-data`, or of the file that `<key>` names."""
        if data := self.text(entry, f"{key}-data", ""):
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error as err:
                raise BadConfig(f"kubeconfig {self.file}: {key}-data: no base64") from err
        if name := self.text(entry, key, ""):
            path = self.file.parent / name
            try:
                return path.read_bytes()
            except OSError as err:
                raise BadConfig(f"kubeconfig {self.file}: {key} {path}: {err.strerror}") from err
        return None


def _tls(entries: _Entries, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    authority = entries.content(cluster, "certificate-authority")
    certificate = entries.content(user, "client-certificate")
    key = entries.content(user, "client-key")
    try:
        tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if certificate and key:
            with tempfile.NamedTemporaryFile() as both:  # the library reads them from a file only
                both.write(certificate + b"\n" + key)
                both.flush()
                tls.load_cert_chain(both.name)
    except (ssl.SSLError, ValueError) as err:
        raise BadConfig(f"kubeconfig {entries.file}: its certificates: {err}") from err
    return tls


def _authorization(entries: _Entries, user: dict[str, Any]) -> str | Callable[[], str]:
    if name := entries.text(user, "tokenFile", ""):
        return _Refreshed(lambda: _token_of(entries.file.parent / name))
    if token := entries.text(user, "token", ""):
        return f"Bearer {token}"
    if isinstance(user.get("exec"), dict):
        plugin = user["exec"]
        return _Refreshed(lambda: _token_by(plugin, entries))
    if login := entries.text(user, "username", ""):
        both = f"{login}:{entries.text(user, 'password', '')}".encode()
        return f"Basic {base64.b64encode(both).decode()}"
    return ""


class _Refreshed:
    """A token that others renew."""

    def __init__(self, fetch: Callable[[], str]) -> None:
        self._fetch = fetch
        self._value, self._until = "", 0.0

    def __call__(self) -> str:
        if time.monotonic() >= self._until:
            self._value = f"Bearer {self._fetch()}"
            self._until = time.monotonic() + _TOKEN_SECONDS
        return self._value


def _token_of(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as err:
        raise BadConfig(f"token file {path}: {err.strerror}") from err


def _token_by(plugin: Mapping[str, Any], entries: _Entries) -> str:
    """What a cloud's own program says, as kubectl asks it."""
    command = [entries.text(plugin, "command"), *map(str, plugin.get("args") or ())]
    more = {str(each["name"]): str(each["value"]) for each in plugin.get("env") or ()}
    asked = {
        "apiVersion": plugin.get("apiVersion") or "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    environment = {**os.environ, **more, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_EXEC_SECONDS, cwd=entries.file.parent,
        )  # fmt: skip
        return str(json.loads(done.stdout)["status"]["token"])
    except (OSError, subprocess.TimeoutExpired) as err:
        raise BadConfig(f"kubeconfig {entries.file}: exec: {err}") from err
    except (ValueError, KeyError, TypeError) as err:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = words[-1][:200] if words else f"exit code {done.returncode}"
        raise BadConfig(
            f"kubeconfig {entries.file}: exec: {command[0]} gave no token: {said}"
        ) from err


def _in_cluster(environ: Mapping[str, str]) -> Access:
    host = environ["KUBERNETES_SERVICE_HOST"]
    port = environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or environ.get("KUBERNETES_SERVICE_PORT")
    try:
        tls = ssl.create_default_context(cafile=str(IN_CLUSTER / "ca.crt"))
        namespace = (IN_CLUSTER / "namespace").read_text().strip()
        number = int(port or 443)
    except (OSError, ValueError) as err:
        raise BadConfig(f"{IN_CLUSTER}: {err}") from err
    return Access(
        Address(host, number, tls),
        "",
        _Refreshed(lambda: _token_of(IN_CLUSTER / "token")),
        namespace,
        "the cluster that this server runs in",
    )
