"""TensorBoard's event files: records with their checksums, and the scalars in them.

    record   length (8 bytes, little-endian), its masked CRC-32C, the event, its masked CRC-32C
    event    protobuf: 1 wall time, 2 step, 5 summary → 1 value
    value    1 tag, 2 simple value, 8 tensor, 9 metadata

Read by hand: there is no protobuf here, and only a handful of fields matter. A record that is not
whole yet is read again later; a damaged length ends the reading, since nothing behind it can be
found; a damaged event is passed over.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

    class Scalar(NamedTuple):
        tag: str
        step: int
        at_ms: int
        value: float
else:
    from collections import namedtuple

    Scalar = namedtuple("Scalar", "tag step at_ms value")

LARGEST_EVENT = 1 << 16
"""Scalars are small: what is larger (a picture, a graph) is stepped over unread."""
_MASK = 0xA282EAD8


class Damaged(Exception):
    """From here on this file cannot be read."""


class Events:
    """The scalars of one file, from its beginning to as far as it goes. Feed it bytes in order."""

    def __init__(self) -> None:
        self.offset = 0
        """Where the next record begins."""
        self.skip = 0
        """How many bytes from `offset` need not be read."""
        self.damaged = 0
        self._plugins: Dict[str, str] = {}

    def read(self, data: bytes, into: List[Scalar]) -> None:
        """Put the scalars of `data`, which begins at `offset`, into the list; what is behind the
        last whole record is to be given again. Raises Damaged."""
        at = 0
        while True:
            left = len(data) - at
            if left < 12:
                return
            length, check = struct.unpack_from("<QI", data, at)
            if masked_crc(data[at : at + 8]) != check:
                raise Damaged("the length of the record at byte %d" % self.offset)
            if length > LARGEST_EVENT:
                self.skip = 12 + length + 4
                return
            if left < 12 + length + 4:
                return
            event = data[at + 12 : at + 12 + length]
            (check,) = struct.unpack_from("<I", data, at + 12 + length)
            at += 12 + length + 4
            self.offset += 12 + length + 4
            if masked_crc(event) != check:
                self.damaged += 1
                continue
            try:
                into += self._scalars(event)
            except (ValueError, IndexError, struct.error, UnicodeDecodeError):
                self.damaged += 1

    def skipped(self) -> None:
        """The bytes that need not be read are there: go on behind them."""
        self.offset += self.skip
        self.skip = 0

    def _scalars(self, event: bytes) -> List[Scalar]:
        wall_time, step, found = 0.0, 0, []
        for number, value in _fields(event):
            if number == 1 and isinstance(value, bytes):
                (wall_time,) = struct.unpack("<d", value)
            elif number == 2 and isinstance(value, int):
                step = value - (1 << 64) if value >> 63 else value
            elif number == 5 and isinstance(value, bytes):
                for inner, summary in _fields(value):
                    if inner == 1 and isinstance(summary, bytes):
                        scalar = self._value(summary)
                        if scalar is not None:
                            found.append(scalar)
        at_ms = int(wall_time * 1000) if 0 < wall_time < 1e11 else 0
        return [Scalar(tag, step, at_ms, number) for tag, number in found]

    def _value(self, text: bytes) -> Optional[Tuple[str, float]]:
        tag, plugin, number, tensor = "", None, None, None
        for field, value in _fields(text):
            if not isinstance(value, bytes):
                continue
            if field == 1:
                tag = value.decode("utf-8")
            elif field == 2 and len(value) == 4:
                (number,) = struct.unpack("<f", value)
            elif field == 8:
                tensor = value
            elif field == 9:
                plugin = _plugin(value)
        if plugin is not None:
            # Only the first value of a tag says what it is.
            self._plugins[tag] = plugin
        if number is None and tensor is not None:
            if self._plugins.get(tag, "scalars") == "scalars":
                number = _scalar_of(tensor)
        return (tag, float(number)) if tag and number is not None else None


def _plugin(metadata: bytes) -> Optional[str]:
    for field, value in _fields(metadata):
        if field == 1 and isinstance(value, bytes):
            for inner, name in _fields(value):
                if inner == 1 and isinstance(name, bytes):
                    return name.decode("utf-8")
    return None


_CONTENT = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
"""By TensorFlow's number of a type: how one of it is written in a tensor's content."""


def _scalar_of(tensor: bytes) -> Optional[float]:
    """The one number of a tensor without dimensions; None for anything else."""
    kind, content, number = 0, b"", None
    for field, value in _fields(tensor):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field == 2 and isinstance(value, bytes):
            if any(True for inner, _ in _fields(value) if inner == 2):
                return None
        elif field == 4 and isinstance(value, bytes):
            content = value
        elif field in (5, 6) and isinstance(value, bytes):
            form = "<f" if field == 5 else "<d"
            if len(value) == struct.calcsize(form):
                (number,) = struct.unpack(form, value)
        elif field in (7, 10):
            whole = value if isinstance(value, int) else _varint(value, 0)[0]
            number = float(whole - (1 << 64) if whole >> 63 else whole)
    form = _CONTENT.get(kind, "")
    if number is None and form and len(content) == struct.calcsize(form):
        (number,) = struct.unpack(form, content)
    return None if number is None else float(number)


def _fields(text: bytes) -> Iterator[Tuple[int, Union[int, bytes]]]:
    """Number and value of each field; a varint as an integer, all else as its bytes."""
    at = 0
    while at < len(text):
        key, at = _varint(text, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(text, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(text, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("a field of kind %d" % kind)
        if at + size > len(text):
            raise ValueError("cut short")
        yield key >> 3, text[at : at + size]
        at += size


def _varint(text: bytes, at: int) -> Tuple[int, int]:
    found = shift = 0
    while True:
        byte = text[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("a number too long")


def masked_crc(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


_table: List[int] = []


def crc32c(data: bytes) -> int:
    """The checksum of Castagnoli's polynomial."""
    if not _table:
        for each in range(256):
            for _ in range(8):
                each = each >> 1 ^ (0x82F63B78 if each & 1 else 0)
            _table.append(each)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
