"""One message on a stream: a prefix, a header of JSON, then the bytes of tensors. Never a pickle.

    | WLT1 | header bytes u32 | payload bytes u64 | header | tensor | tensor | …
                                                    ^ "t": [["float32", [3, 4]], …]

The bytes of a tensor are those in its memory: sent from there, received to there. Between
processes of one machine they may be left where they are (`lending`): then the stream has none.

    | WLT1 | header bytes u32 | 0 | header |     "at": [[address, bytes], …], "cell": [address, n]
"""

from __future__ import annotations

import ctypes
import json
import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from windlass.core.errors import InvalidInput
from windlass.train.comm.lending import Lease, Lender, Piece

MAGIC = b"WLT1"
PREFIX = struct.Struct("<4sIQ")
LONGEST_HEADER = 1 << 24
LARGEST_PAYLOAD = 1 << 40
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
        "bool", "complex64", "complex128",
    )
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Spec(NamedTuple):
    """What a tensor looks like before it is here."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def empty(self) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype)


Payload = Tensor | Sequence[Tensor]
"""A tensor to be sent; or the pieces, in their order, of what arrives as one vector."""


class Frame:
    """A message to be sent. Holds its tensors: their memory is read when the socket takes it, or
    by the receiver when it is lent, so they are not to be written to before the answer is there
    or `take_back` was called."""

    __slots__ = ("_lease", "_pieces", "_text", "head_bytes", "kind", "payload_bytes")

    def __init__(self, header: dict[str, Any], tensors: Sequence[Payload], kind: str) -> None:
        self.kind = kind
        self._pieces: list[Tensor] = []
        self._lease: Lease | None = None
        specs = []
        for each in tensors:
            pieces = [plain(one) for one in ([each] if isinstance(each, Tensor) else each)]
            shape = (
                list(each.shape)
                if isinstance(each, Tensor)
                else [sum(one.numel() for one in pieces)]
            )
            specs.append([_name_of(pieces[0]), shape])
            self._pieces += [one for one in pieces if one.numel()]
        self.payload_bytes = sum(each.nbytes for each in self._pieces)
        self._text = _encode({**header, "t": specs} if specs else header).encode()
        if len(self._text) > LONGEST_HEADER:
            raise InvalidInput(
                f"header: at most {LONGEST_HEADER} bytes (found {len(self._text)})",
                hint="what is long belongs into tensors",
            )
        self.head_bytes = 0
        """Of what `views` or `lent` gave, without what is a tensor's."""

    def views(self) -> list[memoryview]:
        head = self._head(self._text, self.payload_bytes)
        return [head, *(memory_of(each) for each in self._pieces)]

    def lent(self, lender: Lender) -> list[memoryview]:
        """The same for a receiver that reads the payload where it is."""
        if self._lease is None:
            self._lease = lender.lease()
        if self._lease is None:
            return self.views()
        at = ",".join(f"[{each.data_ptr()},{each.nbytes}]" for each in self._pieces)
        cell = f"[{self._lease.address},{self._lease.number}]"
        # Behind what is there already: to write the whole header twice takes twice as long.
        return [self._head(self._text[:-1] + f',"at":[{at}],"cell":{cell}}}'.encode(), 0)]

    def take_back(self) -> None:
        """Whoever reads what was lent from now on knows that it is none."""
        if self._lease is not None:
            self._lease.end()

    def __del__(self) -> None:
        self.take_back()  # before its tensors go

    def _head(self, text: bytes, payload_bytes: int) -> memoryview:
        found = PREFIX.pack(MAGIC, len(text), payload_bytes) + text
        self.head_bytes = len(found)
        return memoryview(found)


def plain(tensor: Tensor) -> Tensor:
    """A contiguous tensor in this machine's memory: itself, where it is one."""
    if tensor.is_cpu and tensor.is_contiguous() and not tensor.requires_grad:
        return tensor
    return tensor.detach().to("cpu").contiguous()


def memory_of(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, which the caller keeps alive."""
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")


def pieces_of(tensors: Sequence[Tensor]) -> list[Piece]:
    """Where contiguous CPU tensors lie."""
    return [(each.data_ptr(), each.nbytes) for each in tensors if each.numel()]


def read_prefix(data: bytes | bytearray) -> tuple[int, int]:
    """Bytes of header and of payload. Raises ValueError on what is no message of ours."""
    magic, header_bytes, payload_bytes = PREFIX.unpack(data)
    if magic != MAGIC:
        raise ValueError("these are no frames of ours")
    if header_bytes > LONGEST_HEADER or payload_bytes > LARGEST_PAYLOAD:
        raise ValueError(f"a frame of {header_bytes} + {payload_bytes} bytes")
    return header_bytes, payload_bytes


class Head(NamedTuple):
    """The header of a message and what its payload consists of."""

    header: dict[str, Any]
    specs: list[Spec]
    payload_bytes: int
    at: list[Piece] | None = None
    """Where the payload lies, when it does not follow."""
    cell: Piece = (0, 0)


def read_header(data: bytes | bytearray, payload_bytes: int) -> Head:
    """`payload_bytes` follow. Raises ValueError when they and the header do not agree."""
    header = json.loads(data.decode())
    if not isinstance(header, dict):
        raise ValueError("a header that is no object")
    specs = []
    for named in header.pop("t", ()):
        name, shape = named
        if name not in DTYPES or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"a tensor of {name!r} {shape!r}")
        specs.append(Spec(DTYPES[name], tuple(shape)))
    size = sum(each.size for each in specs)
    at = header.pop("at", None)
    if at is None:
        if size != payload_bytes:
            raise ValueError(f"{payload_bytes} bytes for tensors of another size")
        return Head(header, specs, size)
    lent = [(int(address), int(count)) for address, count in at]
    address, number = header.pop("cell")
    if payload_bytes or any(n <= 0 for each in lent for n in each):
        raise ValueError("a payload that is lent, and one that is not")
    if sum(count for _, count in lent) != size:
        raise ValueError("what is lent is of another size")
    return Head(header, specs, size, lent, (int(address), int(number)))


def _name_of(tensor: Tensor) -> str:
    if tensor.dtype not in _NAMES:
        raise InvalidInput(
            f"dtype: {tensor.dtype} cannot be sent", hint=f"known: {', '.join(DTYPES)}"
        )
    return _NAMES[tensor.dtype]
