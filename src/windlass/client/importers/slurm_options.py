"""The options of sbatch and srun: from words to names and values, and from those to a shape.

A line `#SBATCH -N 2 --gres=gpu:4` and the words after `srun` read the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from windlass.client.importers import quantities
from windlass.client.importers.base import Report, wrong
from windlass.core.errors import InvalidInput

SHORT = {
    "J": "job-name", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "t": "time",
    "p": "partition", "A": "account", "q": "qos", "a": "array", "o": "output", "e": "error",
    "i": "input", "d": "dependency", "C": "constraint", "D": "chdir", "G": "gpus", "H": "hold",
    "w": "nodelist", "x": "exclude", "b": "begin", "M": "clusters", "L": "licenses",
    "F": "nodefile",
    "k": "no-kill", "s": "oversubscribe", "O": "overcommit", "v": "verbose", "Q": "quiet",
    "W": "wait", "l": "label", "u": "unbuffered", "m": "distribution", "S": "core-spec",
    "B": "extra-node-info", "K": "kill-on-bad-exit", "Z": "no-allocate", "X": "disable-status",
    "E": "preserve-env", "I": "immediate", "T": "threads", "r": "relative", "V": "version",
}  # fmt: skip
NO_VALUE = {
    "hold", "no-kill", "oversubscribe", "overcommit", "verbose", "quiet", "wait", "label",
    "unbuffered", "requeue", "no-requeue", "exclusive", "contiguous", "spread-job", "reboot",
    "parsable", "test-only", "use-min-nodes", "ignore-pbs", "kill-on-bad-exit", "no-allocate",
    "disable-status", "preserve-env", "immediate", "version", "pty", "overlap", "external",
    "multi-prog", "exact", "interactive", "propagate", "get-user-env", "nice", "whole", "help",
}  # fmt: skip
"""They take a value, if any, with `=` only."""

LOGS = "the output is kept by rank: `windlass logs`"
PLACE = "placing is the scheduler's; nodes cannot be chosen by name yet"
DROPPED = {
    "output": LOGS, "error": LOGS, "open-mode": LOGS, "label": LOGS, "unbuffered": LOGS,
    "verbose": LOGS, "quiet": LOGS, "parsable": LOGS, "input": "a rank has no input",
    "kill-on-bad-exit": "a failed rank ends the gang",
    "no-kill": "a lost member restarts the gang",
    "overlap": "there is one step", "exact": "there is one step", "wait": "a failed rank ends all",
    "cpu-bind": "CPUs are shared out by the kernel", "mem-bind": "not bound",
    "gpu-bind": "each member has its own GPUs", "hint": "not bound",
    "distribution": "rank by rank",
    "get-user-env": "the environment is clean but for `vars`", "mpi": "by the framework",
    "propagate": "limits are the node's",
    "exclusive": "members get what they ask for; ask for all of a node's GPUs or CPUs",
    "comment": "a job has a name only", "threads-per-core": "not bound", "core-spec": "not bound",
    "nodelist": PLACE, "exclude": PLACE, "constraint": PLACE, "nodefile": PLACE,
    "contiguous": PLACE, "switches": PLACE, "spread-job": PLACE, "use-min-nodes": PLACE,
}  # fmt: skip
BY_HAND = {
    "array": "one job only: submit it once for each value, such as `windlass rerun - index=2`",
    "partition": "set `queue.name` to one of `windlass queue ls`",
    "qos": "set `queue.priority` (50 when absent)",
    "account": "give the project at submit: --project",
    "reservation": "there are no reservations yet", "clusters": "choose the server: --context",
    "dependency": "set `after`: jobs that must have succeeded first",
    "begin": "set `begin`: a time with its zone",
    "mail-type": "nobody is told yet: `windlass wait` blocks until the end",
    "mail-user": "nobody is told yet: `windlass wait` blocks until the end",
    "chdir": "say the folder of the code: `code.dir`", "licenses": "licences are not counted",
    "nice": "set `queue.priority` (50 when absent; higher goes first)",
    "priority": "set `queue.priority` (50 when absent; higher goes first)",
    "tmp": "disk is not counted", "container-image": "images are not run yet",
    "container-mounts": "images are not run yet",
}  # fmt: skip


@dataclass(frozen=True)
class Option:
    name: str
    value: str
    where: str


def split(words: Sequence[str], where: str) -> tuple[list[Option], list[str]]:
    """The options at the start, and what follows. Raises InvalidInput."""
    found: list[Option] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        else:
            name, equals, value = SHORT.get(word[1], word[1]), word[2:], word[2:].removeprefix("=")
        if not equals and name not in NO_VALUE:
            if at >= len(words):
                raise InvalidInput(f"{where}: {word!r:.60} needs a value")
            value = words[at]
            at += 1
        found.append(Option(name, value, where))
    return found, list(words[at:])


@dataclass(frozen=True)
class Shape:
    """What was asked for, by node and in total; None is not asked."""

    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    memory: int | None = None
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None

    @property
    def members(self) -> int:
        if self.nodes:
            return self.nodes
        if self.tasks and self.tasks_per_node:
            return -(-self.tasks // self.tasks_per_node)
        by_node = self.gpus_per_node or self.gpus or self.memory or self.tasks_per_node
        return 1 if by_node else self.tasks or 1

    @property
    def ranks(self) -> int:
        """Of each member."""
        return self.tasks_per_node or -(-(self.tasks or self.members) // self.members)

    @property
    def member_gpus(self) -> int:
        if self.gpus_per_node is not None:
            return self.gpus_per_node
        if self.gpus_per_task is not None:
            return self.gpus_per_task * self.ranks
        return -(-(self.gpus or 0) // self.members)

    @property
    def member_cpus(self) -> int:
        return (self.cpus_per_task or 0) * self.ranks

    @property
    def member_memory(self) -> int:
        if self.memory is not None:
            return self.memory
        if self.memory_per_cpu is not None:
            return self.memory_per_cpu * (self.member_cpus or self.ranks)
        return (self.memory_per_gpu or 0) * self.member_gpus


COUNTS = {
    "ntasks": ("tasks", 1), "ntasks-per-node": ("tasks_per_node", 1),
    "tasks-per-node": ("tasks_per_node", 1), "cpus-per-task": ("cpus_per_task", 0),
}  # fmt: skip
GPUS = {"gpus": "gpus", "gpus-per-node": "gpus_per_node", "gpus-per-task": "gpus_per_task"}
SIZES = {"mem": "memory", "mem-per-cpu": "memory_per_cpu", "mem-per-gpu": "memory_per_gpu"}


def shape(options: Sequence[Option], report: Report) -> Shape:
    """Later options win, as srun's do over the header's."""
    found: dict[str, int] = {}
    for option in options:
        for name, amount in _shape_of(option, report):
            found[name] = amount
    made = Shape(**found)
    for value, most, what in (
        (made.members, 100_000, "members"), (made.ranks, 4096, "ranks of a member"),
        (made.member_gpus, 4096, "GPUs of a member"), (made.member_cpus, 100_000, "CPUs"),
        (made.member_memory, 2**60, "bytes of memory"),
    ):  # fmt: skip
        if value > most:
            raise InvalidInput(f"#SBATCH: {value} {what}: at most {most}")
    if made.tasks and made.tasks != made.members * made.ranks:
        report.by_hand(
            "--ntasks", made.tasks,
            f"members are alike: {made.members} x {made.ranks} ranks were taken",
        )  # fmt: skip
    if made.gpus and made.gpus != made.members * made.member_gpus:
        report.by_hand(
            "--gpus", made.gpus,
            f"members are alike: {made.members} x {made.member_gpus} GPUs were taken",
        )  # fmt: skip
    return made


def _shape_of(option: Option, report: Report) -> Iterator[tuple[str, int]]:
    where, name, value = f"{option.where} --{option.name}", option.name, option.value
    if name == "nodes":
        least, _, most = value.partition("-")
        yield "nodes", _whole(least, where, 1)
        if most and most != least:
            report.by_hand(where, value, f"a gang has one size: {least} was taken")
        else:
            report.mapped(where, value, "count")
    elif name in COUNTS:
        field, least_allowed = COUNTS[name]
        yield field, _whole(value, where, least_allowed)
        report.mapped(where, value, "cpus" if name == "cpus-per-task" else "count and nproc")
    elif name in GPUS:
        yield GPUS[name], _devices(value, where, report)
        report.mapped(where, value, "gpus")
    elif name == "gres":
        for part in value.split(","):
            kind, _, rest = part.partition(":")
            if kind == "gpu":
                yield "gpus_per_node", _devices(rest or "1", where, report)
                report.mapped(where, part, "gpus")
            else:
                report.by_hand(where, part, "only GPUs are counted")
    elif name in SIZES:
        amount = quantities.slurm_bytes(value, where)
        if amount == 0:
            report.by_hand(where, value, "all memory of a node: say how much, `memory: 64GiB`")
            return
        yield SIZES[name], amount
        report.mapped(where, value, "memory")


def _devices(value: str, where: str, report: Report) -> int:
    """`4`, `a100:4`, `a100:4(S:0-1)`."""
    kind, _, number = value.partition("(")[0].rpartition(":")
    if kind:
        report.by_hand(where, kind, "a model of GPU cannot be chosen yet")
    return _whole(number, where, 0)


def _whole(text: str, where: str, minimum: int) -> int:
    found = re.fullmatch(r"([0-9]{1,9})([kK]?)", text)
    if not found or int(found[1]) < minimum:
        raise wrong(where, text, f"a whole number from {minimum} on")
    return int(found[1]) * (1024 if found[2] else 1)
