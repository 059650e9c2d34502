"""Jobs from the user's side: submit, look, follow, steer.

What the server answers comes back as a `Job` (attributes) that keeps the answer itself in `data`.
It is a plain dataclass, not the pydantic `JobView` of the server: importing pydantic would double
the time until the first line of output, and a client must not break on a field it does not know.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from windlass.client import bundle as bundles
from windlass.client.http import Http, new_key, path_of
from windlass.client.sse import Message
from windlass.core.errors import BundleMissing, NotFound, Unavailable, Unreachable
from windlass.core.parameters import change_spec

Code = str | os.PathLike[str] | bundles.Bundle | Mapping[str, Any] | None
DONE = ("succeeded", "failed", "cancelled")
STATES = ("held", "queued", "starting", "running", "stopping", *DONE)


@dataclass(frozen=True)
class Job:
    """A job as the server showed it at one moment."""

    id: str
    name: str
    project: str
    user: str
    state: str
    framework: str
    members: int
    gpus: int
    attempt: int
    submitted: str
    revision: int
    command: str
    reason: str = ""
    queue: str = "default"
    priority: int = 50
    work: str = "train"
    wish: str | None = None
    engine: str | None = None
    failures: int = 0
    exit_code: int | None = None
    outcome: str | None = None
    step: int | None = None
    progress: float | None = None
    queued: str | None = None
    started: str | None = None
    ended: str | None = None
    rerun_of: str | None = None
    waits: str | None = None
    expected_start: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Job:
        """From what the API answered; fields that are not known here stay in `data`."""
        known = {name: answer[name] for name in _FIELDS if name in answer}
        return cls(**known, data=answer)

    @property
    def done(self) -> bool:
        """Whether it has ended, however it ended."""
        return self.state in DONE


_FIELDS = tuple(item.name for item in fields(Job) if item.name != "data")


class Jobs:
    """The verbs. `ref` is an id, a unique prefix of one, or a name (then the newest)."""

    def __init__(self, http: Http, *, project: str | None = None) -> None:
        self._http = http
        self._project = project

    # -- make -------------------------------------------------------------------------------

    def submit(
        self,
        spec: Mapping[str, Any] | None = None,
        /,
        *,
        code: Code = None,
        idempotency_key: str | None = None,
        **more: Any,
    ) -> Job:
        """A new job from the fields of a job file, e.g. `submit(run="python a.py", workers=2)`.

        `code` is the directory to send with it, or what a job file says of code in a repository:
        `{"git": URL, "ref": "main"}`. The same `idempotency_key` makes the same job,
        however often it is sent. Raises InvalidInput, NeverFits, LimitExceeded, Unreachable …
        """
        answer = self._submit(spec, code, False, idempotency_key or new_key(), more)
        return Job.read(answer)

    def check(
        self,
        spec: Mapping[str, Any] | None = None,
        /,
        *,
        code: Code = None,
        **more: Any,
    ) -> dict[str, Any]:
        """A dry run: the spec as the server understands it, and whether it would start now."""
        return self._submit(spec, code, True, new_key(), more)

    def _submit(
        self,
        spec: Mapping[str, Any] | None,
        code: Code,
        dry_run: bool,
        key: str,
        more: Mapping[str, Any],
    ) -> dict[str, Any]:
        whole = {**(spec or {}), **more}
        if self._project and "project" not in whole:
            whole["project"] = self._project
        packed = None
        if isinstance(code, Mapping):
            whole["code"] = dict(code)
        elif code is not None:
            about = dict(whole.get("code") or {})
            packed = (
                code
                if isinstance(code, bundles.Bundle)
                else bundles.scan(
                    code, ignore=about.get("ignore", ()), include=about.get("include", ())
                )
            )
            left_out = {"left_out": list(packed.left_out)} if packed.left_out else {}
            whole["code"] = {**about, **left_out, "bundle": packed.digest}
        body = {"spec": whole, "dry_run": dry_run}
        with self._http.speaking_for(whole.get("project")):
            try:
                # Hopeful: the code is mostly there from the last time, and this saves a round
                # trip.
                answer = self._http.call("POST", "/jobs", body=body, key=key)
            except BundleMissing:
                if packed is None:
                    raise
                bundles.upload(self._http, packed)
                answer = self._http.call("POST", "/jobs", body=body, key=key)
        return dict(answer)

    def rerun(
        self,
        ref: str,
        *,
        params: Mapping[str, Any] | None = None,
        changes: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """A new job like `ref`, with changes. A parameter that the job's spec does not declare
        is looked for in its command (`--lr 0.1`, `--lr=0.1`, `lr=0.1`) and changed there."""
        params, changes = dict(params or {}), dict(changes or {})
        if params and "run" not in changes:
            spec = self.detail(ref)["spec"]
            for name in [name for name in params if name not in (spec.get("params") or {})]:
                changed = change_spec(spec, name, params.pop(name))
                spec = {**spec, **changed}
                changes |= changed
        body = {"params": params, "changes": changes}
        key = idempotency_key or new_key()
        return Job.read(self._http.call("POST", path_of("jobs", ref, "rerun"), body=body, key=key))

    # -- look -------------------------------------------------------------------------------

    def get(self, ref: str) -> Job:
        """A job by its id, the start of one, or a name (then the newest). Raises NotFound."""
        return Job.read(self.detail(ref))

    def detail(self, ref: str) -> dict[str, Any]:
        """The job with its spec and its attempts."""
        answer: dict[str, Any] = self._http.get(path_of("jobs", ref))
        return answer

    def list(
        self,
        *,
        state: str | None = None,
        user: str | None = None,
        name: str | None = None,
        project: str | None = None,
        filter: str | None = None,
        sort: str | None = None,
        columns: Sequence[str] = (),
        limit: int = 50,
    ) -> list[Job]:
        """Newest first, at most `limit`, however many pages that takes. `filter` is such as
        `metrics.loss < 0.3 and gpus > 1`, `sort` such as `-metrics.loss`; what `columns` name
        (`params.lr`, `metrics.loss`) is in `data["params"]` and `data["metrics"]`."""
        found: list[Job] = []
        before = None
        while len(found) < limit:
            asked = {
                "state": state, "user": user, "name": name, "filter": filter or None,
                "sort": sort or None, "columns": ",".join(columns) or None,
                "limit": min(limit - len(found), 200), "before": before,
            }  # fmt: skip
            with self._http.speaking_for(project):
                page = self._http.get("/jobs", asked)
            found += [Job.read(item) for item in page["items"]]
            before = page.get("next")
            if not before or not page["items"]:
                break
        return found

    def why(self, ref: str) -> dict[str, Any]:
        """`sentence`, `evidence`, `next`: why it waits, failed, is slow or was stopped."""
        answer: dict[str, Any] = self._http.get(path_of("jobs", ref, "why"))
        return answer

    def events(self, ref: str, *, after: int | None = None) -> Sequence[dict[str, Any]]:
        """What happened to a job, in order; `after` is the `seq` of the last one known."""
        answer = self._http.get(path_of("jobs", ref, "events"), {"after": after})
        return list(answer["items"])

    def logs(
        self,
        ref: str,
        *,
        rank: str | None = None,
        stream: str | None = None,
        since: str | None = None,
        grep: str | None = None,
        tail: int | None = None,
        attempt: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Lines kept so far: `{"rank", "stream", "at", "offset", "text"}`, in order of time."""
        query = {
            "rank": rank, "stream": stream, "since": since, "grep": grep, "tail": tail,
            "attempt": attempt, "format": "json",
        }  # fmt: skip
        for line in self._http.text(path_of("jobs", ref, "logs"), query):
            if line.strip():
                yield json.loads(line)

    def metrics(
        self,
        ref: str,
        *,
        key: str | None = None,
        rank: int | None = None,
        points: int | None = None,
        by: str | None = None,
        low: int | str | None = None,
        high: int | str | None = None,
    ) -> Sequence[dict[str, Any]]:
        """Series: `{"key", "rank", "source", "thinned", "points": [[step, ms, value], …]}`, a
        value that is no number as "NaN", "Infinity" or "-Infinity". `key` may name several, with
        commas. Of a long series the smallest and largest of each stretch, about `points` in all
        (`points` below gives every one); `low` and `high` are steps, or times with by="time"."""
        query = {
            "key": key, "rank": rank, "points": points, "by": by, "from": low, "to": high,
        }  # fmt: skip
        return list(self._http.get(path_of("jobs", ref, "metrics"), query)["series"])

    def points(
        self, ref: str, *, key: str | None = None, rank: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Every point, however many: `{"key", "rank", "attempt", "step", "at_ms", "value"}`."""
        query = {"key": key, "rank": rank, "format": "jsonl"}
        for line in self._http.text(path_of("jobs", ref, "metrics"), query):
            if line.strip():
                yield json.loads(line)

    def checkpoints(self, ref: str) -> Sequence[dict[str, Any]]:
        """What it has saved, newest first; `Client.checkpoints` does more with them."""
        return list(self._http.get(path_of("jobs", ref, "checkpoints"))["items"])

    # -- follow -----------------------------------------------------------------------------

    def stream(
        self,
        ref: str,
        *,
        cursor: str | None = None,
        since: str | None = None,
        tail: int | None = None,
        patience_seconds: float = 600.0,
        broken: Callable[[WindlassProblem], None] | None = None,
    ) -> Iterator[Message]:
        """Events, log output and the end of a job, as they happen; ends after `end`. With `since`
        (ISO-8601) or `tail` (lines of each rank) it begins there, not at the beginning.

        A server that goes away and comes back is waited for, and nothing is delivered twice:
        each message has the cursor from which the next connection goes on.
        """
        lost_at: float | None = None
        seen = Seen()
        while True:
            try:
                query: dict[str, Any] = {"cursor": cursor}
                if cursor is None:
                    query |= {"since": since, "tail": tail}
                with self._http.stream(path_of("jobs", ref, "stream"), query) as told:
                    for message in told:
                        lost_at = None
                        cursor = message.id or cursor
                        if message.event == "log" and not seen.is_new(message.json()):
                            continue
                        yield message
                        if message.event == "end":
                            return
                problem: WindlassProblem = Unreachable("the server ended the stream")
            except (Unreachable, Unavailable) as err:
                problem = err
            if lost_at is None:
                lost_at = time.monotonic()
                if broken is not None:
                    broken(problem)
            if time.monotonic() - lost_at > patience_seconds:
                raise problem
            time.sleep(0.2)

    def wait(
        self, ref: str, *, timeout_seconds: float | None = None, patience_seconds: float = 600.0
    ) -> Job:
        """Block until the job is done. Raises TimeoutError when `timeout_seconds` pass first."""
        started = time.monotonic()
        job = self.get(ref)
        lost_at: float | None = None
        while not job.done:
            left = None
            if timeout_seconds is not None:
                left = timeout_seconds - (time.monotonic() - started)
                if left <= 0:
                    raise TimeoutError(f"{job.name} is {job.state} after {timeout_seconds:g} s")
            try:
                with self._http.stream("/feed", {"job": job.id}, limit_seconds=left) as feed:
                    job = self.get(job.id)  # after the feed is open: no end can be missed between
                    lost_at = None
                    while not job.done:
                        if _ends(next(feed, None)):
                            job = self.get(job.id)
                            break
            except (Unreachable, Unavailable) as err:
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > patience_seconds:
                    raise err
        return job

    # -- steer ------------------------------------------------------------------------------

    def stop(self, ref: str, *, reason: str = "", now: bool = False) -> Job:
        """Ask it to stop, with time to save a checkpoint; `now`: without."""
        body = {"reason": reason, "now": now}
        path = path_of("jobs", ref, "stop")
        return Job.read(self._http.call("POST", path, body=body, repeatable=True))

    def release(self, ref: str) -> Job:
        """Let a held job queue, or cut a backoff short."""
        path = path_of("jobs", ref, "release")
        return Job.read(self._http.call("POST", path, body={}, repeatable=True))

    def priority(self, ref: str, priority: int) -> Job:
        """Give it another priority; higher goes first."""
        body = {"priority": priority}
        path = path_of("jobs", ref, "priority")
        return Job.read(self._http.call("POST", path, body=body, repeatable=True))

    def move(
        self, ref: str, *, before: str | None = None, first: bool = False, last: bool = False
    ) -> Job:
        """Put a waiting job elsewhere in its queue: directly before another, first, or last. It
        takes the priority of its new neighbour."""
        body = {"before": before, "first": first, "last": last}
        path = path_of("jobs", ref, "move")
        return Job.read(self._http.call("POST", path, body=body, repeatable=True))

    def restart(self, ref: str) -> Job:
        """End the attempt and start the next, from the newest checkpoint."""
        return Job.read(self._http.call("POST", path_of("jobs", ref, "restart"), body={}))

    def debug(
        self, ref: str, kind: str, *, rank: int | None = None, seconds: int = 10
    ) -> dict[str, Any]:
        """`stack`, `profile`, `trace` or `attach`: what the workers answered, rank by rank."""
        answer: dict[str, Any] = self._http.call(
            "POST",
            path_of("jobs", ref, "debug"),
            body={"kind": kind, "rank": rank, "seconds": seconds},
            timeout_seconds=seconds + (165 if kind == "trace" else 45),
        )
        return answer

    def delete(self, ref: str) -> None:
        """Remove a finished job with its files."""
        try:
            self._http.call("DELETE", path_of("jobs", ref), repeatable=False)
        except NotFound:
            raise NotFound(f"no job {ref!r}", hint="`windlass ps -a` lists them") from None


WindlassProblem = Unreachable | Unavailable


class Seen:
    """How far the output of each rank was delivered: where a gang is too large for its cursor to
    say so, a new connection tells it again."""

    def __init__(self) -> None:
        self._ends: dict[tuple[Any, ...], int] = {}

    def is_new(self, log: Mapping[str, Any]) -> bool:
        place = (log.get("attempt"), log.get("rank"), log.get("stream"))
        end = int(log.get("end", 0))
        if end and end <= self._ends.get(place, 0):
            return False
        self._ends[place] = end
        return True


def _ends(message: Message | None) -> bool:
    if message is None:
        return True
    value = message.json()
    return isinstance(value, dict) and value.get("state") in DONE
