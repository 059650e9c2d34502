"""A worker that shares no file system with the server: it sends its files, the record last, and
does not end before the server has it, or its time is over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from worker_lab import Lab, until

from windlass.worker.mirror.files import Files, Piece

OUTPUTS = """
import os, pathlib
out = pathlib.Path(os.environ["WINDLASS_OUTPUT_DIR"])
(out / "deep").mkdir()
(out / "deep" / "big.bin").write_bytes(b"o" * 2_500_000)
(out / "link").symlink_to("/etc/passwd")
(out / "bad").write_text("refused")
print("l" * 2_500_000)
print("the last line", flush=True)
"""
LOG = "logs/worker-0-0.out.000000.log"


def test_all_files_are_there_before_the_record_and_the_record_before_the_end(lab: Lab) -> None:
    lab.plane.refused_paths.add("out/bad")
    worker = lab.worker(OUTPUTS, mirror=True, cache_dir=None, lease_seconds=300)
    record = worker.start().end(120)
    sent = lab.plane.mirrored
    assert bytes(sent[LOG]) == b"l" * 2_500_000 + b"\nthe last line\n" == worker.logs()
    index = LOG.replace(".log", ".idx")
    assert bytes(sent[index]) == (worker.directory / index).read_bytes()
    assert bytes(sent["out/deep/big.bin"]) == b"o" * 2_500_000
    assert not {path for path in sent if "link" in path or "bad" in path}
    assert json.loads(sent["exit.json"]) == record and record["outcome"] == "succeeded"
    assert json.loads(sent["worker.json"])["pid"] == worker.pid
    order = [name for method, name, _ in lab.plane.calls if method in ("PUT", "POST")]
    assert [name for name in order if name.startswith("mirror/")][-1] == "mirror/exit.json"
    assert order.index("ended") > order.index("mirror/exit.json")
    assert "out/bad" in bytes(sent["worker.log"]).decode()
    assert (worker.directory / "checkpoints").is_dir(), "they lie in a folder of its own"


def test_calls_and_answers_that_are_lost_change_nothing(lab: Lab) -> None:
    lab.plane.lossy = 4
    worker = lab.worker(OUTPUTS, mirror=True, cache_dir=None, lease_seconds=300)
    record = worker.start().end(120)
    sent = lab.plane.mirrored
    assert bytes(sent[LOG]) == b"l" * 2_500_000 + b"\nthe last line\n" == worker.logs()
    assert bytes(sent["out/deep/big.bin"]) == b"o" * 2_500_000
    assert json.loads(sent["exit.json"]) == record
    assert lab.plane.lossy_calls > 10


def test_the_end_waits_for_a_server_that_is_away(lab: Lab) -> None:
    code = "import time; print('runs', flush=True); time.sleep(600)"
    worker = lab.worker(code, mirror=True, lease_seconds=300)
    worker.start()
    with lab.plane.changed:
        assert lab.plane.changed.wait_for(lambda: LOG in lab.plane.mirrored, 60)
    lab.plane.away.set()
    worker.process.terminate()  # type: ignore[union-attr]
    until(lambda: (worker.directory / "exit.json").exists())
    assert worker.process is not None and worker.process.poll() is None
    assert "exit.json" not in lab.plane.mirrored
    lab.plane.away.clear()
    record = worker.end(120)
    assert json.loads(lab.plane.mirrored["exit.json"]) == record
    assert lab.plane.wait_for("ended")["record"]["outcome"] == "cancelled"


def test_the_end_waits_no_longer_than_the_lease(lab: Lab) -> None:
    worker = lab.worker("import time; time.sleep(600)", mirror=True, lease_seconds=2)
    worker.start()
    lab.plane.wait_for("started")
    lab.plane.away.set()
    record = worker.end(120)
    assert record["outcome"] == "lost" and "lease" in record["reason"]
    assert "exit.json" not in lab.plane.mirrored


def test_a_worker_that_is_fenced_sends_nothing_more_and_ends(lab: Lab) -> None:
    worker = lab.worker("import time; time.sleep(600)", mirror=True, lease_seconds=300)
    worker.start()
    lab.plane.wait_for("started")
    lab.plane.fenced = True
    record = worker.end(120)
    assert record["outcome"] == "lost" and "fenced" in record["reason"]
    assert "exit.json" not in lab.plane.mirrored


def test_what_it_is_told_may_lie_in_a_folder_that_cannot_be_written(
    lab: Lab, tmp_path: Path
) -> None:
    told = lab.worker("print('told')", mirror=True, cache_dir=None)
    own = tmp_path / "own" / "place"
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(lab.archive), "run", str(own), str(told.directory)],
        timeout=120,
    )
    assert done.returncode == 0
    assert json.loads((own / "exit.json").read_text())["outcome"] == "succeeded"
    assert (own / "token").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(told.directory)) == ["launch.json", "token"]
    assert bytes(lab.plane.mirrored[LOG]) == b"told\n"


@pytest.mark.parametrize("words", [[], ["run"], ["reap", "a", "b"], ["run", "a", "b", "c"]])
def test_other_words_are_refused(lab: Lab, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(lab.archive), *words], capture_output=True, timeout=60
    )
    assert done.returncode == 2 and b"usage" in done.stderr


def send(files: Files, server: dict[str, bytearray], ended: bool = False) -> list[Piece]:
    sent = []
    for piece in files.pieces(ended):
        sent.append(piece)
        held = server.setdefault(piece.path, bytearray())
        if piece.cut:
            del held[piece.offset :]
        if piece.offset <= len(held):
            held += piece.data[len(held) - piece.offset :]
        files.taken(piece, len(held))
    return sent


def test_what_the_server_lost_is_sent_again_and_what_was_cut_is_cut(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log, index = tmp_path / LOG, tmp_path / LOG.replace(".log", ".idx")
    server: dict[str, bytearray] = {}
    files = Files(str(tmp_path))
    log.write_bytes(b"0123456789")
    index.write_bytes(b"i" * 24)
    assert [piece.path for piece in send(files, server)] == [LOG.replace(".log", ".idx"), LOG]
    assert send(files, server) == []
    log.write_bytes(b"0123456789abc")
    del server[LOG][4:]  # it came up again with less than it had said
    assert [piece.offset for piece in send(files, server)] == [10, 4]
    assert server[LOG] == log.read_bytes()
    os.truncate(log, 6)
    assert [(piece.offset, piece.cut) for piece in send(files, server)] == [(6, True)]
    assert server[LOG] == b"012345"
    log.unlink()
    index.unlink()
    assert sorted(files.gone()) == sorted([LOG, LOG.replace(".log", ".idx")])
    assert files.gone() == []


def test_outputs_go_at_the_end_but_events_at_once(tmp_path: Path) -> None:
    (tmp_path / "out" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "model.bin").write_bytes(b"half")
    (tmp_path / "out" / "empty").touch()
    (tmp_path / "out" / "deep" / "events.out.tfevents.1.host").write_bytes(b"event")
    (tmp_path / "out" / "link").symlink_to("/etc/passwd")
    os.link(tmp_path / "out" / "empty", tmp_path / "other name")
    os.mkfifo(tmp_path / "out" / "pipe")
    server: dict[str, bytearray] = {}
    files = Files(str(tmp_path))
    assert [piece.path for piece in send(files, server)] == ["out/deep/events.out.tfevents.1.host"]
    (tmp_path / "out" / "model.bin").write_bytes(b"other")
    (tmp_path / "other name").unlink()
    sent = [piece.path for piece in send(files, server, ended=True)]
    assert sent == ["out/empty", "out/model.bin"]
    assert server["out/model.bin"] == b"other" and server["out/empty"] == b""
