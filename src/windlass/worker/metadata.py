"""The cloud's metadata address hands out the machine's own credentials: refused to a job.

A job that shares the machine's network could ask it. So its cgroup gets two programs that the
kernel runs at each connect and that refuse a few addresses, but for port 53: some clouds resolve
names at the same place. Where the kernel or the machine has no such thing, the report says so; a
job without network has no way there anyhow.
"""

from __future__ import annotations

from windlass.worker.programs import ALLOWED, DIFFERS, EQUALS, LOAD, REFUSED, attach, code_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from windlass.worker.kernel import Kernel
    from windlass.worker.programs import Line

_ADDRESS_PROGRAM = 18
_CONNECT4, _CONNECT6 = 10, 11
_VERSION4, _VERSION6, _PORT = 4, 8, 24  # where the kernel shows them
_DNS = 0x3500  # port 53, as it stands in memory

# As they stand in memory: 169.254.169.254, 169.254.170.2, 169.254.170.23, 100.100.100.200
_ADDRESSES = (0xFEA9FEA9, 0x02AAFEA9, 0x17AAFEA9, 0xC8646464)
# The first words of fd00:ec2::254 and fd20:ce::254
_PREFIXES = (0xC20E00FD, 0xCE0020FD)


def refuse(group: str, system: Kernel) -> bool:
    """Attach both programs to a group of version 2. False when that cannot be done here."""
    return all(
        attach(system, group, _ADDRESS_PROGRAM, where, code_of(lines, ALLOWED))
        for where, lines in ((_CONNECT4, _version4()), (_CONNECT6, _version6()))
    )


def _version4() -> List[Line]:
    lines: List[Line] = [(LOAD, _PORT, 0), (EQUALS, ALLOWED, _DNS), (LOAD, _VERSION4, 0)]
    return lines + [(EQUALS, REFUSED, address) for address in _ADDRESSES]


def _version6() -> List[Line]:
    """The same inside ::ffff:0:0/96, and the addresses of version 6."""
    lines: List[Line] = [(LOAD, _PORT, 0), (EQUALS, ALLOWED, _DNS), (LOAD, _VERSION6, 0)]
    lines += [(EQUALS, REFUSED, prefix) for prefix in _PREFIXES]
    for word, expected in enumerate((0, 0, 0xFFFF0000)):
        lines += [(LOAD, _VERSION6 + 4 * word, 0), (DIFFERS, ALLOWED, expected)]
    lines.append((LOAD, _VERSION6 + 12, 0))
    return lines + [(EQUALS, REFUSED, address) for address in _ADDRESSES]
