"""A small value through the store that torchrun holds for its ranks.

torchrun's own process listens at MASTER_PORT, so worker 0 cannot hold the gathering there: it
holds it at any port and says in that store where, and what its secret is. Whoever can reach that
store can read it there, as he could write to it and so to torch's own groups; guessing is no help.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import torch.distributed as dist


def holds_the_port(environment: Mapping[str, str]) -> bool:
    """Whether somebody listens at MASTER_PORT already."""
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def share(
    environment: Mapping[str, str], key: str, value: str | None, deadline_seconds: float
) -> str:
    """Who has the value gives it; the others get it. Raises RuntimeError past the deadline."""
    again = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    timeout = timedelta(seconds=deadline_seconds)
    store = dist.TCPStore(  # type: ignore[attr-defined]  # its own __init__ does not name it
        address, port, None, False, timeout, wait_for_workers=False
    )
    name = f"windlass/{again}/{key}"
    if value is not None:
        store.set(name, value)
        return value
    found: bytes = store.get(name)
    return found.decode()
