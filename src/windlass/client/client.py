"""One server with one credential, and all its nouns."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from windlass.client.audit import Audit
from windlass.client.checkpoints import Checkpoints
from windlass.client.config import Config
from windlass.client.credentials import Keys, Tokens
from windlass.client.engines import Engines
from windlass.client.http import Http
from windlass.client.jobs import Jobs
from windlass.client.limits import Limits
from windlass.client.models import Models
from windlass.client.nodes import Nodes
from windlass.client.projects import Projects
from windlass.client.queues import Queues
from windlass.client.quotas import Quotas
from windlass.client.runs import Runs
from windlass.client.secrets import Secrets
from windlass.client.sessions import Sessions
from windlass.client.studies import Studies
from windlass.client.usage import Usage
from windlass.client.users import Users


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
        token: str | None = None,
        project: str | None = None,
        context: str | None = None,
        config: Config | None = None,
        patience_seconds: float = 3.0,
    ) -> None:
        flags = {
            "url": url,
            "access_key": access_key,
            "secret_key": secret_key,
            "token": token,
            "project": project,
            "context": context,
        }
        self.config = config or Config.load(flags)
        self.project = self.config.project
        key, bearer = self.config.credential
        self.http = Http(
            self.config.get("url").value,
            access_key=key.value,
            secret_key=self.config.get("secret_key").value,
            token=bearer.value,
            project=self.project,
            patience_seconds=patience_seconds,
            relocate=self._address if self.config.local else None,
        )
        self.jobs = Jobs(self.http, project=self.project)
        self.checkpoints = Checkpoints(self.http)
        self.runs = Runs(self.http)
        self.studies = Studies(self.http, project=self.project)
        self.projects = Projects(self.http)
        self.users = Users(self.http)
        self.keys = Keys(self.http)
        self.tokens = Tokens(self.http)
        self.nodes = Nodes(self.http)
        self.queues = Queues(self.http)
        self.engines = Engines(self.http)
        self.quotas = Quotas(self.http)
        self.audit = Audit(self.http)
        self.secrets = Secrets(self.http)
        self.limits = Limits(self.http)
        self.models = Models(self.http)
        self.usage = Usage(self.http)
        self.sessions = Sessions(self.http)

    @property
    def url(self) -> str:
        """Where the server is."""
        return self.http.url

    def _address(self) -> str:
        return Config.load(self.config.layers[0].values).get("url").value

    def health(self) -> dict[str, Any]:
        """`{"ok": true, "version"}`; needs no key."""
        answer: dict[str, Any] = self.http.get("/health", signed=False)
        return answer

    def whoami(self) -> dict[str, Any]:
        """Who this client is, in which project, with which rights."""
        answer: dict[str, Any] = self.http.get("/whoami")
        return answer

    def status(self) -> dict[str, Any]:
        """Version, nodes, jobs by state, and whether all parts of the server work."""
        answer: dict[str, Any] = self.http.get("/status")
        return answer

    def close(self) -> None:
        """Give the connection back; the client opens another when it is used again."""
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
