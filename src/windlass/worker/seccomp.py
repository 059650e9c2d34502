"""Calls that no training script needs and that many kernel holes began with: refused to the job.

A deny list, so that what frameworks do keeps working: mounting, modules, keys, clocks, tracing of
the kernel, new namespaces. `clone3` and io_uring answer "no such call", after which everybody
falls back to the older ones. Written as the kernel's own filter code; pure.

    load architecture; another one ──► ENOSYS
    load number; each denied one ──► EPERM / ENOSYS
    clone, unshare: any namespace flag ──► EPERM
    socket: kernel crypto and the hypervisor's family ──► EPERM
    ioctl: typing into a terminal ──► EPERM
    everything else ──► allowed
"""

from __future__ import annotations

import platform
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_LOAD, _EQUALS, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_EPERM, _ENOSYS = 1, 38
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_NAMESPACES = 0x7E020000  # mounts, cgroups, host name, ipc, users, pids, network
_FAMILIES = (38, 40)  # AF_ALG, AF_VSOCK
_TYPING = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

# Calls since 424 have one number everywhere: open_tree … fspick, mount_setattr, quotactl_fd.
_NEW_REFUSED = (428, 429, 430, 431, 432, 433, 442, 443)
_NEW_UNKNOWN = (425, 426, 427, 435)  # io_uring's three, clone3

if TYPE_CHECKING:
    Table = Tuple[int, Tuple[int, ...], Dict[str, int]]

_TABLES: Dict[str, Table] = {
    "x86_64": (
        0xC000003E,
        # acct settimeofday mount umount2 swapon swapoff reboot sethostname setdomainname iopl
        # ioperm create_module init_module delete_module query_module quotactl nfsservctl syslog
        # vhangup pivot_root lookup_dcookie clock_settime kexec_load add_key request_key keyctl
        # perf_event_open fanotify_init open_by_handle_at setns finit_module kexec_file_load bpf
        # userfaultfd uselib
        (163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176, 178, 179, 180)
        + (103, 153, 155, 212, 227, 246, 248, 249, 250, 298, 300, 304, 308, 313, 320, 321, 323)
        + (134,),
        {"clone": 56, "unshare": 272, "socket": 41, "ioctl": 16},
    ),
    "aarch64": (
        0xC00000B7,
        (89, 170, 40, 39, 224, 225, 142, 161, 162, 105, 106, 60, 116, 58, 41, 18, 112, 104, 217)
        + (218, 219, 241, 262, 265, 268, 273, 294, 280, 282),
        {"clone": 220, "unshare": 97, "socket": 198, "ioctl": 29},
    ),
}


def code_for(machine: Optional[str] = None) -> Optional[bytes]:
    """The filter for this machine's processor; None for one whose numbers we do not know."""
    machine = machine or platform.machine()
    if machine not in _TABLES or sys.byteorder != "little":
        return None
    architecture, refused, named = _TABLES[machine]
    # (instruction, constant, where to when true, where to when false): names, resolved below.
    lines: List[Tuple[int, int, str, str]] = [
        (_LOAD, _ARCHITECTURE, "", ""),
        (_EQUALS, architecture, "", "unknown"),
        (_LOAD, _NUMBER, "", ""),
    ]
    if machine == "x86_64":
        lines.append((_AT_LEAST, 0x40000000, "unknown", ""))  # the x32 numbers
    lines += [(_EQUALS, number, "unknown", "") for number in _NEW_UNKNOWN]
    lines += [(_EQUALS, number, "refused", "") for number in (*refused, *_NEW_REFUSED)]
    lines += [
        (_EQUALS, named["clone"], "flags", ""),
        (_EQUALS, named["unshare"], "flags", ""),
        (_EQUALS, named["socket"], "family", ""),
        (_EQUALS, named["ioctl"], "request", "allowed"),
    ]
    blocks = {
        "flags": [
            (_LOAD, _FIRST_ARGUMENT, "", ""),
            (_ANY_BIT, _NAMESPACES, "refused", "allowed"),
        ],
        "family": [(_LOAD, _FIRST_ARGUMENT, "", "")]
        + [(_EQUALS, each, "refused", "") for each in _FAMILIES[:-1]]
        + [(_EQUALS, _FAMILIES[-1], "refused", "allowed")],
        "request": [(_LOAD, _FIRST_ARGUMENT + 8, "", "")]
        + [(_EQUALS, each, "refused", "") for each in _TYPING[:-1]]
        + [(_EQUALS, _TYPING[-1], "refused", "allowed")],
        "allowed": [(_RETURN, _ALLOW, "", "")],
        "refused": [(_RETURN, _ERRNO | _EPERM, "", "")],
        "unknown": [(_RETURN, _ERRNO | _ENOSYS, "", "")],
    }
    at: Dict[str, int] = {}
    for name, block in blocks.items():
        at[name] = len(lines)
        lines += block
    code = b""
    for number, (instruction, constant, true, false) in enumerate(lines):
        jumps = [at[name] - number - 1 if name else 0 for name in (true, false)]
        code += struct.pack("<HBBI", instruction, jumps[0], jumps[1], constant)
    return code
