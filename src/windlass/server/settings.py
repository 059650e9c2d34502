"""How a server is set up. Every field is a flag of `python -m windlass.server`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from windlass.scheduler.events import Rules

DAY_MS = 86_400_000


WILDCARDS = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Oidc:
    """An OpenID issuer whose accounts may log in."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    claim: str = "email"
    """What of the issuer's word names the user."""
    domains: tuple[str, ...] = ()
    """Addresses of mail of these domains alone."""
    create: bool = False
    """Make a user for an account that is nobody's yet."""


@dataclass(frozen=True)
class Settings:
    home: Path
    host: str = "127.0.0.1"
    port: int = 7400
    database: str = ""
    """`sqlite:///…` or `postgresql://…`; empty: a file in `home`."""
    fake_nodes: int = 0
    fake_gpus: int = 0
    isolation: str = "auto"
    """How far jobs are kept apart at least: 0, 1, or auto (1 once several people share the
    server, where this machine can)."""
    uids: tuple[int, int] = (200_000, 265_535)
    """The users that jobs of level 1 run as: from, to."""
    job_disk: int = 0
    """The most that a job may take of a node's disk; 0: no bound but its own."""
    artifact_bytes: int = 64 * 2**30
    """The most bytes that one file of a run or of a model may have."""
    storage: str = ""
    """Where files lie beside this disk: `s3://…` and others; empty: nowhere."""
    storage_cache_ms: int = 3_600_000
    """What lies in the storage stays on this disk too until it was not used for so long."""
    ttl_ms: int = 30 * DAY_MS
    """Finished jobs are removed after this, with their files; so are runs that no job made and
    that nobody has written to for so long."""
    hosts: tuple[str, ...] = ()
    """Names beside loopback that the server answers to."""
    loops: bool = True
    """Run the loops in this process (False: API only; another process leads)."""
    lease_ms: int = 15_000
    """A server that leads the loops and falls silent is followed by another after this."""
    insecure: bool = False
    """Allow a bind beyond loopback without TLS in front."""
    tls: bool = False
    """TLS on `port`; the workers of this machine then come to a loopback port without it."""
    local_port: int = 0
    """That port."""
    public_url: str = ""
    """The address that people use, where it is not that of `host` and `port`."""
    base_path: str = ""
    """What all its paths begin with, such as /windlass; empty: nothing, or what `public_url`
    says."""
    proxies: tuple[str, ...] = ()
    """Addresses of reverse proxies whose word on who calls (X-Forwarded-For) is believed."""
    session_idle_ms: int = DAY_MS // 2
    """A browser that was away for so long must log in again."""
    session_age_ms: int = 7 * DAY_MS
    """And in any case after this."""
    oidc: Oidc | None = None
    currency: str = "USD"
    """What prices, costs and budgets are in: a word, nothing is converted."""
    scheduling: Rules = field(default_factory=Rules)
    """How the scheduler decides, but for queues and quotas: those are rows
    (`server/queues/rules.py` puts both together)."""

    @property
    def control_url(self) -> str:
        return self.database or f"sqlite:///{self.home / 'windlass.db'}"

    @property
    def tracking_url(self) -> str:
        return self.database or f"sqlite:///{self.home / 'tracking.db'}"

    @property
    def url(self) -> str:
        """Where the workers and the users of this machine find the server."""
        if self.tls:
            return f"http://127.0.0.1:{self.local_port}"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{_in_url(host)}:{self.port}"

    @property
    def address(self) -> str:
        """Where people find it."""
        if self.public_url:
            public = self.public_url.rstrip("/")
            return public if urlsplit(public).path else public + self.path
        if not self.tls:
            return self.url + self.path
        host = self.host if self.host not in WILDCARDS else (*self.hosts, "127.0.0.1")[0]
        return f"https://{_in_url(host)}:{self.port}{self.path}"

    @property
    def path(self) -> str:
        """What its paths begin with, as browsers see them."""
        return self.base_path or urlsplit(self.public_url).path.rstrip("/")

    @property
    def names(self) -> tuple[str, ...]:
        """Names beside loopback that the server answers to, as they stand in a Host header."""
        public = urlsplit(self.public_url).hostname if self.public_url else None
        own = () if self.host in WILDCARDS else (self.host,)
        return tuple(_in_url(name) for name in (*self.hosts, *own, public) if name)

    @property
    def origins(self) -> tuple[str, ...]:
        """Where its own pages may come from, beside the address that was called."""
        if not self.public_url:
            return ()
        parts = urlsplit(self.public_url.lower())
        return (f"{parts.scheme}://{parts.netloc}",)

    def logs_of(self, attempt_id: str, node: str) -> Path:
        return self.attempt_folder(attempt_id, node) / "logs"

    def attempt_folder(self, attempt_id: str, node: str) -> Path:
        return self.home / "attempts" / attempt_id / node

    def folder_of(self, job_id: str) -> Path:
        return self.home / "jobs" / job_id

    def checkpoints_of(self, job_id: str) -> Path:
        return self.folder_of(job_id) / "checkpoints"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
