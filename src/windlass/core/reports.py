"""What workers and user code send to the server. See docs/internals/protocol.md.

Workers of an older release report to a newer server, so unknown fields are taken and ignored
here, unlike everywhere else.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from windlass.core.repositories import COMMIT
from windlass.core.strict import Count, Line, Strict, Text

Port = Annotated[int, Field(ge=1, le=65535)]
NodeName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._-]+$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Report(Strict):
    model_config = ConfigDict(extra="ignore")

    attempt: Annotated[int, Field(ge=1, le=2**31 - 1)]
    seq: Count = 0
    node: NodeName


class MemberPorts(Strict):
    model_config = ConfigDict(extra="ignore")

    role: Line
    index: Count
    ports: Annotated[tuple[Port, ...], Field(max_length=4096)] = ()
    service_port: Port | None = None
    """For a service that the worker runs itself; absent where none could be bound."""


class CheckpointNote(Strict):
    model_config = ConfigDict(extra="ignore")

    attempt: Count
    step: Count
    path: Annotated[Text, Field(min_length=1, max_length=1024)]
    digest: Digest
    bytes: Count = 0
    ranks: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """How many ranks have a part of their own in it; 0: it is not in parts."""
    source: Literal["windlass", "files"] = "windlass"
    """By the writer of `windlass.job`, or a script's own files that its worker noticed."""
    mirrored: bool = False
    """It lies on the worker's own disk and is on its way: not one to resume from yet."""


class Register(Report):
    host: Annotated[Line, Field(max_length=255)]
    boot_id: Annotated[Line, Field(max_length=64)]
    pid: Count
    members: Annotated[tuple[MemberPorts, ...], Field(max_length=10_000)]
    isolation: dict[Line, Any] = {}
    checkpoints: Annotated[tuple[dict[Line, Any], ...], Field(max_length=64)] = ()
    """What older attempts left complete on disk, registered or not."""


class Fetched(Report):
    commit: Annotated[str, Field(pattern=COMMIT)]
    """What its repository's ref is there and then."""


class Started(Report):
    ranks: tuple[dict[Line, Any], ...] = ()


class Beat(Report):
    sent_ms: int = 0
    ranks: tuple[dict[Line, Any], ...] = ()
    usage: dict[Line, Any] = {}
    notes: Annotated[tuple[dict[Line, Any], ...], Field(max_length=1000)] = ()


class OrderAnswer(Report):
    ok: bool
    result: dict[Line, Any] = {}


class SpoolLines(Report):
    rank: Count
    offset: Count
    """Where the first of these lines begins in the rank's spool file."""
    lines: Annotated[tuple[Any, ...], Field(max_length=10_000)]
    end: Count | None = None
    """Where the last of them ends."""


class ExitRecord(Strict):
    model_config = ConfigDict(extra="allow")

    attempt_id: Line
    attempt: Count
    node: NodeName
    outcome: Line
    reason: Text = ""
    ranks: Annotated[tuple[dict[Line, Any], ...], Field(max_length=10_000)] = ()


class Ended(Strict):
    model_config = ConfigDict(extra="ignore")

    attempt: Count
    seq: Count = 0
    record: ExitRecord
