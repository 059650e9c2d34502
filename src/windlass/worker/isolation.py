"""How far the ranks of this attempt are kept from others, on this node.

    level 0   same user as the worker: process groups, cgroups where the kernel lets us, private
              folders. Nothing is secret between jobs of one user.
    level 1   the worker is root: a user of its own for the job, no capabilities, a room
              (`room`) with its own files, processes and, on wish, network; calls filtered.

What was asked for holds or the launch is refused; what holds beyond that is reported.
"""

from __future__ import annotations

import os
import sys

from windlass.worker import (
    cgroups,
    devices,
    inside,
    layout,
    metadata,
    needs,
    ownership,
    scratch,
    uids,
)
from windlass.worker.cgroups import Cgroups
from windlass.worker.confinement import Confinement
from windlass.worker.launch import Launch, Refused
from windlass.worker.room import NoRoom, Room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

    from windlass.worker.kernel import Kernel
    from windlass.worker.ports import Sockets

    Result = TypeVar("Result")

USER = "job"
_OWN = ("work", "run", "out", "home", "start")


class Isolation:
    def __init__(self, launch: Launch, system: Optional[Kernel]) -> None:
        """Makes all of it; the bundle is laid out, and nothing of the job runs yet. Raises
        Refused when the level that was asked for cannot be had here."""
        self._launch = launch
        self._claim: Optional[uids.Claim] = None
        self._sockets_apart = False
        self._metadata_refused = False
        self._devices_refused = False
        self.room: Optional[Room] = None
        self.cgroups = Cgroups(launch)
        self.tmp = ""
        try:
            if launch.level >= 1:
                self._make_whole(system)
            else:
                self._make_plain(system)
        except TimeoutError:
            self._undo()
            raise
        except (NoRoom, OSError) as err:
            self._undo()
            need = needs.of(err) or needs.in_words(str(err))
            if need:
                raise needs.Lacking(need, err) from err
            words = "isolation (level %d, network %s) cannot be had on this node: %s"
            raise Refused(words % (launch.level, launch.network, err)) from err
        self.confinement = Confinement(system, self.room, self.uid)

    @property
    def uid(self) -> Optional[int]:
        return self._claim.uid if self._claim else None

    def report(self, marked: bool = False) -> Dict[str, Any]:
        """What is in force, for `register`. `marked`: whatever comes of a rank bears a mark."""
        found: Dict[str, Any] = {"level": self._launch.level, "network": self._launch.network}
        found.update(self.cgroups.report())
        found["remains"] = self._remains(found["cgroup"], marked)
        if self.uid is not None:
            found["uid"] = self.uid
            found.setdefault("devices", "none")
            if self._devices_refused:
                found["devices"] = "v2"
            found["capabilities"] = "none"
            found["files"] = "read-only root, private /tmp, /dev/shm, /proc"
            found["namespaces"] = "mount pid ipc uts" + (
                " net" if self._launch.network == "none" else ""
            )
            found["seccomp"] = "deny list" if self.confinement.filter else "none"
            apart = self._launch.network == "none" or self._sockets_apart
            found["abstract_sockets"] = "own" if apart else "shared"
            refused = self._launch.network == "none" or self._metadata_refused
            found["metadata_address"] = "refused" if refused else "reachable"
        return found

    def _remains(self, cgroup: str, marked: bool) -> str:
        """What of the job can outlive a worker that is killed, until it is cleaned up after."""
        if self.room is not None and self.room.counts_pids:
            return "none (pid namespace)"
        ways = ["cgroup " + cgroup] if cgroup != "none" else []
        ways.append("mark" if marked else "environment")
        return "found by %s; not proven" % ", ".join(ways)

    def variables(self, own: Mapping[str, str]) -> Dict[str, str]:
        """The part of our environment that a rank is given, as far as it may be the same."""
        if self.uid is None:
            return dict(own)
        return {**own, "HOME": self._launch.path("home"), "USER": USER, "LOGNAME": USER}

    def call(self, work: Callable[[], Result], seconds: float = 60.0) -> Result:
        """Work on what user code has written, done as the job (`inside`)."""
        found: Result = inside.call(self.confinement, work, seconds)
        return found

    @property
    def sockets(self) -> Optional[Sockets]:
        """What makes sockets in the job's own network; None where it has none of its own."""
        if self._launch.network != "none":
            return None
        return lambda make: inside.sockets(self.confinement, make)

    def give(self, folder: str) -> None:
        """Let the job have a folder that the worker has just filled."""
        if self.uid is not None:
            ownership.give(folder, self.uid)

    def close(self) -> None:
        """After the last process is gone."""
        if self._claim is not None:
            self._claim.release()

    def _undo(self) -> None:
        """Nobody will hear of what was made so far."""
        cgroups.remove(self.cgroups.paths)
        self.close()

    def _make_plain(self, system: Optional[Kernel]) -> None:
        self.tmp = scratch.make(self._launch.directory)
        if self._launch.network == "none":
            if system is None:
                raise NoRoom("this system has no namespaces")
            self.room = Room(layout.Plan.of_network(), system)

    def _make_whole(self, system: Optional[Kernel]) -> None:
        launch = self._launch
        if system is None or os.geteuid() != 0:
            raise NoRoom("level 1 needs a server that runs as root, on Linux")
        self._claim = uids.claim(launch.job_id, launch.uids[0], launch.uids[-1])
        for name in (*_OWN, "tmp", "debug/ranks", "room"):
            os.makedirs(launch.path(name), 0o700, exist_ok=True)
        for name in ("debug", "files", "debug/hook"):
            os.chmod(launch.path(name), 0o755)
        for name in (*_OWN, "tmp", "debug/ranks"):
            self.give(launch.path(name))
        own = [launch.path(name) for name in (*_OWN, "tmp", "debug", "files")]
        if launch.checkpoint_dir:
            own.append(launch.checkpoint_dir)
            self.give(launch.checkpoint_dir)
        shown = [*layout.of_python(launch.python), *layout.of_python(sys.executable)]
        self.room = Room(
            layout.Plan(
                own=own,
                shown=shown,
                hidden=launch.hidden,
                tmp=launch.path("tmp"),
                network=launch.network != "none",
                devices=launch.devices,
                shm_bytes=sum(member.memory_bytes for member in launch.members),
                over=self._names(),
            ),
            system,
        )
        self.tmp = "/tmp"
        two = self.cgroups.version2
        self._devices_refused = two is not None and devices.restrict(two, launch.devices, system)
        if launch.network != "none":
            self._sockets_apart = system.keep_abstract_sockets_apart()
            self._metadata_refused = two is not None and metadata.refuse(two, system)

    def _names(self) -> List[Tuple[str, str]]:
        """The lists of users and groups, with the job's own in them: many programs ask."""
        assert self.uid is not None
        home, found = self._launch.path("home"), []
        for name, line in (
            ("passwd", "%s:x:%d:%d::%s:/bin/sh\n" % (USER, self.uid, self.uid, home)),
            ("group", "%s:x:%d:\n" % (USER, self.uid)),
        ):
            try:
                with open("/etc/" + name, encoding="utf-8", errors="surrogateescape") as file:
                    text = file.read()
            except OSError:
                continue
            path = self._launch.path("room", name)
            with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text.rstrip("\n") + "\n" + line)
            os.chmod(path, 0o644)
            found.append((path, "/etc/" + name))
        return found
