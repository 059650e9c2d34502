"""A real Slurm on this machine for tests: its own munge, a controller, a slurmd for each node,
all on loopback, in a folder of the test's. Debian's `slurm-wlm` and `munge` must be installed.

The nodes are one machine under several names; they offer more CPUs than it has.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "srun")
_READY_SECONDS = 60.0


def missing() -> str:
    """Why there can be no Slurm here; empty when there can."""
    absent = [name for name in _PROGRAMS if not _program(name)]
    return f"not installed: {', '.join(absent)}" if absent else ""


def _program(name: str) -> str:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""


class Cluster:
    def __init__(
        self, folder: Path, nodes: int = 2, cpus: int = 32, gpus: int = 0, lost_seconds: int = 5
    ) -> None:
        self.folder = folder
        self.names = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.conf = folder / "slurm.conf"
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self._cpus, self._gpus, self._lost_seconds = cpus, gpus, lost_seconds
        self._ports = _free_ports(nodes + 1)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Cluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._configure()
        munge = self.folder / "munge"
        self._start(
            "munged",
            "--foreground", "--force", f"--socket={munge / 'socket'}",
            f"--key-file={munge / 'key'}", f"--log-file={munge / 'log'}",
            f"--pid-file={munge / 'pid'}", f"--seed-file={munge / 'seed'}",
        )  # fmt: skip
        self._until((munge / "socket").exists, "munged")
        self._start("slurmctld", "-D", "-f", str(self.conf))
        for name in self.names:
            self.boot(name)
        self._until(self._all_idle, "the nodes")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if "slurmctld" in self._processes:
            self.run("scancel", f"--user={pwd.getpwuid(os.geteuid()).pw_name}", check=False)
        for process in reversed(self._processes.values()):
            process.kill()  # gently they take seconds, and nothing of theirs is kept
        for process in self._processes.values():
            process.wait()
        self._end_steps()

    def _end_steps(self) -> None:
        """Who minds a step outlives its slurmd; it is known by the cluster it was started for."""
        mark = f"SLURM_CONF={self.conf}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except (OSError, ValueError):
                continue  # it ended meanwhile, or is not ours to look at

    def run(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            command, env=self.environment, check=check, capture_output=True, text=True, timeout=60
        )
        return done.stdout

    def boot(self, node: str) -> None:
        self._start(f"slurmd {node}", "-D", "-N", node, "-f", str(self.conf))

    def silence(self) -> None:
        """The controller ends; what runs goes on. Killed, it would forget the last seconds, give
        a job's number to another, and drain the node where both are known."""
        process = self._processes.pop("slurmctld")
        process.terminate()
        process.wait(_READY_SECONDS)

    def speak(self) -> None:
        """The controller comes back with what it knew."""
        self._start("slurmctld", "-D", "-f", str(self.conf))
        self._until(lambda: "is UP" in self.run("scontrol", "ping", check=False), "slurmctld")

    def fell(self, node: str) -> None:
        """The node's daemon dies and Slurm gives the node up; the processes that it started go
        on, as on a real node whose network is gone. By itself the controller finds out after
        SlurmdTimeout and some pings; here it is told at once."""
        process = self._processes.pop(f"slurmd {node}")
        process.kill()
        process.wait()
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def _start(self, name: str, *arguments: str) -> None:
        program = _program(name.split()[0])
        log = open(self.folder / f"{name.replace(' ', '-')}.out", "ab")
        with log:
            self._processes[name] = subprocess.Popen(
                [program, *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _all_idle(self) -> bool:
        try:
            states = self.run("sinfo", "-h", "-N", "-o", "%T").split()
        except subprocess.CalledProcessError:
            return False
        return len(states) == len(self.names) and set(states) == {"idle"}

    def _until(self, ready: object, what: str) -> None:
        assert callable(ready)
        ends = time.monotonic() + _READY_SECONDS
        while not ready():
            ended = [name for name, each in self._processes.items() if each.poll() is not None]
            logs = {name: self._tail(name) for name in ended}
            assert not ended, f"ended while {what} started: {logs}"
            assert time.monotonic() < ends, f"{what} did not start: {self._tail('slurmctld')}"
            time.sleep(0.05)

    def _tail(self, name: str) -> str:
        path = self.folder / f"{name.replace(' ', '-')}.out"
        return path.read_text(errors="replace")[-1500:] if path.exists() else ""

    def _configure(self) -> None:
        munge = self.folder / "munge"
        munge.mkdir(mode=0o700)
        (munge / "key").write_bytes(secrets.token_bytes(128))
        (munge / "key").chmod(0o400)
        control, *ports = self._ports
        user = pwd.getpwuid(os.geteuid()).pw_name
        gres = f" Gres=gpu:{self._gpus}" if self._gpus else ""
        machines = "\n".join(
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={self._cpus} RealMemory=64000 State=UNKNOWN{gres}"
            for name, port in zip(self.names, ports, strict=True)
        )
        self.conf.write_text(
            f"""ClusterName=test{control}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={control}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={munge / "socket"}
CredType=cred/munge
StateSaveLocation={self.folder / "state"}
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
SlurmdTimeout={self._lost_seconds}
KillWait=1
MinJobAge=300
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
{"GresTypes=gpu" if self._gpus else ""}
{machines}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
        )
        (self.folder / "state").mkdir(exist_ok=True)
        if self._gpus:
            (self.folder / "gres.conf").write_text(f"Name=gpu Count={self._gpus}\n")


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
