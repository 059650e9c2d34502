"""From the contract's word to processes: each rank's files, environment, command, pipes."""

from __future__ import annotations

import os
import time

from windlass.worker import environment, processes, spawn
from windlass.worker.launch import Launch, Member, Refused
from windlass.worker.logs import Stream
from windlass.worker.pump import Channel, Pump
from windlass.worker.ranks import Rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from windlass.worker.isolation import Isolation
    from windlass.worker.masking import Masker
    from windlass.worker.pickup.watch import Watch
    from windlass.worker.services.running import Services


class Starter:
    def __init__(
        self,
        launch: Launch,
        isolation: Isolation,
        spawner: spawn.Spawner,
        services: Services,
        pump: Pump,
        hook: str,
        masker: Optional[Masker] = None,
        watch: Optional[Watch] = None,
    ) -> None:
        self._launch = launch
        self._isolation = isolation
        self._spawner = spawner
        self._services = services
        self._pump = pump
        self._hook = hook
        self._masker = masker
        self._watch = watch
        self._recipes: Dict[int, Tuple[Dict[str, Any], Dict[str, str], str]] = {}
        """By rank: the contract's word on it, its environment, the folder of its files."""
        self._streams: Dict[str, Stream] = {}

    def start(
        self, rendezvous: Dict[str, Any], extras: Dict[str, str], ranks: List[Rank]
    ) -> List[Tuple[List[str], int]]:
        """Start every rank of this node and put it among `ranks` at once, so that none is lost
        from sight; for each its command and its pipe of trouble (`spawn.trouble_of`)."""
        launch = self._launch
        members = {(member.role, member.index): member for member in launch.members}
        own = self._isolation.variables(os.environ)
        troubles = []
        for told in rendezvous["members"]:
            member = members[(told["role"], told["index"])]
            finish = rendezvous.get("finish", {}).get(member.role) or member.finish
            for local_rank, told_rank in enumerate(told["ranks"]):
                rank = Rank(member, local_rank, told_rank["rank"], finish)
                ranks.append(rank)
                folders = {
                    "tmp": self._isolation.tmp,
                    "hook": self._hook,
                    "files": self._files_of(rank, told_rank.get("files") or {}),
                }
                devices = environment.devices_of(
                    member, told.get("gpus", "rank"), local_rank, len(told["ranks"])
                )
                variables = environment.of_rank(
                    launch, member, rendezvous, told_rank, folders, devices, own
                )
                variables = {**extras, **variables}
                if told_rank.get("instead") and self._isolation.uid is not None:
                    # MPI's daemon wants the launcher's folder, which is not to be seen in this
                    # room, and goes home instead: there its ranks must find the job's code.
                    variables["HOME"] = launch.path("work")
                self._recipes[rank.number] = (told_rank, variables, folders["files"])
                troubles.append(self._start(rank))
        return troubles

    def start_again(self, rank: Rank) -> Tuple[List[str], int]:
        """The same once more, for a rank that ended: its command and its pipe of trouble."""
        _, variables, _ = self._recipes[rank.number]
        variables["WINDLASS_RESTART"] = str(rank.restarts)
        return self._start(rank)

    def _command_of(
        self, member: Member, told: Dict[str, Any], files: str
    ) -> Tuple[List[str], Optional[int]]:
        """What one process runs: the member's command, or a service of ours in its place, which
        inherits the socket of its port."""
        if told.get("instead"):
            return self._services.stand_in(told["instead"], member, files)
        command = environment.command_of(member, self._launch.python)
        return [*(told.get("prefix") or ()), *command], None

    def _start(self, rank: Rank) -> Tuple[List[str], int]:
        told, variables, files = self._recipes[rank.number]
        command, inherited = self._command_of(rank.member, told, files)
        if inherited is not None:
            os.set_inheritable(inherited, True)
        rank.started_ms = int(time.time() * 1000)
        rank.pid, out, err, trouble = self._spawner.start(
            command,
            variables,
            self._launch.standing,
            self._isolation.cgroups.member_files(rank.member),
            self._isolation.confinement,
            self._launch.max_disk_bytes,
        )
        if inherited is not None:
            os.close(inherited)
        rank.start_time = processes.start_time(rank.pid)
        for stream, pipe in (("out", out), ("err", err)):
            name = "%s.%s" % (rank.name, stream)
            log = self._streams.get(name)
            if log is None:  # one that was started again goes on where it ended
                log = Stream(self._launch.path("logs"), name, self._launch.log_rate)
                self._streams[name] = log
            mask = self._masker.stream() if self._masker is not None else None
            intake = self._watch.intake(rank.number, stream) if self._watch is not None else None
            self._pump.add(Channel(rank.number, pipe, log, stream == "err", mask, intake))
        return command, trouble

    def _files_of(self, rank: Rank, files: Dict[str, str]) -> str:
        folder = self._launch.path("files", str(rank.number))
        os.makedirs(folder, 0o700, exist_ok=True)
        for name, text in files.items():
            with open(os.path.join(folder, os.path.basename(name)), "w") as file:
                file.write(text)
        self._services.lay(folder)
        self._isolation.give(folder)
        return folder


def check(troubles: List[Tuple[List[str], int]]) -> None:
    """Wait until each command runs. Raises Refused for the first that could not be started."""
    for command, trouble in troubles:
        reason = spawn.trouble_of(command, trouble)
        if reason:
            raise Refused(reason)
