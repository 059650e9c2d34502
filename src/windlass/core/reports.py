"""What workers and user code send to the server. See docs/internals/protocol.md.

Workers of an older release report to a newer server, so unknown fields are taken and ignored
here, unlike everywhere else. What the server reads of a report has a type and a bound: a worker's
token is in reach of the job that it runs, so what comes with it is as foreign as a user's.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from windlass.core.jobs import Outcome
from windlass.core.repositories import COMMIT
from windlass.core.strict import MAX_INT, Count, Line, Strict, Text

Port = Annotated[int, Field(ge=1, le=65535)]
NodeName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._-]+$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


Step = Annotated[int, Field(ge=0, le=10**15)]
RankNumber = Annotated[int, Field(ge=0, le=1_000_000)]
Code = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
"""An exit code or a signal's number."""
MOST_EVIDENCE = 256 * 1024
"""Bytes of JSON: of what is said of one rank."""
MOST_NOTE = 4 * 2**20
"""Of one note: one of a gang that hangs has the stacks of all its ranks."""

T = TypeVar("T")


def _at_most(most: int) -> AfterValidator:
    def check(value: T) -> T:
        plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        if len(json.dumps(plain)) > most:
            raise PydanticCustomError("evidence", f"at most {most} bytes of JSON")
        return value

    return AfterValidator(check)


_SMALL = _at_most(MOST_EVIDENCE)


Words = Annotated[dict[Line, Any], _SMALL]
"""Kept and shown as it is; nothing is decided by it."""


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

    attempt: Annotated[int, Field(ge=0, le=2**31 - 1)]
    step: Step
    path: Annotated[Text, Field(min_length=1, max_length=1024)]
    digest: Digest
    bytes: Count = 0
    ranks: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """How many ranks have a part of their own in it; 0: it is not in parts."""
    source: Literal["windlass", "files"] = "windlass"
    """By the writer of `windlass.job`, or a script's own files that its worker noticed."""
    mirrored: bool = False
    """It lies on the worker's own disk and is on its way: not one to resume from yet."""


class RankWords(Strict):
    """What is said of a rank that runs."""

    model_config = ConfigDict(extra="allow")

    rank: RankNumber | None = None
    exit: Code | None = None

    def as_told(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_unset=True)


class RankEnd(RankWords):
    """How a rank ended: verdicts are made of it."""

    role: Line
    index: Count
    local_rank: Count
    signal: Code | None = None
    started_ms: Count | None = None
    ended_ms: Count | None = None
    ended_by: Line | None = None
    oom: bool = False
    limit: Text | None = None
    given_up: bool = False
    first_loss: Words | None = None
    matched: Annotated[tuple[Line, ...], Field(strict=False, max_length=1000)] = ()
    traceback: Text | None = None


class Note(Strict):
    """Something that a worker saw. Which fields it has depends on its kind."""

    model_config = ConfigDict(extra="allow")

    kind: Annotated[Line, Field(max_length=40)] = "note"
    rank: RankNumber | None = None
    path: Annotated[Text, Field(max_length=1024)] | None = None
    text: Text | None = None
    reason: Text | None = None
    idle_ms: Count = 0
    bytes: Count = 0
    whole_node: bool = False
    given_up: bool = False

    def as_told(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_unset=True)


class Register(Report):
    host: Annotated[Line, Field(max_length=255)]
    boot_id: Annotated[Line, Field(max_length=64)]
    pid: Count
    members: Annotated[tuple[MemberPorts, ...], Field(max_length=10_000)]
    isolation: Words = {}
    checkpoints: Annotated[tuple[Words, ...], Field(max_length=64)] = ()
    """What older attempts left complete on disk, registered or not."""


class Fetched(Report):
    commit: Annotated[str, Field(pattern=COMMIT)]
    """What its repository's ref is there and then."""


Ranks = Annotated[tuple[Annotated[RankWords, _SMALL], ...], Field(max_length=10_000)]


class Started(Report):
    ranks: Ranks = ()


class Beat(Report):
    sent_ms: Annotated[int, Field(ge=-MAX_INT, le=MAX_INT)] = 0
    ranks: Ranks = ()
    usage: dict[Line, Any] = {}
    """Minutes of samples: what has another form is left out."""
    notes: Annotated[tuple[Annotated[Note, _at_most(MOST_NOTE)], ...], Field(max_length=1000)] = ()


class OrderResult(Strict):
    model_config = ConfigDict(extra="allow")

    ranks: Annotated[tuple[dict[Line, Any], ...], Field(max_length=10_000)] = ()
    error: Text | None = None


class OrderAnswer(Report):
    ok: bool
    result: OrderResult = OrderResult()


class SpoolLines(Report):
    rank: RankNumber
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
    outcome: Annotated[Outcome, Field(strict=False)]
    reason: Text = ""
    ranks: Annotated[tuple[Annotated[RankEnd, _SMALL], ...], Field(max_length=10_000)] = ()
    first_failure: Words | None = None
    survivors: Annotated[tuple[int, ...], Field(strict=False, max_length=10_000)] = ()
    advice: Text | None = None


class Ended(Strict):
    model_config = ConfigDict(extra="ignore")

    attempt: Count
    seq: Count = 0
    record: ExitRecord
