"""The user's side of Windlass, for scripts and notebooks: plain calls, the same verbs as the CLI.

    client = windlass.Client()
    job = client.jobs.submit(run="python train.py", workers=2, code=".")
    job = client.jobs.wait(job.id)

Runs on Linux, macOS and Windows.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from windlass.client.config import Config
from windlass.client.http import Http
from windlass.client.jobs import Job, Jobs
from windlass.client.nodes import Node, Nodes
from windlass.client.queues import Queue, Queues
from windlass.client.quotas import Quota, Quotas

__all__ = [
    "Client", "Config", "Job", "Jobs", "Node", "Nodes", "Queue", "Queues", "Quota", "Quotas",
]  # fmt: skip


class Client:
    """One server, one credential. What is not given comes from the configuration.

    Not for several threads at once: it holds one connection. Raises `Unauthenticated` from the
    first call when there is no key.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        access_key: str | None = None,
        secret_key: str | None = None,
        project: str | None = None,
        context: str | None = None,
        config: Config | None = None,
        patience_seconds: float = 3.0,
    ) -> None:
        flags = {
            "url": url,
            "access_key": access_key,
            "secret_key": secret_key,
            "project": project,
            "context": context,
        }
        self.config = config or Config.load(flags)
        self.project = self.config.get("project").value
        self.http = Http(
            self.config.get("url").value,
            access_key=self.config.get("access_key").value,
            secret_key=self.config.get("secret_key").value,
            patience_seconds=patience_seconds,
            relocate=self._address if self.config.local else None,
        )
        self.jobs = Jobs(self.http, project=self.project)
        self.nodes = Nodes(self.http)
        self.queues = Queues(self.http)
        self.quotas = Quotas(self.http)

    @property
    def url(self) -> str:
        return self.http.url

    def _address(self) -> str:
        return Config.load(self.config.layers[0].values).get("url").value

    def health(self) -> dict[str, Any]:
        """`{"ok": true, "version"}`; needs no key."""
        answer: dict[str, Any] = self.http.get("/health", signed=False)
        return answer

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.http.get("/status")
        return answer

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
