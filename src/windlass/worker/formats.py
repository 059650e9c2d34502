"""Whether a file of a known format has its end: one that was cut short has none."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ZIPPED = (".pt", ".pth", ".ckpt", ".npz", ".keras", ".zip", ".bin")
_TAIL = 66_000  # a zip's directory ends within so many bytes of its end


def whole(path: str, file: Any, size: int) -> bool:
    """False for what is surely cut short; True for what is whole, or of no known format."""
    file.seek(0)
    head = file.read(8)
    if path.endswith(_ZIPPED) and head[:4] == b"PK\x03\x04":
        file.seek(max(0, size - _TAIL))
        tail = file.read()
        at = tail.rfind(b"PK\x05\x06")
        comment = int.from_bytes(tail[at + 20 : at + 22], "little")
        return bool(at >= 0 and len(tail) == at + 22 + comment)
    if path.endswith(".safetensors"):
        return _whole_safetensors(file, head, size)
    return size > 0


def _whole_safetensors(file: Any, head: bytes, size: int) -> bool:
    """Its header says where the last tensor ends."""
    import json

    length = int.from_bytes(head, "little")
    if len(head) < 8 or not 0 < length <= size - 8 or length > 100 << 20:
        return False
    try:
        header = json.loads(file.read(length).decode("utf-8"))
        ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return False
    return size == 8 + length + max(ends, default=0)
