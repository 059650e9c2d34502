"""A batch script of Slurm: its `#SBATCH` lines say the shape, one of its lines is the program.

srun python train.py     a rank for each task, on every node
srun torchrun train.py   one launcher on every node
mpirun ./train           one launcher, and workers that lend it their slots
python train.py          once, on the first node
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windlass.client.importers import commands, gang, quantities, shellscript
from windlass.client.importers import slurm_options as slurm
from windlass.client.importers.base import Imported, Report, compact, job_name, wrong
from windlass.client.importers.shellscript import Line
from windlass.client.importers.slurm_options import Option
from windlass.core.errors import InvalidInput
from windlass.core.jobs import FILL_IN

MPI = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun")
AT_RUN_TIME = {
    "SLURM_PROCID": "$WINDLASS_RANK", "SLURM_LOCALID": "$WINDLASS_LOCAL_RANK",
    "SLURM_NODEID": "$WINDLASS_NODE_RANK", "SLURM_JOB_ID": "$WINDLASS_JOB_ID",
    "SLURM_JOBID": "$WINDLASS_JOB_ID",
}  # fmt: skip


class Sbatch:
    name = "batch script with #SBATCH lines (Slurm)"

    def __init__(self, path: str = "job.sh") -> None:
        self.path = path

    def matches(self, document: Any) -> bool:
        return isinstance(document, str) and bool(re.search(r"^#SBATCH\b", document, re.MULTILINE))

    def convert(self, document: Any) -> Imported:
        report = Report()
        header, body = _header(document, report)
        script = shellscript.lines(body)
        line = _program(script)
        words: list[str] = []
        steps: list[Option] = []
        if line is not None:
            words = list(line.words)
            if line.program == "srun":
                steps, words = slurm.split(line.words[1:], f"line {line.number} srun")
        shape = slurm.shape([*header, *steps], report)
        found = _settings([*header, *steps], report)
        known = _known(shape, found.get("name"))
        variables = _variables(script, line, known, found.pop("vars"), report)
        if line is None or not words:
            words = ["bash", self.path.rsplit("/", 1)[-1]]
            _several(script, report)
        else:
            _other_lines(script, line, report)
        where = f"line {line.number}" if line else "script"
        everywhere = line is None or line.program == "srun"
        roles, framework = _roles(words, shape, everywhere, known, where, report)
        empty = _empty(script, line, roles, known)
        if empty:
            report.fill_in(
                where, ", ".join(empty),
                "only Slurm, or whoever started the script, gives it a value; here it would be "
                "empty",
            )  # fmt: skip
            roles = {
                name: replace(role, run=(FILL_IN, *role.run)) if role.run else role
                for name, role in roles.items()
            }
        roles = {name: replace(role, vars=variables) for name, role in roles.items()}
        name = found.pop("name")
        spec = {"name": name, "framework": framework, **gang.fields(roles), **found}
        return report.imported("sbatch", compact(spec))


def _empty(
    script: list[Line],
    chosen: Line | None,
    roles: Mapping[str, gang.Role],
    known: Mapping[str, str],
) -> list[str]:
    """What would be nothing in the command, so that it might do nothing, and well."""
    if chosen is not None and "<<" in chosen.rest:
        return [chosen.rest]  # the lines that follow are the program
    if chosen is None:
        texts = [word for line in script for word in (*line.words, *(v for _, v in line.assigned))]
    else:
        texts = [word for role in roles.values() for word in role.run or ()]
    arrays = {name for line in script for name, _ in line.assigned if line.rest.startswith("(")}
    found = []
    for use in dict.fromkeys(use for text in texts for use in shellscript.unset(text, known)):
        name = re.sub(r"\W.*", "", use.lstrip("${!"))
        own = chosen is None and name in arrays and "SLURM_" not in use
        if not own and (not name or name.isdigit() or "SLURM_" in use or name in arrays):
            found.append(use)
    return found


def _header(text: str, report: Report) -> tuple[list[Option], str]:
    """The options of the #SBATCH lines, and the script with those lines blanked."""
    options: list[Option] = []
    body: list[str] = []
    started = False
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("#SBATCH"):
            started = started or bool(line.strip() and not line.lstrip().startswith("#"))
            body.append(line)
            continue
        body.append("")
        where = f"line {number}"
        if started:
            report.dropped(where, line, "Slurm itself ignores it: it stands after a command")
            continue
        try:
            words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
        except ValueError as err:
            raise InvalidInput(f"{where}: {err}: {line!r:.80}") from None
        found, rest = slurm.split(words, where)
        if rest and rest[0] in ("hetjob", "packjob"):
            raise InvalidInput(
                f"{where}: {rest[0]}: a job of several parts; import one part at a time"
            )
        if rest:
            raise wrong(where, " ".join(rest), "an option of sbatch")
        options += found
    return options, "\n".join(body)


def _settings(options: list[Option], report: Report) -> dict[str, Any]:
    """What is not shape: name, limits, retry, hold; and variables under `vars`."""
    found: dict[str, Any] = {"name": None, "vars": {}}
    limits: dict[str, Any] = {}
    shape = {*slurm.COUNTS, *slurm.GPUS, *slurm.SIZES, "nodes", "gres"}
    for option in options:
        name, value, where = option.name, option.value, f"{option.where} --{option.name}"
        if name in shape:
            continue
        if name == "job-name":
            found["name"] = job_name(value, where, report)
        elif name == "time":
            seconds = quantities.slurm_seconds(value, where)
            if seconds is None:
                report.dropped(where, value, "without limit, as when absent")
            else:
                limits["time"] = quantities.duration(seconds)
                report.mapped(where, value, "limits.time")
        elif name == "signal":
            limits |= _signal(value, where, report)
        elif name == "hold":
            found["hold"] = True
            report.mapped(where, "", "hold (`windlass release` starts it)")
        elif name == "requeue":
            report.mapped(where, "", "retry: a lost node is tried again in any case")
        elif name == "no-requeue":
            found["retry"] = {"times": 0}
            report.mapped(where, "", "retry.times: 0 (a lost node is tried again all the same)")
        elif name == "export":
            found["vars"] |= _export(value, where, report)
        elif name in slurm.DROPPED:
            report.dropped(where, value, slurm.DROPPED[name])
        else:
            unknown = "not known to this importer: see whether the job needs it"
            report.by_hand(where, value, slurm.BY_HAND.get(name, unknown))
    return {**found, "limits": limits} if limits else found


def _signal(value: str, where: str, report: Report) -> dict[str, str]:
    """`[B:]USR1@120`: told 120 seconds before the end."""
    signal, at, seconds = value.rpartition(":")[2].partition("@")
    if at and not re.fullmatch(r"[0-9]{1,6}", seconds):
        raise wrong(where, value, "a signal such as USR1@120")
    grace = int(seconds) if at else 60
    report.mapped(where, value, f"limits.grace: {grace}s")
    if signal.upper().removeprefix("SIG") not in ("TERM", "15"):
        report.by_hand(where, value, "a rank gets SIGTERM: let the script take that one")
    return {"grace": quantities.duration(grace)}


def _export(value: str, where: str, report: Report) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for part in value.split(","):
        name, equals, text = part.partition("=")
        if equals:
            found[name] = (where, text)
        elif name.upper() in ("ALL", "NIL", "NONE"):
            report.dropped(where, name, "a rank's environment is clean but for `vars`")
        elif name:
            report.by_hand(
                where, name, "its value is that of your shell: give it at submit, --env"
            )
    return found


def _program(script: list[Line]) -> Line | None:
    """The one line that starts the program; None when it cannot be told."""
    steps = [line for line in script if line.program == "srun"]
    found = steps or [line for line in script if line.starts_something]
    if not found:
        raise InvalidInput("no line of the script starts a program: add the srun or python line")
    return found[0] if len(found) == 1 and not found[0].nested else None


def _several(script: list[Line], report: Report) -> None:
    steps = [line for line in script if line.program == "srun"]
    for line in steps or [line for line in script if line.starts_something]:
        report.by_hand(
            f"line {line.number}", " ".join(line.words),
            "the script starts several programs, or one in a loop or condition: it is run as it "
            "stands, on every member; take srun and what only Slurm has out of it",
        )  # fmt: skip


def _other_lines(script: list[Line], chosen: Line, report: Report) -> None:
    if chosen.rest:
        where = f"line {chosen.number}"
        if _ONLY_OUTPUT.fullmatch(chosen.rest):
            report.dropped(where, chosen.rest, "no shell runs the command; its output is kept")
        else:
            report.by_hand(where, chosen.rest, "no shell runs the command: do it in the script")
    for line in script:
        if line is chosen or (not line.words and line.exported):
            continue  # what is exported has been told of already
        where, text = f"line {line.number}", " ".join(line.words)
        if not line.words:
            _assignment(line, chosen, report)
            continue
        if line.program in ("module", "ml", "source", ".", "conda", "mamba", "micromamba"):
            report.by_hand(
                where, text, "name the Python that has the packages: `environment.python`"
            )
        elif line.program in (
            "echo",
            "date",
            "hostname",
            "nvidia-smi",
            "set",
            "printf",
            "pwd",
            ":",
        ):
            report.dropped(where, text, "says or sets something for the shell only")
        else:
            report.by_hand(where, text, "not carried over: do it beforehand or in the script")


_ONLY_OUTPUT = re.compile(
    r"(?:[12&]?\s*>{1,2}\s*(?:&\s*)?\S+\s*|>&\s*\S+\s*|\|\s*(?:tee|cat)\b[^|;&]*|&\s*)+"
)
"""Redirections, `| tee FILE`, a lone `&`: where the output goes, not what runs."""


def _assignment(line: Line, chosen: Line, report: Report) -> None:
    """Variables of the shell alone."""
    where = f"line {line.number}"
    for name, value in line.assigned:
        text = f"{name}={value}{line.rest}"
        if line.rest.startswith("("):
            report.by_hand(where, text, "an array: write the values that are meant")
        elif any(re.search(rf"\$\{{?{name}\b", word) for word in chosen.words):
            report.mapped(where, text, "filled in where the command uses it")
        else:
            report.dropped(where, text, "the command does not use it by itself")


def _known(shape: slurm.Shape, name: str | None) -> dict[str, str]:
    """Variables of Slurm whose value the file tells."""
    numbers = {
        "SLURM_NNODES": shape.members, "SLURM_JOB_NUM_NODES": shape.members,
        "SLURM_NTASKS": shape.members * shape.ranks, "SLURM_NPROCS": shape.members * shape.ranks,
        "SLURM_NTASKS_PER_NODE": shape.ranks, "SLURM_TASKS_PER_NODE": shape.ranks,
        "SLURM_CPUS_PER_TASK": shape.cpus_per_task or 1, "SLURM_GPUS_ON_NODE": shape.member_gpus,
        "SLURM_GPUS_PER_NODE": shape.member_gpus,
    }  # fmt: skip
    known = {key: str(value) for key, value in numbers.items()}
    known |= AT_RUN_TIME | {"SLURM_SUBMIT_DIR": "."}
    return {**known, "SLURM_JOB_NAME": name} if name else known


def _variables(
    script: list[Line],
    program: Line | None,
    known: dict[str, str],
    found: Mapping[str, tuple[str, str]],
    report: Report,
) -> dict[str, str]:
    """What the script exports, filled in; `known` learns every assignment."""
    wanted = dict(found)
    for line in script:
        if program is None or line.number > program.number:
            break
        for name, text in line.assigned:
            if line.rest.startswith("("):
                known.pop(name, None)  # an array: no text that could be put anywhere
                continue
            value = shellscript.put(text, known)
            known[name] = value
            if line.exported or line is program:
                wanted[name] = (f"line {line.number}", value)
    clear: dict[str, tuple[str, str]] = {}
    launch = set(gang.launch_variables(wanted))
    for name, (where, value) in wanted.items():
        if name in launch:
            report.dropped(
                where, f"{name}={value}", "Windlass sets it for the frameworks it is of"
            )
        elif shellscript.needs_shell([value]):
            report.by_hand(where, f"{name}={value}", "only a shell knows its value: write it out")
        else:
            clear[name] = (where, value)
    return gang.variables(clear, None, report)


def _roles(
    words: list[str],
    shape: slurm.Shape,
    everywhere: bool,
    known: Mapping[str, str],
    where: str,
    report: Report,
) -> tuple[dict[str, gang.Role], str | None]:
    found = commands.launch(words, where, report)
    filled = [shellscript.put(word, known) for word in found.words]
    program = filled[0].rsplit("/", 1)[-1]
    role = gang.Role(
        count=shape.members, gpus=shape.member_gpus, cpus=shape.member_cpus,
        memory=quantities.size(shape.member_memory),
    )  # fmt: skip
    if program == "horovodrun":
        start = next((at for at, word in enumerate(filled) if "python" in word), 0)
        report.mapped(where, " ".join(filled[:start]), "framework: horovod, a rank for each task")
        run = _words(filled[start:], where, report)
        return {"worker": replace(role, run=run, nproc=shape.ranks)}, "horovod"
    run = _words(filled, where, report, torchrun=found.torchrun)
    report.mapped(where, " ".join(words), "run")
    if program in MPI and not everywhere:
        report.mapped(where, program, "framework: mpi; roles.launcher runs it, on roles.worker")
        worker = replace(role, nproc=shape.ranks)
        return {"launcher": gang.Role(run=run), "worker": worker}, "mpi"
    if not everywhere and shape.members > 1:
        report.by_hand(
            where, program, f"without srun it ran on one of {shape.members} nodes: count is 1"
        )
        role = replace(role, count=1)
    if found.torchrun:
        return {"worker": replace(role, run=run, nproc=found.nproc)}, "pytorch"
    ranks = shape.ranks if everywhere else 1
    return {
        "worker": replace(role, run=run, nproc=ranks if ranks != (role.gpus or 1) else None)
    }, None


def _words(
    words: list[str], where: str, report: Report, torchrun: bool = False
) -> tuple[str, ...]:
    """The command; through a shell where something is left that only a shell can fill in."""
    if not shellscript.needs_shell(words):
        return tuple(words)
    if torchrun:
        report.by_hand(where, " ".join(words), "no shell runs it: write out what has a $")
        return tuple(words)
    text = f"exec {shellscript.for_shell(words)}"
    report.mapped(where, text, "run, by a shell, which fills in what has a $")
    return ("bash", "-c", text)
