"""Slurm's own commands, asked for what they say in a form made for programs."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windlass.engines.spawn import minimal_environment

_SECONDS = 15.0
_SILENT_SECONDS = 15.0
"""So long after it did not answer the controller is asked by nobody but who looks for it: its
commands take their time to give up, and others' jobs must not wait for that."""
_WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD"})
_AT_WORK = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"})
_NUMBER = re.compile(r"\d+")
_OWN = ("SLURM_CONF", "SLURM_CLUSTERS")
"""Which cluster it is: the only ones of Slurm's variables that stay."""


class SlurmFailed(Exception):
    """A command failed. `unreachable`: the controller did not answer, so nothing is known."""

    def __init__(self, message: str, *, unreachable: bool) -> None:
        super().__init__(message)
        self.unreachable = unreachable


@dataclass(frozen=True)
class Job:
    number: str
    name: str
    state: str
    reason: str

    @property
    def waits(self) -> bool:
        return self.state in _WAITING

    @property
    def runs(self) -> bool:
        return self.state in _AT_WORK or self.state == "COMPLETING"

    @property
    def over(self) -> bool:
        return not (self.waits or self.runs)


@dataclass(frozen=True)
class Step:
    job: str
    number: str
    name: str


class Slurm:
    """The commands of one cluster, as the user who runs the server."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._silent_until = 0.0
        self._environment = {**(os.environ if environment is None else environment)}
        # what a site or a shell sets for people must not change what a program reads
        for name in list(self._environment):
            if name.startswith(("SQUEUE_", "SBATCH_", "SALLOC_", "SLURM_")) and name not in _OWN:
                del self._environment[name]

    async def submit(self, script: str, options: Sequence[str], folder: str) -> str:
        """The number of the new job. Its environment is sbatch's, so that is the least one: for
        every other way to keep ours out (NONE, NIL) Slurm runs a login shell of the user's on the
        node first, which may take a second."""
        own = {key: self._environment[key] for key in _OWN if key in self._environment}
        said = await self.run(
            "sbatch", "--parsable", "--export=ALL", *options, given=script, folder=folder,
            environment={**minimal_environment(self._environment), **own},
        )  # fmt: skip
        number = said.strip().splitlines()[-1].split(";")[0] if said.strip() else ""
        if not _NUMBER.fullmatch(number):
            raise SlurmFailed(f"sbatch answered {said[:200]!r}", unreachable=False)
        return number

    async def jobs(self, prefix: str) -> list[Job]:
        """Ours by name: those that wait and run, and those over not long ago."""
        said = await self.run("squeue", "-h", "--me", "-t", "all", "-o", "%A|%j|%T|%r")
        found = []
        for line in said.splitlines():
            parts = line.split("|")
            if len(parts) == 4 and parts[1].startswith(prefix):
                found.append(Job(*(part.strip() for part in parts)))
        return found

    async def steps(self) -> list[Step]:
        """Those that run, by the name that they were given."""
        said = await self.run("squeue", "-h", "-s", "--me", "-o", "%i|%j")
        found = []
        for line in said.splitlines():
            number, _, name = line.partition("|")
            job, _, step = number.strip().partition(".")
            if step and _NUMBER.fullmatch(step):
                found.append(Step(job, step, name.strip()))
        return found

    async def nodes(self, *, trying: bool = False) -> list[dict[str, str]]:
        """`trying`: also when the controller did not answer a moment ago."""
        said = await self.run("scontrol", "-o", "show", "nodes", trying=trying)
        return [_fields(line) for line in said.splitlines() if line.startswith("NodeName=")]

    async def kill(self, step: Step) -> None:
        await self._gone("scancel", "--signal=KILL", f"{step.job}.{step.number}")

    async def cancel(self, job: str) -> None:
        await self._gone("scancel", job)

    async def _gone(self, *command: str) -> None:
        """To end what has ended is no mistake."""
        try:
            await self.run(*command)
        except SlurmFailed as err:
            if err.unreachable or not re.search(
                r"Invalid job id|already completing|already completed|Job/step", str(err)
            ):
                raise

    async def run(
        self,
        *command: str,
        given: str = "",
        folder: str = "/",
        seconds: float = _SECONDS,
        trying: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        if time.monotonic() < self._silent_until and not trying:
            raise SlurmFailed("the controller did not answer a moment ago", unreachable=True)
        try:
            said = await self._run(
                command, given, folder, seconds, environment or self._environment
            )
        except SlurmFailed as err:
            if err.unreachable:
                self._silent_until = time.monotonic() + _SILENT_SECONDS
            raise
        self._silent_until = 0.0
        return said

    async def _run(
        self,
        command: Sequence[str],
        given: str,
        folder: str,
        seconds: float,
        environment: Mapping[str, str],
    ) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as err:
            raise SlurmFailed(f"{command[0]}: {err}", unreachable=False) from err
        try:
            async with asyncio.timeout(seconds):
                out, complaint = await process.communicate(given.encode() or None)
        except TimeoutError:
            raise SlurmFailed(
                f"{command[0]} did not answer within {seconds:g} s", unreachable=True
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            words = " ".join(complaint.decode("utf-8", "replace").split())[:400]
            unreachable = bool(
                re.search(r"Unable to contact|Socket timed out|Connection refused|slow", words)
            )
            raise SlurmFailed(
                f"{command[0]}: {words or process.returncode}", unreachable=unreachable
            )
        return out.decode("utf-8", "replace")


def _fields(line: str) -> dict[str, str]:
    """`Key=value` pairs; a value may hold blanks (`OS=Linux 6.1 …`), a key never does."""
    pieces = re.split(r"(?:^|\s)([A-Za-z][A-Za-z0-9_:]*)=", line)
    return {key: value.strip() for key, value in zip(pieces[1::2], pieces[2::2], strict=True)}
