"""Studies from the user's side: searches over the parameters of a job."""

from __future__ import annotations

import builtins
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.client import bundle as bundles
from windlass.client.http import Http, new_key, path_of
from windlass.client.sse import Message
from windlass.core.errors import BundleMissing, Unavailable, Unreachable

LIVE = ("running", "stopping")


@dataclass(frozen=True)
class Study:
    """A study as the server showed it at one moment."""

    id: str
    name: str
    state: str
    reason: str = ""
    trials: int = 0
    made: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    best: tuple[int, ...] = ()
    best_values: tuple[float | None, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Study:
        """From what the API answered; fields that are not known here stay in `data`."""
        return cls(
            id=str(answer["id"]),
            name=str(answer["name"]),
            state=str(answer["state"]),
            reason=str(answer.get("reason", "")),
            trials=int(answer.get("trials", 0)),
            made=int(answer.get("made", 0)),
            counts=dict(answer.get("counts", {})),
            best=tuple(answer.get("best", ())),
            best_values=tuple(answer.get("best_values", ())),
            data=answer,
        )

    @property
    def done(self) -> bool:
        """Whether every trial has its result, or it was stopped."""
        return self.state not in LIVE and self.data.get("wish") != "go-on"

    @property
    def results(self) -> int:
        """How many trials have ended, well or not."""
        ended = ("succeeded", "pruned", "failed", "cancelled")
        return sum(self.counts.get(state, 0) for state in ended)


class Studies:
    def __init__(self, http: Http, project: str | None = None) -> None:
        self._http = http
        self._project = project

    def create(
        self,
        spec: Mapping[str, Any],
        *,
        code: str | os.PathLike[str] | bundles.Bundle | None = None,
        idempotency_key: str | None = None,
    ) -> Study:
        """A new study from the fields of a study file: `job`, `space`, `maximize` …

        `space` may be a function of a trial (`trial.suggest_float("lr", 1e-4, 1e-1, log=True)`,
        `suggest_int`, `suggest_categorical`), whose branches become conditions. `code` is the
        directory to send with its trials. The same `idempotency_key` makes the same study,
        however often it is sent. Raises InvalidInput, Conflict for a name that is taken.
        """
        return Study.read(self._create(spec, code, False, idempotency_key or new_key()))

    def check(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A dry run: the spec as the server understands it, and the job of a trial."""
        return self._create(spec, None, True, new_key())

    def _create(
        self,
        spec: Mapping[str, Any],
        code: str | os.PathLike[str] | bundles.Bundle | None,
        dry_run: bool,
        key: str,
    ) -> dict[str, Any]:
        whole = dict(spec)
        if callable(whole.get("space")):
            from windlass.client.spaces import of_function

            whole["space"] = of_function(whole["space"])
        if self._project and "project" not in whole:
            whole["project"] = self._project
        packed = None
        if code is not None:
            job = dict(whole.get("job") or {})
            about = dict(job.get("code") or {})
            packed = (
                code
                if isinstance(code, bundles.Bundle)
                else bundles.scan(code, ignore=about.get("ignore", ()))
            )
            whole["job"] = {**job, "code": {**about, "bundle": packed.digest}}
        body = {"spec": whole, "dry_run": dry_run}
        with self._http.speaking_for(whole.get("project")):
            try:
                answer = self._http.call("POST", "/studies", body=body, key=key)
            except BundleMissing:
                if packed is None:
                    raise
                bundles.upload(self._http, packed)
                answer = self._http.call("POST", "/studies", body=body, key=key)
        return dict(answer)

    def list(self, *, limit: int = 50) -> builtins.list[Study]:
        """Newest first."""
        found: builtins.list[Study] = []
        before = None
        while len(found) < limit:
            asked = {"limit": min(limit - len(found), 200), "before": before}
            page = self._http.get("/studies", asked)
            found += [Study.read(item) for item in page["items"]]
            before = page.get("next")
            if not before:
                break
        return found

    def get(self, ref: str) -> Study:
        """With `data["spec"]`, `data["importance"]` and `data["curve"]`."""
        return Study.read(self._http.get(path_of("studies", ref)))

    def trials(self, ref: str) -> builtins.list[dict[str, Any]]:
        """Every trial: `number`, `state`, `params`, `values`, `job`, `step` …"""
        return builtins.list(self._http.get(path_of("studies", ref, "trials"))["items"])

    def best(self, ref: str) -> builtins.list[dict[str, Any]]:
        """The best trial; of several objectives, all that no other beats."""
        chosen = set(self.get(ref).best)
        return [trial for trial in self.trials(ref) if trial["number"] in chosen]

    def stop(self, ref: str, *, reason: str = "") -> Study:
        """Make no more trials, and stop those that run; what was found stays."""
        path = path_of("studies", ref, "stop")
        return Study.read(self._http.call("POST", path, body={"reason": reason}, repeatable=True))

    def add_trials(self, ref: str, trials: int) -> Study:
        """So many more; a study that is over goes on."""
        path = path_of("studies", ref, "trials")
        return Study.read(self._http.call("POST", path, body={"trials": trials}))

    def delete(self, ref: str) -> None:
        """Remove it; one that runs is stopped first. Its jobs stay."""
        self._http.call("DELETE", path_of("studies", ref), repeatable=False)

    def wait(
        self, ref: str, *, timeout_seconds: float | None = None, patience_seconds: float = 600.0
    ) -> Study:
        """Block until the study is over. Raises TimeoutError when `timeout_seconds` pass first."""
        for study in self._watched(ref, _ended, timeout_seconds, patience_seconds):
            if study.done:
                return study
        raise AssertionError("a study is watched until it is over")

    def follow(
        self, ref: str, *, timeout_seconds: float | None = None, patience_seconds: float = 600.0
    ) -> Iterator[Study]:
        """The study as it is, again with each result, and last when it is over. Raises
        TimeoutError when `timeout_seconds` pass first."""
        return self._watched(ref, lambda _: True, timeout_seconds, patience_seconds)

    def _watched(
        self,
        ref: str,
        wanted: Callable[[Mapping[str, Any]], bool],
        timeout_seconds: float | None,
        patience_seconds: float,
    ) -> Iterator[Study]:
        """Woken by the feed: a look at the beginning, and one at each `wanted` event of it."""
        started, lost_at = time.monotonic(), None
        study: Study | None = None
        while study is None or not study.done:
            left = None
            if timeout_seconds is not None:
                left = timeout_seconds - (time.monotonic() - started)
                if left <= 0:
                    raise TimeoutError(f"{ref} is not over after {timeout_seconds:g} s")
            try:
                with self._http.stream("/feed", limit_seconds=left) as feed:
                    # After the feed is open: nothing can be missed between.
                    study = self.get(study.id if study else ref)
                    lost_at = None
                    yield study
                    while not study.done and (message := next(feed, None)) is not None:
                        about = _about(message, study.id)
                        if about is not None and wanted(about):
                            study = self.get(study.id)
                            yield study
            except (Unreachable, Unavailable):
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > patience_seconds:
                    raise


def _about(message: Message, study_id: str) -> Mapping[str, Any] | None:
    """What an event of the feed tells of this study; None: it is of something else."""
    value = message.json()
    data = value.get("data") if isinstance(value, dict) and value.get("kind") == "study" else None
    return data if isinstance(data, dict) and data.get("study") == study_id else None


def _ended(about: Mapping[str, Any]) -> bool:
    return about.get("state") not in LIVE
