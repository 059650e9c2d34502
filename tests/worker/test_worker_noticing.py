"""Checkpoints that scripts write by themselves, as one worker notices them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from windlass.worker.noticing import Noticing


def test_what_a_rank_wrote_before_the_first_look_is_its_own(tmp_path: Path) -> None:
    """A busy worker looked for the first time when a quick rank had written already, and took its
    file for one of an earlier attempt."""
    (tmp_path / "ckpt-100.pt").write_bytes(b"of an earlier attempt")
    notes: list[dict[str, Any]] = []
    launch: Any = SimpleNamespace(checkpoint_dir=str(tmp_path), job_id="job", attempt=2)
    rank: Any = SimpleNamespace(pid=1, exit=0, ended_ms=1, restarts=0)
    noticing = Noticing(launch, [rank], notes.append, None, 1)
    (tmp_path / "ckpt-200.pt").write_bytes(b"of the rank")
    noticing.start()
    noticing.stop()
    noticing.finish()
    assert [Path(note["path"]).name for note in notes] == ["ckpt-200.pt"]
