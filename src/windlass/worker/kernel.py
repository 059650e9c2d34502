"""The calls of the Linux kernel that Python has no name for. Loaded once, before any fork."""

from __future__ import annotations

import ctypes
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

NEW_MOUNTS = 0x00020000
NEW_HOST_NAME = 0x04000000
NEW_IPC = 0x08000000
NEW_USERS = 0x10000000
NEW_PIDS = 0x20000000
NEW_NETWORK = 0x40000000

_SET_PARENT_DEATH_SIGNAL = 1
_SET_SECCOMP = 22
_DROP_FROM_BOUND = 24
_SET_SUBREAPER = 36
_SET_NO_NEW_PRIVILEGES = 38
_AMBIENT = 47
_AMBIENT_CLEAR = 4
_SECCOMP_FILTER = 2
_LAST_CAPABILITY = 63

_LANDLOCK_CREATE = 444
_LANDLOCK_RESTRICT = 446
_LANDLOCK_VERSION = 1
_SCOPE_ABSTRACT_SOCKETS = 1
_SCOPES_SINCE = 6


def libc() -> Optional[Any]:
    """None where there is no such library, or it is not Linux's."""
    try:
        found = ctypes.CDLL(None, use_errno=True)
    except OSError:
        return None
    return found if hasattr(found, "prctl") else None


class Filter:
    """A seccomp program as the kernel wants it; made before the fork, loaded after it."""

    def __init__(self, code: bytes) -> None:
        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

        self._code = code
        self.program = Program(len(code) // 8, code)


class Kernel:
    """Every call raises OSError when the kernel refuses, but for the two that say so."""

    def __init__(self) -> None:
        found = libc()
        if found is None:
            raise OSError("this system has no prctl")
        self._libc = found

    def become_subreaper(self) -> None:
        self._prctl(_SET_SUBREAPER, 1)

    def die_with_parent(self) -> None:
        """Cleared by the kernel when the user changes: call this last."""
        self._prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))

    def enter(self, namespace: int, kind: int) -> None:
        """Join the namespace behind an open descriptor; of processes, only our children do."""
        self._checked(self._libc.setns(namespace, kind))

    def drop_capabilities(self) -> None:
        """Out of the bound of all that this process will ever run; the rest goes with the user."""
        self._libc.prctl(_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
        for capability in range(_LAST_CAPABILITY + 1):
            # Refused for numbers that this kernel does not know.
            self._libc.prctl(_DROP_FROM_BOUND, capability, 0, 0, 0)

    def never_gain_privileges(self) -> None:
        self._prctl(_SET_NO_NEW_PRIVILEGES, 1)

    def filter_calls(self, made: Filter) -> None:
        self._checked(
            self._libc.prctl(
                _SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(made.program), ctypes.c_ulong(0), 0
            )
        )

    def keep_abstract_sockets_apart(self) -> bool:
        """From now on this thread and its children reach no abstract socket but their own. False
        where the kernel cannot (before 6.12)."""
        version = self._libc.syscall(
            _LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_LANDLOCK_VERSION)
        )
        if version < _SCOPES_SINCE:
            return False
        rules = (ctypes.c_uint64 * 3)(0, 0, _SCOPE_ABSTRACT_SOCKETS)
        made = self._libc.syscall(
            _LANDLOCK_CREATE,
            ctypes.byref(rules),
            ctypes.c_size_t(ctypes.sizeof(rules)),
            ctypes.c_uint32(0),
        )
        if made < 0:
            return False
        try:
            return bool(self._libc.syscall(_LANDLOCK_RESTRICT, made, ctypes.c_uint32(0)) == 0)
        finally:
            os.close(made)

    def call(self, number: int, *arguments: Any) -> int:
        """A call by its number; -1 when it is refused."""
        return int(self._libc.syscall(number, *arguments))

    def _prctl(self, option: int, value: int) -> None:
        self._checked(self._libc.prctl(option, value, 0, 0, 0))

    def _checked(self, result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
