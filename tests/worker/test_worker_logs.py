"""Output on disk: raw, bounded memory, head and tail kept, drops counted and marked (R-F25)."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from worker_lab import Lab, Worker, until

from windlass.worker import logs
from windlass.worker.logs import Ring, Stream

MARKER = re.compile(rb"\[windlass: dropped (\d+) bytes of output here: over 4\.0 MB/s\]\n")


def peak_kilobytes(pid: int) -> int:
    return int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])


def test_a_flood_is_bounded_in_memory_and_keeps_its_head_and_its_tail(lab: Lab) -> None:
    code = (
        "import os, sys, time\n"
        "began = time.monotonic()\n"
        "os.write(1, b'the very first line\\n')\n"
        "block = b'y\\n' * 32768\n"
        "for _ in range(1600): os.write(1, block)\n"
        "open('took', 'w').write(str(time.monotonic() - began))\n"
        "os.write(1, b'the very last line\\n')\n"
        "while not os.path.exists('go'): pass\n"
    )
    worker = lab.worker(code).start()
    until(lambda: b"the very last line" in tail(worker))
    assert peak_kilobytes(worker.pid) < 30_000
    lab.plane.wait_for(
        "beat", where=lambda body: [n["kind"] for n in body["notes"]] == ["dropped"]
    )
    (worker.directory / "work" / "go").touch()
    record = worker.end()
    text = worker.logs()
    assert text.startswith(b"the very first line\n")
    assert text.endswith(b"the very last line\n")
    dropped = [int(found) for found in MARKER.findall(text)]
    assert dropped
    total = 19 + 1 + 1600 * 65536 + 19
    kept = len(text) - sum(len(found.group(0)) for found in MARKER.finditer(text))
    assert sum(dropped) == record["ranks"][0]["dropped_bytes"]
    assert kept + sum(dropped) == total
    took = float((worker.directory / "work" / "took").read_text())
    assert len(text) < 22 * 2**20 + took * 4_000_000, "the rate was not held"


def tail(worker: Worker) -> bytes:
    paths = sorted((worker.directory / "logs").glob("worker-0-0.out.*.log"))
    return paths[-1].read_bytes()[-100:] if paths else b""


def test_a_line_of_ten_megabytes_and_binary_come_through_unchanged(lab: Lab) -> None:
    code = (
        "import os\n"
        "os.write(2, bytes(range(256)) * 64)\n"
        "view = memoryview(b'x' * 10_000_000)\n"
        "while view: view = view[os.write(1, view):]\n"
    )
    worker = lab.worker(code, log_rate=0).start()
    assert worker.end()["outcome"] == "succeeded"
    assert worker.logs() == b"x" * 10_000_000
    assert worker.logs("worker-0-0.err") == bytes(range(256)) * 64
    segments = sorted((worker.directory / "logs").glob("worker-0-0.out.*.log"))
    assert len(segments) == 2
    assert 8 * 2**20 <= segments[0].stat().st_size < 9 * 2**20


def test_a_pattern_for_the_retry_rules_is_seen(lab: Lab) -> None:
    worker = lab.worker(
        "import sys; sys.stderr.write('CUDA error: bad luck'); sys.exit(1)",
        retry_log_patterns=["no such", "CUDA err[o]r", "luck$"],
    ).start()
    assert worker.end()["ranks"][0]["matched"] == ["CUDA err[o]r", "luck$"]


def test_a_pattern_for_which_re_takes_for_ever_holds_up_no_output(lab: Lab) -> None:
    worker = lab.worker(
        "import sys; print('a' * 5000 + '!'); print('well'); sys.exit(1)",
        retry_log_patterns=["(a+)+$", "(a|a)+b", "^well$"],
    ).start()
    assert worker.end()["ranks"][0]["matched"] == ["^well$"]
    assert worker.logs() == b"a" * 5000 + b"!\nwell\n"


def read_stream(folder: Path, name: str) -> tuple[bytes, list[tuple[int, int, int]]]:
    text, records = b"", []
    for path in sorted(folder.glob(f"{name}.*.log")):
        text += path.read_bytes()
        index = path.with_suffix(".idx").read_bytes()
        records += list(struct.iter_unpack("<QQQ", index))
    return text, records


def test_the_index_gives_the_place_of_a_byte_behind_a_drop(tmp_path: Path) -> None:
    stream = Stream(str(tmp_path), "s", rate=1000)
    stream.write(memoryview(b"h" * logs.HEAD_BYTES))
    stream.write(memoryview(b"m" * (3 * logs.TAIL_BYTES)))
    stream.write(memoryview(b"\nlast\n"))
    stream.close()
    text, records = read_stream(tmp_path, "s")
    assert text.startswith(b"h" * 100) and text.endswith(b"m\nlast\n")
    when, offset, place = records[-1]
    total = logs.HEAD_BYTES + 3 * logs.TAIL_BYTES + 6
    assert (stream.received, stream.offset) == (total, total)
    assert total - offset == len(text) - place, "the bytes behind the marker"
    assert stream.dropped == 2 * logs.TAIL_BYTES + 6
    assert text[place - 1 : place] == b"\n"


def test_a_quiet_moment_flushes_what_was_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "CALM_SECONDS", -1.0)
    stream = Stream(str(tmp_path), "s", rate=10)
    stream.write(memoryview(b"x" * (logs.HEAD_BYTES + 50)))
    stream.calm()
    text, _ = read_stream(tmp_path, "s")
    assert len(text) == logs.HEAD_BYTES + 50, "nothing fell out, so nothing is marked"


def test_over_the_cap_the_middle_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SEGMENT_BYTES", 1000)
    stream = Stream(str(tmp_path), "s", rate=0, keep_bytes=3000)
    for number in range(10):
        stream.write(memoryview(b"%d" % number * 1000))
    stream.close()
    kept = [int(path.name.split(".")[1]) for path in sorted(tmp_path.glob("s.*.log"))]
    assert kept[0] == 0 and kept[-1] == 9 and len(kept) <= 4


def test_a_full_disk_loses_output_but_not_the_rank(tmp_path: Path) -> None:
    stream = Stream(str(tmp_path / "missing"), "s", rate=0)
    stream.write(memoryview(b"lost or held\n"))
    stream.write(memoryview(b"more\n"))
    (tmp_path / "missing").mkdir()
    stream.close()
    text, _ = read_stream(tmp_path / "missing", "s")
    assert text == b"lost or held\nmore\n"


def test_the_ring_keeps_the_last_bytes() -> None:
    ring = Ring(10)
    fallen = sum(ring.put(memoryview(piece)) for piece in (b"abcd", b"efgh", b"ijkl"))
    assert (fallen, ring.take()) == (2, b"cdefghijkl")
    assert ring.put(memoryview(b"0123456789ABC")) == 3
    assert ring.take() == b"3456789ABC"
