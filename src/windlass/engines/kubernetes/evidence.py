"""What lies in the folders of the workers, and what follows from it and from their pods."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.engines import directory as directories
from windlass.engines.base import NodeLaunch, Seen, Sight
from windlass.engines.directory import Directory
from windlass.engines.kubernetes import states
from windlass.engines.kubernetes.states import Phase

_MADE = "kubernetes.pods"
"""Beside the folders of an attempt: the nodes whose pods were made, a line each."""


class Places:
    def __init__(self, attempts: Path, engine: str, starting_seconds: float) -> None:
        self._attempts = attempts
        self._engine = engine
        self._starting_seconds = starting_seconds

    def every(self) -> list[tuple[str, str]]:
        found = directories.every(self._attempts, self._engine)
        return [(place.attempt_id, place.node) for place in found]

    def lay_down(self, places: Sequence[Directory], workers: Sequence[NodeLaunch]) -> None:
        """The workers of one attempt, or some of them."""
        directories.claim(self._attempts, places[0].attempt_id, self._engine)
        for place, worker in zip(places, workers, strict=True):
            place.create(worker)
            if path := worker.launch.get("checkpoint_dir"):
                # a pod can only be shown what is there
                Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)

    def was_launched(self, place: Directory) -> bool:
        return bool(self.launched([place]))

    def _began(self, place: Directory) -> bool:
        return place.has_worker_file() or place.record() is not None

    def remember(self, places: Sequence[Directory]) -> None:
        """That pods of an attempt were made: were one deleted, it must not be made again. A line
        each in one file, since to make files is what takes long in a large gang; not synced:
        once the launch is in the database nobody makes them again."""
        path = self._attempts / places[0].attempt_id / _MADE
        lines = "".join(f"{place.node}\n" for place in places).encode()
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with open(opened, "wb", buffering=0) as file:
            file.write(lines)

    def _pods_of(self, attempt_id: str) -> frozenset[str]:
        """The nodes for which pods of an attempt were made."""
        try:
            return frozenset((self._attempts / attempt_id / _MADE).read_text().splitlines())
        except OSError:
            return frozenset()

    def launched(self, places: Sequence[Directory]) -> set[tuple[str, str]]:
        """Whose pods were made. To be asked before the cluster is: a pod that it does not know
        then was deleted, and is not one that was made a moment after."""
        pods = {each: self._pods_of(each) for each in {place.attempt_id for place in places}}
        return {
            (each.attempt_id, each.node)
            for each in places
            if each.node in pods[each.attempt_id] or self._began(each)
        }

    def see(
        self,
        place: Directory,
        pod: Mapping[str, Any] | None,
        silent: Mapping[str, str],
        launched: Collection[tuple[str, str]] = (),
    ) -> Seen:
        """`silent`: why nodes do not answer, by node."""
        made = (place.attempt_id, place.node) in launched
        sight, reason = self._judge(place, pod, silent, made)
        record = place.record() if sight is Sight.ENDED else None
        return Seen(place.attempt_id, place.node, sight, record, reason)

    def _judge(
        self,
        place: Directory,
        pod: Mapping[str, Any] | None,
        silent: Mapping[str, str],
        made: bool,
    ) -> tuple[Sight, str]:
        state = states.read(pod) if pod is not None else None
        if not place.exists():
            if state is None or state.is_nothing:
                return Sight.ABSENT, ""
            return Sight.ALIVE, "its files are gone, its pod is not"
        ended = place.record() is not None and not place.is_locked()
        if state is not None and state.phase is Phase.RUNS and not ended:
            if not (state.leaving and silent.get(place.node)):
                told = place.has_worker_file()
                return (Sight.ALIVE if told else Sight.STARTING), state.reason
        if place.record() is not None:
            return Sight.ENDED, ""
        if state is None:
            if made:
                return Sight.DEAD, "its pod was deleted"
            if self._is_fresh(place) or self.was_launched(place):
                return Sight.STARTING, ""
            return Sight.DEAD, "the cluster knows nothing of it"
        if state.phase is Phase.RUNS:
            return Sight.DEAD, f"its node was lost: {silent[place.node]}"
        if state.phase is Phase.OVER:
            return Sight.DEAD, _death(place, state.reason)
        if state.leaving:
            return Sight.DEAD, "its pod was deleted before it began"
        if state.phase is Phase.STUCK and not self._is_fresh(place):
            return Sight.DEAD, state.reason
        return Sight.STARTING, state.reason

    def _is_fresh(self, place: Directory) -> bool:
        """Laid down a moment ago."""
        return place.laid_seconds() < self._starting_seconds

    def forget_numbers(self, place: Directory) -> None:
        """The pids that a dead worker wrote down counted in its pod: here they are others'."""
        with contextlib.suppress(FileNotFoundError):
            (place.path / "processes.json").rename(place.path / "processes.json.pod")

    def explain(self, place: Directory, why: str) -> None:
        """What the cluster says of the end goes into the record that says no more than lost."""
        record = place.record()
        if record is not None and record["outcome"] == "lost" and not record["ranks"] and why:
            _replace(place.path / "exit.json", {**record, "reason": why})


def _death(place: Directory, reason: str) -> str:
    if place.has_worker_file():
        return reason or "its worker died and left no record"
    return (
        f"its worker died before it took its lock: {reason}"
        if reason
        else ("its worker died before it took its lock")
    )


def _replace(path: Path, value: Mapping[str, Any]) -> None:
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(opened, "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
