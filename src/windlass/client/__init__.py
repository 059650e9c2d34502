"""The user's side of Windlass, for scripts and notebooks: plain calls, the same verbs as the CLI.

    client = windlass.Client()
    job = client.jobs.submit(run="python train.py", workers=2, code=".")
    job = client.jobs.wait(job.id)

Runs on Linux, macOS and Windows. Names are loaded at first use: a command needs few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.client.client import Client
    from windlass.client.config import Config
    from windlass.client.credentials import Keys, Tokens
    from windlass.client.jobs import Job, Jobs
    from windlass.client.nodes import Node, Nodes
    from windlass.client.projects import Project, Projects
    from windlass.client.queues import Queue, Queues
    from windlass.client.quotas import Quota, Quotas
    from windlass.client.runs import Run, Runs
    from windlass.client.studies import Studies, Study
    from windlass.client.usage import Usage
    from windlass.client.users import User, Users

__all__ = [
    "Client", "Config", "Job", "Jobs", "Keys", "Node", "Nodes", "Project", "Projects", "Queue",
    "Queues", "Quota", "Quotas", "Run", "Runs", "Studies", "Study", "Tokens", "Usage", "User",
    "Users",
]  # fmt: skip
_HOMES = {
    "Client": "client",
    "Config": "config",
    "Job": "jobs",
    "Jobs": "jobs",
    "Keys": "credentials",
    "Node": "nodes",
    "Nodes": "nodes",
    "Project": "projects",
    "Projects": "projects",
    "Queue": "queues",
    "Queues": "queues",
    "Quota": "quotas",
    "Quotas": "quotas",
    "Run": "runs",
    "Runs": "runs",
    "Studies": "studies",
    "Study": "studies",
    "Tokens": "credentials",
    "Usage": "usage",
    "User": "users",
    "Users": "users",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
