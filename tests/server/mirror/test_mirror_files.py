"""Where mirrored bytes land, and how a checkpoint in pieces becomes one: without a server."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from windlass.core.errors import InvalidInput, NotFound, TooLarge
from windlass.job.manifest import digest_of_list, newest, verify
from windlass.server.checkpoints import files
from windlass.server.mirror import drafts, landing, names

BIG = 10**6


def put(root: Path, path: str, offset: int, data: bytes, **words: Any) -> int:
    return landing.append(root, names.checked(path), offset, data, most=BIG, **words)


LOG = "logs/worker-0-0.out.000001.log"


def test_a_file_grows_by_what_follows_and_by_nothing_else(tmp_path: Path) -> None:
    assert put(tmp_path, LOG, 0, b"abc") == 3
    assert put(tmp_path, LOG, 0, b"abc") == 3, "a repeat changes nothing"
    assert put(tmp_path, LOG, 2, b"cde") == 5, "of a piece that overlaps, the rest counts"
    assert put(tmp_path, LOG, 9, b"zzz") == 5, "a gap is not filled: the sender learns where"
    assert (tmp_path / LOG).read_bytes() == b"abcde"
    assert put(tmp_path, LOG, 4, b"X", cut=True) == 5
    assert (tmp_path / LOG).read_bytes() == b"abcdX"
    assert put(tmp_path, LOG, 2, b"", cut=True) == 2


def test_the_same_piece_from_many_at_once_is_there_once(tmp_path: Path) -> None:
    pieces = [bytes([65 + n]) * 1000 for n in range(8)]
    for number, piece in enumerate(pieces):
        together = threading.Barrier(6)

        def send(number: int = number, piece: bytes = piece, gate: Any = together) -> None:
            gate.wait()
            put(tmp_path, LOG, number * 1000, piece)

        threads = [threading.Thread(target=send) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (tmp_path / LOG).read_bytes() == b"".join(pieces)


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "launch.json", "token", "lock", "spawn.json", "fence", "engine",
        "logs", "logs/", "logs/../token", "logs/a.out.000001.log/x", "logs/x.out.1.log",
        "logs/.hidden.out.000001.log", "out", "out/", "out/../token", "out/a/../../token",
        "out//x", "out/./x", "out/a\\b", "out/%2e%2e/x", "out/\x00", "out/" + "a/" * 80 + "b",
        "run/spool-0.jsonl", "checkpoints/x", "../exit.json", "work/train.py",
    ],
)  # fmt: skip
def test_only_known_names_land(path: str) -> None:
    with pytest.raises(InvalidInput, match="path"):
        names.checked(path)


def test_no_link_is_followed_and_no_folder_comes_back(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    root = tmp_path / "root"
    with pytest.raises(NotFound):
        put(root, LOG, 0, b"x")
    root.mkdir()
    (root / "out").symlink_to(other)
    with pytest.raises(InvalidInput):
        put(root, "out/x", 0, b"x")
    (root / "out").unlink()
    (root / "out").mkdir()
    (root / "out" / "x").symlink_to(other / "x")
    with pytest.raises(InvalidInput):
        put(root, "out/x", 0, b"x")
    os.mkfifo(root / "out" / "pipe")
    (root / "out" / "folder").mkdir()
    for name in ("out/pipe", "out/folder", "out/x/y", "out/" + "n" * 300):
        with pytest.raises(InvalidInput):
            put(root, name, 0, b"x")
    assert not list(other.iterdir())
    with pytest.raises(TooLarge):
        put(root, "out/y", BIG, b"x")


def test_the_first_exit_record_stands(tmp_path: Path) -> None:
    for _ in range(2):
        landing.replace(tmp_path, "exit.json", b"first", once=True)
    landing.replace(tmp_path, "exit.json", b"second", once=True)
    assert (tmp_path / "exit.json").read_bytes() == b"first"
    landing.replace(tmp_path, "worker.json", b"1", once=False)
    landing.replace(tmp_path, "worker.json", b"2", once=False)
    assert (tmp_path / "worker.json").read_bytes() == b"2"
    assert sorted(os.listdir(tmp_path)) == ["exit.json", "worker.json"]


def manifest_of(content: dict[str, bytes], **words: Any) -> dict[str, Any]:
    listed = [
        {"path": path, "bytes": len(data), "digest": hashlib.sha256(data).hexdigest()}
        for path, data in sorted(content.items())
    ]
    return {
        "api": 1, "job_id": "job", "attempt": 2, "step": 5, "created_ms": 1, "files": listed,
        "digest": digest_of_list(listed), **words,
    }  # fmt: skip


CONTENT = {"model.bin": b"m" * 3000, "inner/part.bin": b"p" * 10, "inner/twin.bin": b"p" * 10,
           "empty": b""}  # fmt: skip


def send(folder: Path, wanted: drafts.Manifest, content: dict[str, bytes], attempt: int) -> None:
    """All of what is missing, in pieces of a thousand."""
    by_digest = {hashlib.sha256(data).hexdigest(): data for data in content.values()}
    for part, have in drafts.missing(folder, attempt, wanted) or ():
        data = by_digest[part.digest]
        while have < part.bytes:
            piece = data[have : have + 1000]
            have = drafts.append(folder, attempt, wanted.digest, part, have, piece)


def test_a_checkpoint_in_pieces_is_one_only_when_all_of_it_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    wanted = drafts.read(manifest_of(CONTENT))
    left = drafts.missing(folder, 2, wanted)
    assert left is not None and sorted(part.bytes for part, _ in left) == [10, 3000]
    assert newest(folder) == (None, [])
    part = next(part for part, _ in left if part.bytes == 3000)
    assert drafts.append(folder, 2, wanted.digest, part, 0, b"m" * 1000) == 1000
    assert dict(drafts.missing(folder, 2, wanted) or ())[part] == 1000
    send(folder, wanted, CONTENT, 2)
    assert drafts.missing(folder, 2, wanted) == []
    assert newest(folder).newest is None
    assert drafts.keep(folder, 2, wanted) == []
    assert drafts.missing(folder, 2, wanted) is None, "it is kept"
    assert drafts.keep(folder, 2, wanted) == []
    found = verify(folder / "step-000000000005-000002")
    assert found.digest == wanted.digest == wanted.note(folder).digest
    assert wanted.note(folder).path == str(found.path)
    assert os.listdir(folder) == ["step-000000000005-000002"]


def test_a_piece_that_was_damaged_on_its_way_comes_again(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    wanted = drafts.read(manifest_of(CONTENT))
    send(folder, wanted, {**CONTENT, "model.bin": b"m" * 3000}, 2)
    part = next(part for part in wanted.parts if part.bytes == 3000)
    place = next(folder.glob(".tmp-2-0-mirror-*"))
    (place / part.name).write_bytes(b"m" * 2999 + b"!")
    assert drafts.keep(folder, 2, wanted) == [part]
    assert drafts.missing(folder, 2, wanted) == [(part, 0)]
    send(folder, wanted, CONTENT, 2)
    assert drafts.keep(folder, 2, wanted) == []
    assert verify(folder / "step-000000000005-000002").step == 5


def test_a_file_that_did_not_change_does_not_come_again(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    first = drafts.read(manifest_of({"frozen": b"f" * 500, "head": b"1"}))
    send(folder, first, {"frozen": b"f" * 500, "head": b"1"}, 2)
    drafts.keep(folder, 2, first)
    content = {"inner/frozen": b"f" * 500, "head": b"2"}
    second = drafts.read(manifest_of(content, step=6))
    left = drafts.missing(folder, 2, second)
    assert left is not None and [part.bytes for part, _ in left] == [1]
    send(folder, second, content, 2)
    assert drafts.keep(folder, 2, second) == []
    files.remove(folder, str(folder / first.name), 2, 5)
    assert verify(folder / second.name).step == 6
    # One that was damaged on the disk meanwhile is found out, and comes from the worker.
    (folder / second.name / "inner" / "frozen").write_bytes(b"F" * 500)
    third = drafts.read(manifest_of(content, step=7))
    assert drafts.missing(folder, 2, third) == []
    assert [part.bytes for part in drafts.keep(folder, 2, third)] == [500]
    send(folder, third, content, 2)
    assert drafts.keep(folder, 2, third) == []
    assert verify(folder / third.name).step == 7


def test_a_kill_between_the_rename_and_the_answer_changes_nothing(tmp_path: Path) -> None:
    """What the second call finds: the checkpoint, and a draft that nobody removed."""
    folder = tmp_path / "checkpoints"
    wanted = drafts.read(manifest_of(CONTENT))
    send(folder, wanted, CONTENT, 2)
    assert drafts.keep(folder, 2, wanted) == []
    leftover = folder / f".tmp-2-0-mirror-{wanted.digest}"
    leftover.mkdir()
    assert drafts.missing(folder, 2, wanted) is None
    later = drafts.read(manifest_of({"x": b"x"}, attempt=3))
    drafts.missing(folder, 3, later)
    assert not leftover.exists(), "what an older attempt left goes with the next one's first"


def test_a_scripts_own_files_land_at_their_places_and_are_written_over(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for text, step in ((b"first", 5), (b"second one", 6)):
        content = {"runs/last.pt": text}
        wanted = drafts.read(manifest_of(content, path="runs/last.pt", step=step))
        send(folder, wanted, content, 2)
        assert drafts.keep(folder, 2, wanted) == []
        assert drafts.missing(folder, 2, wanted) is None
        assert (folder / "runs" / "last.pt").read_bytes() == text
        assert wanted.note(folder).source == "files"
        _, entries = files.manifest(folder, str(folder / "runs" / "last.pt"))
        assert entries[0]["digest"] == hashlib.sha256(text).hexdigest()
    assert sorted(os.listdir(folder)) == [".windlass", "runs"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"files": []}, "manifest.files"),
        ({"digest": "0" * 64}, "manifest.digest"),
        ({"step": -1}, "manifest.step"),
        ({"attempt": True}, "manifest.attempt"),
        ({"files": [{"path": "a", "bytes": 1, "digest": "x"}]}, "manifest.files.digest"),
        ({"files": [{"path": "../a", "bytes": 1, "digest": "0" * 64}]}, "manifest.files.path"),
        ({"files": [{"path": "a", "bytes": -1, "digest": "0" * 64}]}, "manifest.files.bytes"),
        ({"files": [{"path": "a"}]}, "manifest"),
        ({"files": 7}, "manifest"),
        ({"path": ".windlass/x"}, "manifest.path"),
        ({"path": "step-000000000001-000001"}, "manifest.path"),
        ({"path": 7}, "manifest.path"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        drafts.read({**manifest_of({"a": b"1"}), **change})


def test_a_manifest_of_our_own_name_or_of_another_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"manifest\.json"):
        drafts.read(manifest_of({"manifest.json": b"{}"}))
    with pytest.raises(InvalidInput, match=r"manifest\.path"):
        drafts.read(manifest_of({".windlass/x.json": b"{}"}, path="last.pt"))
    folder = tmp_path / "checkpoints"
    first = drafts.read(manifest_of({"a": b"1"}))
    send(folder, first, {"a": b"1"}, 2)
    drafts.keep(folder, 2, first)
    other = drafts.read(manifest_of({"a": b"2"}))
    send(folder, other, {"a": b"2"}, 2)
    with pytest.raises(InvalidInput, match="saved before"):
        drafts.keep(folder, 2, other)
    assert (
        json.loads((folder / first.name / "manifest.json").read_text())["digest"] == first.digest
    )
    with pytest.raises(NotFound, match="announced"):
        drafts.append(folder, 2, "0" * 64, drafts.Part("1" * 64, 5), 0, b"x")
