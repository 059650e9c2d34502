"""Event files, which TensorBoard reads, written without TensorFlow: scalars only.

file    = record, record, …
record  = length (8 bytes), its masked CRC-32C, the event, its masked CRC-32C; little-endian
event   = wall_time (field 1, double), step (2, int64), then file_version (3, the first
          event) or summary (5) with a value (1) of tag (1) and simple_value (2, float)
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import TracebackType

VERSION = b"brain.Event:2"


class EventFile:
    """Appends scalars to one event file; what is written is whole records, at once there for
    readers."""

    def __init__(self, folder: Path, at_ms: int) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # TensorBoard finds files by `tfevents` in their names.
        self.path = folder / f"events.out.tfevents.{at_ms // 1000}.windlass"
        self._file = open(self.path, "ab")
        if not self._file.tell():
            self._write(_event(at_ms, 0) + _bytes(3, VERSION))
            self.flush()

    def scalar(self, tag: str, step: int, at_ms: int, value: float) -> None:
        told = _bytes(1, tag.encode()) + b"\x15" + struct.pack("<f", _single(value))
        self._write(_event(at_ms, step) + _bytes(5, _bytes(1, told)))

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> EventFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(length + _check(length) + event + _check(event))


def _event(at_ms: int, step: int) -> bytes:
    return b"\x09" + struct.pack("<d", at_ms / 1000) + b"\x10" + _varint(step & (2**64 - 1))


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _single(value: float) -> float:
    """What 32 bits can hold: beyond them it is infinite."""
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return value


def _check(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """The Castagnoli CRC, which zlib does not have."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    made = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        made.append(number)
    return tuple(made)


_TABLE = _table()
