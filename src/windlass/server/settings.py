"""How a server is set up. Every field is a flag of `python -m windlass.server`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from windlass.scheduler.events import Rules

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Settings:
    home: Path
    host: str = "127.0.0.1"
    port: int = 7400
    database: str = ""
    """`sqlite:///…` or `postgresql://…`; empty: a file in `home`."""
    fake_nodes: int = 0
    fake_gpus: int = 0
    ttl_ms: int = 30 * DAY_MS
    """Finished jobs are removed after this, with their files."""
    hosts: tuple[str, ...] = ()
    """Names beside loopback that the server answers to."""
    loops: bool = True
    """Run the loops in this process (False: API only; another process leads)."""
    lease_ms: int = 15_000
    """A server that leads the loops and falls silent is followed by another after this."""
    insecure: bool = False
    """Allow a bind beyond loopback without TLS in front."""
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
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def logs_of(self, attempt_id: str, node: str) -> Path:
        return self.home / "attempts" / attempt_id / node / "logs"

    def checkpoints_of(self, job_id: str) -> Path:
        return self.home / "jobs" / job_id / "checkpoints"
