"""Small programs that the kernel runs for a cgroup (version 2) and that say yes or no.

Written as the kernel's own instructions, since the worker has no compiler. A program is a list of
(instruction, where, constant): `where` is an offset in what the kernel shows it, for a load, or
one of the two ends, for a jump.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

    from windlass.worker.kernel import Kernel

    Line = Tuple[int, int, int]

LOAD, EQUALS, DIFFERS, AND = 0x61, 0x16, 0x56, 0x54
ALLOWED, REFUSED, NEXT = -1, -2, -3
"""Where a jump leads: to the ends, or behind the next `MARK`."""
MARK = (0, 0, 0)

_BPF = {"x86_64": 321, "aarch64": 280}
_LOAD_PROGRAM, _ATTACH = 5, 8
_ALLOW_MULTIPLE = 2
_SET, _EXIT = 0xB7, 0x95


def code_of(lines: List[Line], otherwise: int) -> bytes:
    """The instructions. What falls out of the list is allowed or refused, as `otherwise` says."""
    plain: List[Line] = []
    marks: List[int] = []
    for line in lines:
        if line == MARK:
            marks.append(len(plain))
        else:
            plain.append(line)
    ends = (ALLOWED, REFUSED) if otherwise == ALLOWED else (REFUSED, ALLOWED)
    at = {ends[0]: len(plain), ends[1]: len(plain) + 2}
    code = b""
    for number, (kind, where, constant) in enumerate(plain):
        registers = 0x12 if kind == LOAD else 0x02
        if where == NEXT:
            target = next(mark for mark in marks if mark > number)
        else:
            target = at.get(where, number + 1 + where)
        offset = 0 if kind == AND else target - number - 1
        code += struct.pack("<BBhI", kind, registers, offset, constant)
    for end in ends:
        result = struct.pack("<BBhI", _SET, 0, 0, 1 if end == ALLOWED else 0)
        code += result + struct.pack("<BBhI", _EXIT, 0, 0, 0)
    return code


def attach(system: Kernel, group: str, kind: int, where: int, code: bytes) -> bool:
    """Have the kernel run it for this group and all below. False where that cannot be."""
    number = _BPF.get(platform.machine())
    if number is None or sys.byteorder != "little":
        return False
    held, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    wish = struct.pack(
        "<IIQQIIQII16sII", kind, len(code) // 8, ctypes.addressof(held),
        ctypes.addressof(licence), 0, 0, 0, 0, 0, b"windlass", 0, where,
    )  # fmt: skip
    program = _call(system, number, _LOAD_PROGRAM, wish)
    if program < 0:
        return False
    try:
        opened = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        os.close(program)
        return False
    try:
        wish = struct.pack("<IIII", opened, program, where, _ALLOW_MULTIPLE)
        return _call(system, number, _ATTACH, wish) == 0
    finally:
        os.close(opened)
        os.close(program)


def _call(system: Kernel, number: int, command: int, wish: bytes) -> int:
    held = ctypes.create_string_buffer(wish, len(wish))
    return system.call(number, ctypes.c_int(command), ctypes.byref(held), ctypes.c_uint(len(wish)))
