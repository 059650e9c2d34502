"""Reading what workers wrote: segments, times, tails."""

from __future__ import annotations

import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from windlass.patterns.automaton import Automaton
from windlass.server.logs.reader import Tail, lines, starts, streams

RECORD = struct.Struct("<QQQ")


def write(
    folder: Path, name: str, *pieces: tuple[int, bytes], number: int = 0, start: int = 0
) -> int:
    """A segment of pieces written at these times; returns the stream offset of its end."""
    folder.mkdir(parents=True, exist_ok=True)
    place, records = 0, b""
    content = b""
    for at, piece in pieces:
        records += RECORD.pack(at, start + place, place)
        place += len(piece)
        content += piece
    (folder / f"{name}.{number:06}.log").write_bytes(content)
    (folder / f"{name}.{number:06}.idx").write_bytes(records)
    return start + place


def texts(folder: Path, **options: object) -> list[str]:
    return [line.text for line in lines(streams([folder]), **options)]  # type: ignore[arg-type]


def test_lines_of_several_ranks_are_merged_by_time(tmp_path: Path) -> None:
    write(tmp_path, "worker-0-0.out", (10, b"a\n"), (30, b"c\n"))
    write(tmp_path, "worker-1-0.err", (20, b"b\n"), (40, b"d"))
    assert texts(tmp_path) == ["a", "b", "c", "d"]


def test_ranks_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for rank in (10, 9, 1):
        write(tmp_path, f"worker-{rank}-0.out", (1, b"x\n"))
    assert [stream.rank for stream in streams([tmp_path])] == [
        "worker-1-0", "worker-9-0", "worker-10-0",
    ]  # fmt: skip


def test_a_line_over_two_segments_is_one_line_with_the_time_of_its_start(tmp_path: Path) -> None:
    end = write(tmp_path, "w-0-0.out", (10, b"one\ntw"))
    write(tmp_path, "w-0-0.out", (99, b"o\nthree\n"), number=1, start=end)
    found = list(lines(streams([tmp_path])))
    assert [(line.at_ms, line.offset, line.text) for line in found] == [
        (10, 0, "one"), (10, 4, "two"), (99, 8, "three"),
    ]  # fmt: skip


def test_since_grep_and_tail_narrow(tmp_path: Path) -> None:
    write(tmp_path, "w-0-0.out", *((n, b"line %d\n" % n) for n in range(100)))
    assert texts(tmp_path, since_ms=98) == ["line 98", "line 99"]
    assert texts(tmp_path, pattern=Automaton("7$"), last=2) == ["line 87", "line 97"]
    assert texts(tmp_path, last=3) == ["line 97", "line 98", "line 99"]
    assert texts(tmp_path, last=0) == []


def test_a_tail_reads_on_and_skips_nothing(tmp_path: Path) -> None:
    tail = Tail([tmp_path])
    assert tail.read() == []
    end = write(tmp_path, "w-0-0.out", (1, b"one"))
    assert [chunk.text for chunk in tail.read()] == ["one"]
    write(tmp_path, "w-0-0.out", (1, b"one"), (2, b"two"))
    write(tmp_path, "w-0-0.out", (3, b"three"), number=1, start=end + 3)
    assert [(chunk.offset, chunk.end, chunk.text) for chunk in tail.read()] == [
        (3, 6, "two"), (6, 11, "three"),
    ]  # fmt: skip
    assert tail.read() == []


def test_dropped_bytes_leave_a_gap_in_the_offsets_only(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "w-0-0.out.000000.log").write_bytes(b"headTAIL")
    records = RECORD.pack(1, 0, 0) + RECORD.pack(2, 1004, 4)
    (folder / "w-0-0.out.000000.idx").write_bytes(records)
    tail = Tail([folder])
    assert "".join(chunk.text for chunk in tail.read()) == "headTAIL"
    assert tail.positions == {"w-0-0.out": 1008}
    assert tail.read() == []


def test_a_character_cut_in_two_is_put_together(tmp_path: Path) -> None:
    tail = Tail([tmp_path])
    write(tmp_path, "w-0-0.out", (1, "ä".encode()[:1]))
    assert tail.read() == []
    write(tmp_path, "w-0-0.out", (1, "ä!".encode()))
    assert [chunk.text for chunk in tail.read()] == ["ä!"]


@given(
    st.lists(st.binary(max_size=12), max_size=8),
    st.integers(0, 5),
)
def test_starting_near_the_end_shows_the_last_lines(
    tmp_path_factory: object, pieces: list[bytes], last: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")  # type: ignore[attr-defined]
    write(folder, "w-0-0.out", *((n, piece) for n, piece in enumerate(pieces) if piece))
    whole = b"".join(pieces)
    positions = starts(streams([folder]), last=last)
    place = positions.get("w-0-0.out", 0)
    shown = whole[place:]
    assert shown.rstrip(b"\n").count(b"\n") <= max(0, last - 1) or place == 0
    complete = whole.split(b"\n")[:-1]
    if last and complete and place:
        assert shown.startswith(complete[-last] if last <= len(complete) else b"")


def test_since_begins_at_the_first_byte_written_then(tmp_path: Path) -> None:
    write(tmp_path, "w-0-0.out", (10, b"old\n"), (20, b"new\n"))
    tail = Tail([tmp_path], starts(streams([tmp_path]), since_ms=15))
    assert [chunk.text for chunk in tail.read()] == ["new\n"]
