"""What a child of the worker does to itself, between fork and exec, to become the job's own."""

from __future__ import annotations

import os

from windlass.worker import seccomp
from windlass.worker.kernel import Filter, Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from windlass.worker.room import Room


class Confinement:
    """All that is needed is made here, before the fork. Without a room and a user it only ties
    the child's life to the worker's."""

    def __init__(
        self, system: Optional[Kernel], room: Optional[Room] = None, uid: Optional[int] = None
    ) -> None:
        self._system = system
        self.room = room
        self.uid = uid
        code = seccomp.code_for() if uid is not None else None
        self.filter = Filter(code) if code else None

    def fork(self) -> int:
        return self.room.fork() if self.room is not None else os.fork()

    def confine(self, parent: int) -> None:
        """The last thing before exec, or before touching what user code has written. Raises
        OSError; then the child must end."""
        if self.room is not None:
            self.room.enter()
        if self.uid is not None:
            assert self._system is not None
            self._system.drop_capabilities()
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)
            self._system.never_gain_privileges()
        if self._system is not None:
            self._system.die_with_parent()
            # Inside a room the worker has no pid; 1 is the room's keeper, so the worker is gone.
            apart = self.room is not None and self.room.counts_pids
            if os.getppid() != (0 if apart else parent):
                os._exit(127)
        if self.filter is not None and self._system is not None:
            self._system.filter_calls(self.filter)
