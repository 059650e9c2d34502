"""The output of ranks, as their workers wrote it: raw segments with a sparse index of times.

    worker-0-1.out.000000.log   raw bytes           worker-0-1.out.000000.idx   <QQQ> records:
    worker-0-1.out.000001.log                       UTC ms, offset in the stream, in the segment

Nothing is parsed on the way in; lines are found when somebody reads. A reader that follows
keeps a `Tail` per attempt: it remembers where it was in each stream.
"""

from __future__ import annotations

import bisect
import codecs
import heapq
import re
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from windlass.patterns.automaton import Automaton

_SEGMENT = re.compile(r"^(?P<rank>.+)\.(?P<stream>out|err)\.(?P<number>[0-9]{6,})\.log$")
_RECORD = struct.Struct("<QQQ")
_CHUNK = 64 * 1024
_LONGEST_LINE = 64 * 1024
"""A longer line is shown in pieces."""


@dataclass(frozen=True)
class Chunk:
    """Some output of one rank: where it begins in the stream, and when it was written."""

    rank: str
    stream: str
    offset: int
    end: int
    at_ms: int
    text: str


@dataclass(frozen=True)
class Line:
    at_ms: int
    rank: str
    stream: str
    offset: int
    text: str


@dataclass
class Stream:
    """The segments of one rank's stdout or stderr, in order."""

    rank: str
    stream: str
    segments: list[Path] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.rank}.{self.stream}"


def streams(folders: Iterable[Path]) -> list[Stream]:
    """What there is in the log folders of an attempt's nodes."""
    found: dict[str, Stream] = {}
    for folder in folders:
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError:
            continue
        for name in names:
            match = _SEGMENT.match(name)
            if match:
                stream = Stream(match["rank"], match["stream"])
                found.setdefault(stream.name, stream).segments.append(folder / name)
    for stream in found.values():
        stream.segments.sort(key=lambda path: int(path.name.split(".")[-2]))
    return [found[name] for name in sorted(found, key=_natural)]


def lines(
    wanted: Sequence[Stream],
    *,
    since_ms: int = 0,
    pattern: Automaton | None = None,
    last: int | None = None,
) -> Iterator[Line]:
    """The lines of several streams in order of time; `last` keeps only the newest."""
    merged: Iterator[Line] = heapq.merge(
        *(_lines_of(stream, since_ms, last if pattern is None else None) for stream in wanted),
        key=lambda line: line.at_ms,
    )
    if pattern is not None:
        merged = (line for line in merged if pattern.search(line.text))
    if last is not None:
        merged = iter(deque(merged, maxlen=last))
    return merged


def starts(
    wanted: Sequence[Stream], *, since_ms: int | None = None, last: int | None = None
) -> dict[str, int]:
    """By stream, the offset from which a follower sees what was written since, or the last lines
    of each; streams that are not there yet are followed from their start."""
    found: dict[str, int] = {}
    for stream in wanted:
        place, segments = (
            _near_end(stream.segments, last) if last is not None else (0, stream.segments)
        )
        for segment in segments[:1]:
            index = _Index.read(segment)
            if place:
                with segment.open("rb") as file:
                    file.seek(place)
                    lines = file.read().split(b"\n")
                beyond = len(lines) - 1 - (last or 0)
                place += sum(len(line) + 1 for line in lines[: max(0, beyond)])
            found[stream.name] = index.offset(place)
        if since_ms is not None:
            for segment in segments:
                index = _Index.read(segment)
                if index.times[-1] >= since_ms or segment is segments[-1]:
                    at = bisect.bisect_left(index.times, since_ms)
                    place = index.places[at] if at < len(index.places) else segment.stat().st_size
                    found[stream.name] = max(found.get(stream.name, 0), index.offset(place))
                    break
    return found


class Tail:
    """Reads on from where it was. One per attempt and reader."""

    def __init__(
        self, folders: Sequence[Path], positions: Mapping[str, int] | None = None
    ) -> None:
        self.folders = list(folders)
        self.positions: dict[str, int] = dict(positions or {})  # stream name → stream offset
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def read(self, limit: int = 64) -> list[Chunk]:
        """What was written since, at most `limit` chunks; [] when there is nothing new."""
        chunks: list[Chunk] = []
        for stream in streams(self.folders):
            chunks += self._read_stream(stream, limit - len(chunks))
            if len(chunks) >= limit:
                break
        return chunks

    def _read_stream(self, stream: Stream, limit: int) -> list[Chunk]:
        decoder = self._decoders.setdefault(
            stream.name, codecs.getincrementaldecoder("utf-8")(errors="replace")
        )
        chunks: list[Chunk] = []
        for segment in stream.segments:
            index = _Index.read(segment)
            at = self.positions.get(stream.name, 0)
            try:
                size = segment.stat().st_size
            except OSError:
                continue
            if size == 0 or at >= index.start + size + index.dropped(size):
                continue
            place = index.place(max(at, index.start))
            with segment.open("rb") as file:
                file.seek(place)
                while len(chunks) < limit:
                    block = file.read(_CHUNK)
                    if not block:
                        break
                    offset, at_ms = index.offset(place), index.time(place)
                    place += len(block)
                    self.positions[stream.name] = index.offset(place)
                    text = decoder.decode(block)
                    if text:
                        end = index.offset(place)
                        chunks.append(Chunk(stream.rank, stream.stream, offset, end, at_ms, text))
            if len(chunks) >= limit:
                break
        return chunks


@dataclass(frozen=True)
class _Index:
    """The index of one segment: parallel columns of times, stream offsets, segment offsets."""

    times: list[int]
    offsets: list[int]
    places: list[int]

    @classmethod
    def read(cls, segment: Path) -> _Index:
        try:
            raw = segment.with_suffix(".idx").read_bytes()
        except OSError:
            raw = b""
        records = list(_RECORD.iter_unpack(raw[: len(raw) // _RECORD.size * _RECORD.size]))
        if not records:
            records = [(0, 0, 0)]
        times, offsets, places = (list(column) for column in zip(*records, strict=True))
        return cls(times, offsets, places)

    @property
    def start(self) -> int:
        return self.offsets[0]

    def dropped(self, size: int) -> int:
        """Bytes of the stream that this segment skips (dropped over the rate limit)."""
        return self.offset(size) - size - self.start

    def time(self, place: int) -> int:
        return self.times[self._at(self.places, place)]

    def offset(self, place: int) -> int:
        """The stream's offset of a place in the segment."""
        at = self._at(self.places, place)
        return self.offsets[at] + (place - self.places[at])

    def place(self, offset: int) -> int:
        """The place in the segment of a stream's offset."""
        at = self._at(self.offsets, offset)
        place = self.places[at] + (offset - self.offsets[at])
        return min(place, self.places[at + 1]) if at + 1 < len(self.places) else place

    def first_since(self, since_ms: int) -> int | None:
        """Where reading must begin so as to miss nothing written since; None: all is older."""
        at = bisect.bisect_left(self.times, since_ms)
        return self.places[max(0, at - 1)]

    @staticmethod
    def _at(column: list[int], value: int) -> int:
        return max(0, bisect.bisect_right(column, value) - 1)


def _lines_of(stream: Stream, since_ms: int, last: int | None) -> Iterator[Line]:
    segments = stream.segments
    start = 0
    if last is not None:
        start, segments = _near_end(segments, last)
    rest, rest_offset, rest_ms = b"", 0, 0
    for number, segment in enumerate(segments):
        index = _Index.read(segment)
        place = start if number == 0 else 0
        if since_ms and not rest:
            place = max(place, index.first_since(since_ms) or 0)
        try:
            file = segment.open("rb")
        except OSError:
            continue
        with file:
            file.seek(place)
            if place and number == 0 and last is not None:
                skipped = file.readline()  # the middle of a line: not ours to show
                place += len(skipped)
            while block := file.read(_CHUNK):
                if not rest:
                    rest_offset, rest_ms = index.offset(place), index.time(place)
                pieces = (rest + block).split(b"\n")
                base = place - len(rest)
                rest = pieces.pop()
                for piece in pieces:
                    at = max(base, 0)
                    at_ms = rest_ms if base < place else index.time(at)
                    if at_ms >= since_ms:
                        offset = rest_offset if base < place else index.offset(at)
                        yield Line(at_ms, stream.rank, stream.stream, offset, _text(piece))
                    base += len(piece) + 1
                place += len(block)
                if rest and base >= place - len(block):
                    rest_offset, rest_ms = index.offset(base), index.time(base)
                if len(rest) > _LONGEST_LINE:
                    yield Line(rest_ms, stream.rank, stream.stream, rest_offset, _text(rest))
                    rest = b""
    if rest and rest_ms >= since_ms:
        yield Line(rest_ms, stream.rank, stream.stream, rest_offset, _text(rest))


def _near_end(segments: list[Path], last: int) -> tuple[int, list[Path]]:
    """From where to read so as to have the last lines for sure, without reading all."""
    wanted = last
    for number in range(len(segments) - 1, -1, -1):
        try:
            with segments[number].open("rb") as file:
                size = file.seek(0, 2)
                place = size
                while place > 0:
                    step = min(_CHUNK, place)
                    place -= step
                    file.seek(place)
                    wanted -= file.read(step).count(b"\n")
                    if wanted < 0:
                        return place, segments[number:]
        except OSError:
            continue
    return 0, segments


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").rstrip("\r")


def _natural(name: str) -> list[tuple[int, int | str]]:
    return [
        (0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"([0-9]+)", name)
    ]
