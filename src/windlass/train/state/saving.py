"""Saving while the training goes on: the state is copied, and a thread writes the copy.

    worker 0 (who leads)                          worker n
    opens the folder, says where        ──►
    writes its part                               writes its part, brings it to the disk
                                        ◄──       says so
    reads what they wrote, writes the index
    commits: all parts, or no checkpoint ──►      hears what came of it

At most one write is under way: the next save waits for it, so none is left out. What failed is
raised by the next `save` or `wait`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from windlass.core.errors import MemberLost, TrainingFailed
from windlass.job import checkpoint as writer
from windlass.job.manifest import CheckpointError, FileEntry, entry_of
from windlass.train.failures import lost
from windlass.train.runners.base import Runner
from windlass.train.seat import Seat
from windlass.train.state import pieces
from windlass.train.state.snapshot import Snapshot

FORMAT = 1
_LIVING_SECONDS = 600.0
"""For a member that lives: its part may be large. One that does not is known in seconds."""
_LEAVING_SECONDS = 2.0
"""For a peer's word, when this member gives up."""


class Saver:
    """One worker's side of its training's checkpoints. Called from one thread."""

    def __init__(
        self, runner: Runner, seat: Seat, *, folder: str | None = None, keep: int | None = None,
        needs: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`folder` counts off the platform only. `needs`: those without whom all give up."""
        self._runner = runner
        self._seat = seat
        self._folder = folder
        self._keep = keep
        self._needs = needs
        self._snapshot = Snapshot()
        self._writing: _Writing | None = None

    @staticmethod
    def prepare() -> None:
        """What takes a second at the first save, now: a training without checkpoints is spared
        it, and one with them is not held up in its steps."""
        import windlass.train.comm.torchdist.dcp  # noqa: F401

    def save(self, steps: int, **stands: Any) -> None:
        """All workers call it at the same step. Returns when the state is copied; it waits for
        the write before, and raises what came of that. `stands`: more about where the training
        stands, plain values; who leads writes them."""
        self.wait()
        seat, runner = self._seat, self._runner
        leader = seat.leader
        leads = leader == seat.name
        shared, mine = runner.shared_state(), runner.local_state()
        if shared is None or not (leads or runner.is_spread):
            shared = {}
        if leads and not shared:
            raise lost(["worker 0"], "saving a checkpoint", steps, why="it was lost on the way")
        if leads:
            stands.update(runner.stands())
            shared = {**shared, "windlass": {"format": FORMAT, "steps": steps, **stands}}
        taken = self._snapshot.take({"shared": shared, "mine": mine})
        self._writing = _Writing(self, steps, leader, taken)

    def wait(self) -> None:
        """Until nothing is being written. Raises what failed, once."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.thread.join()
            if writing.error is not None:
                raise writing.error

    def close(self) -> None:
        """This member gives up: what it is writing is written, but nobody is waited for long."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.let_go()


class _Writing:
    """One checkpoint, in a thread of its own."""

    def __init__(self, saver: Saver, steps: int, leader: str, taken: dict[str, Any]) -> None:
        self._runner, self._seat = saver._runner, saver._seat
        self._folder, self._keep, self._needs = saver._folder, saver._keep, saver._needs
        self._steps = steps
        self._leader = leader
        self._shared, self._mine = taken["shared"], taken["mine"]
        self._key = f"checkpoint/{steps}"
        self._scope = self._seat.meeting.scope
        self._waits_since: float | None = None
        self._placed = False
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self.thread.start()

    def let_go(self) -> None:
        while self.thread.is_alive():
            since = self._waits_since
            if since is not None and time.monotonic() - since > _LEAVING_SECONDS:
                return
            self.thread.join(0.02)

    def _run(self) -> None:
        try:
            if self._seat.name == self._leader:
                self._lead()
            else:
                self._follow()
        except OSError as err:
            self.error = CheckpointError(self._not_saved(str(err)))
            self.error.__cause__ = err
        except BaseException as err:
            self.error = err

    # -- who leads --------------------------------------------------------------------------

    def _lead(self) -> None:
        seat = self._seat
        # For a worker 0 that comes back and saves this step too.
        self._put(f"has/{seat.name}", b"")
        try:
            known: dict[str, FileEntry] = {}
            with writer.gathered(
                self._steps, known, keep=self._keep, folder=self._folder
            ) as folder:
                self._placed = True
                self._put(f"at/{seat.name}", str(folder.resolve()).encode())
                self._make(folder, known)
        except BaseException as err:
            self._tell_failure(err)
            raise
        self._put("result", b"")

    def _make(self, folder: Path, known: dict[str, FileEntry]) -> None:
        from windlass.train.comm.torchdist import dcp

        parts = [dcp.write_part(folder, self._seat.rank, self._values())]
        self._write_mine(folder)
        workers = {f"worker {rank}" for rank in range(self._seat.workers)}
        here = (self._seat.meeting.roster.present & workers) | set(self._needs)
        for name in sorted(here - {self._leader}):
            if self._await(f"has/{name}", name):
                told = json.loads(self._await(f"part/{name}", name))
                if "failed" in told:
                    raise CheckpointError(self._not_saved(f"{name}: {told['failed']}"))
                known.update({each["path"]: each for each in told["files"]})
                if told["listed"]:
                    listed = folder / told["listed"]
                    parts.append(json.loads(listed.read_text("utf-8")))
                    listed.unlink()
        self._check(parts)
        try:
            dcp.write_index(folder, parts)
        except dcp.Incomplete as err:
            raise CheckpointError(self._not_saved(str(err))) from err

    def _check(self, parts: Sequence[Sequence[Any]]) -> None:
        there = {each["name"] for part in parts for each in part}
        missing = [name for name in self._runner.state_names if f"model.{name}" not in there]
        if missing:
            words = f"nobody has {', '.join(missing[:5])} of the model"
            raise CheckpointError(self._not_saved(words))

    def _tell_failure(self, err: BaseException) -> None:
        """To those who wait; whoever cannot be told sees that we are gone."""
        try:
            if not self._placed:
                self._put(f"at/{self._leader}", b"")
            self._put("result", str(err).encode() or b"it was not saved")
        except MemberLost:
            pass

    # -- who does not -----------------------------------------------------------------------

    def _follow(self) -> None:
        has = bool(self._shared or self._mine)
        self._put(f"has/{self._seat.name}", b"1" if has else b"")
        if not has:
            return
        place = self._await(f"at/{self._leader}", self._leader).decode()
        if place:
            self._put(f"part/{self._seat.name}", json.dumps(self._part(Path(place))).encode())
        failed = self._await("result", self._leader).decode()
        if failed:
            raise CheckpointError(failed)

    def _part(self, folder: Path) -> dict[str, Any]:
        from windlass.train.comm.torchdist import dcp

        try:
            written = dcp.write_part(folder, self._seat.rank, self._values())
            files = {each["file"] for each in written} | self._write_mine(folder)
            listed = ""
            if written:
                # In the folder and not by word: it may be long, and words are kept.
                listed = f"part-{self._seat.rank}.json"
                (folder / listed).write_text(json.dumps(written), encoding="utf-8")
            return {"files": [entry_of(folder, each) for each in sorted(files)], "listed": listed}
        except FileNotFoundError as err:
            words = f"{folder} is not there for this worker"
            self._put(f"part/{self._seat.name}", json.dumps({"failed": words}).encode())
            raise TrainingFailed(
                words, hint="workers on several machines need a checkpoint folder that all see"
            ) from err
        except BaseException as err:
            told = {"failed": f"{type(err).__name__}: {err}"}
            self._put(f"part/{self._seat.name}", json.dumps(told).encode())
            raise

    # -- both -------------------------------------------------------------------------------

    def _values(self) -> dict[str, tuple[pieces.Place, Any]]:
        state = dict(self._shared)
        if "optimizer" in state:
            names = self._runner.parameter_names
            state["optimizer"] = pieces.named(state["optimizer"], names)
        return pieces.flat(state)

    def _write_mine(self, folder: Path) -> set[str]:
        if not self._mine:
            return set()
        name = f"worker-{self._seat.rank}.pt"
        torch.save(self._mine, folder / name)
        return {name}

    def _put(self, key: str, value: bytes) -> None:
        self._check_scope()
        self._seat.meeting.put(f"{self._key}/{key}", value)

    def _await(self, key: str, name: str) -> bytes:
        self._check_scope()
        meeting, key = self._seat.meeting, f"{self._key}/{key}"
        words: dict[str, Any] = {"operation": "saving a checkpoint", "step": self._steps}
        self._waits_since = time.monotonic()
        try:
            return meeting.get(
                key, owner=name, needs=self._needs,
                deadline_seconds=max(_LIVING_SECONDS, self._seat.deadline_seconds), **words,
            )  # fmt: skip
        except MemberLost:
            # It may have said it before it was lost: then the checkpoint can still be whole.
            try:
                return meeting.get(key, deadline_seconds=0.5, **words)
            except MemberLost:
                pass
            raise
        finally:
            self._waits_since = None

    def _check_scope(self) -> None:
        """A training that is over says nothing in the next one's."""
        if self._seat.meeting.scope != self._scope:
            raise lost([], "saving a checkpoint", self._steps, why="its training is over")

    def _not_saved(self, why: str) -> str:
        words = f"checkpoint of step {self._steps} was not saved: {why}"
        return f"{words}; the one before it is untouched"
