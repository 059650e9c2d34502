"""What a rank finds in its environment, and the command it runs. Pure but for `os.environ`.

Built from nothing: a few names of the worker's own environment, then what the job says, then what
the contract says, then what only the worker knows. Later ones win, but for settings of the
contract that the job made itself.
"""

from __future__ import annotations

import os
import time

from windlass.worker.launch import Launch, Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Set

_KEPT = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG TZ TERM LD_LIBRARY_PATH SSL_CERT_FILE".split()
)
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base(own: Mapping[str, str]) -> Dict[str, str]:
    found = {name: value for name, value in own.items() if name in _KEPT or name.startswith("LC_")}
    found.setdefault("PATH", _DEFAULT_PATH)
    return found


def of_rank(
    launch: Launch,
    member: Member,
    rendezvous: Dict[str, Any],
    told: Dict[str, Any],
    folders: Dict[str, str],
    devices: List[str],
    own: Mapping[str, str],
) -> Dict[str, str]:
    """The whole environment of one rank. `told` is the contract's word on it, `folders` are those
    of `tmp`, `files` and `hook`."""
    found = base(own)
    found.update(launch.vars)
    found.update(member.vars)
    found.update(rendezvous.get("secrets") or {})
    _put_python_first(found, launch.python)
    # Dumps a stack on demand; it steps aside for the user's own sitecustomize.
    found["PYTHONPATH"] = os.pathsep.join(
        each for each in (folders["hook"], found.get("PYTHONPATH")) if each
    )
    files = folders["files"]
    # The server refused a job that sets a launch variable, so what is set by both is a mere
    # setting (such as NCCL_SOCKET_IFNAME), and there the job's word counts.
    theirs = {*launch.vars, *member.vars, *(rendezvous.get("secrets") or {})}
    found.update(
        {
            name: text.replace("@files@", files)
            for name, text in told["env"].items()
            if name not in theirs
        }
    )
    found.update(
        WINDLASS_JOB_ID=launch.job_id,
        WINDLASS_JOB_NAME=launch.job_name,
        WINDLASS_PROJECT=launch.project,
        WINDLASS_ATTEMPT=str(launch.attempt),
        WINDLASS_ATTEMPT_ID=launch.attempt_id,
        WINDLASS_OUTPUT_DIR=launch.path("out"),
        WINDLASS_RUN_DIR=launch.path("run"),
        WINDLASS_URL=rendezvous.get("url") or (launch.urls or [""])[0],
        WINDLASS_TOKEN=rendezvous.get("tracking_token") or "",
        PYTHONUNBUFFERED="1",
        TMPDIR=folders["tmp"],
        CUDA_VISIBLE_DEVICES=",".join(devices),
    )
    found.update(_tracking(found, launch, theirs))
    if rendezvous.get("hooks"):
        found["WINDLASS_HOOKS"] = ",".join(rendezvous["hooks"])
    if launch.checkpoint_dir:
        found["WINDLASS_CHECKPOINT_DIR"] = launch.checkpoint_dir
        found["WINDLASS_CHECKPOINT_KEEP"] = str(launch.keep)
        if launch.mirror:
            found["WINDLASS_MIRRORED"] = "1"
    resume = rendezvous.get("resume_from")
    if resume:
        found["WINDLASS_RESUME_FROM"] = resume["path"]
    if rendezvous.get("start_from"):
        found["WINDLASS_START_FROM"] = rendezvous["start_from"]
    deadline = rendezvous.get("deadline_ms")
    if deadline:
        found["WINDLASS_DEADLINE"] = str(deadline)
    return found


def _tracking(found: Mapping[str, str], launch: Launch, theirs: Set[str]) -> Dict[str, str]:
    """For scripts that `import mlflow`: they log to this job's run and know nothing of us. Who
    tracks elsewhere is left alone."""
    url, token = found["WINDLASS_URL"], found["WINDLASS_TOKEN"]
    if not url or not token or "MLFLOW_TRACKING_URI" in theirs:
        return {}
    ours = {
        "MLFLOW_TRACKING_URI": f"{url}/mlflow/{launch.project}",
        "MLFLOW_TRACKING_TOKEN": token,
        "MLFLOW_RUN_ID": launch.job_id,
    }
    return {name: value for name, value in ours.items() if name not in theirs}


def in_own_time(rendezvous: Dict[str, Any]) -> Dict[str, Any]:
    """The same with its deadline on this node's clock, which may differ from the server's: ranks
    compare it with what they see. To be asked when the answer has just come."""
    deadline, now = rendezvous.get("deadline_ms"), rendezvous.get("now_ms")
    if not deadline or not now:
        return rendezvous
    return {**rendezvous, "deadline_ms": deadline + int(time.time() * 1000) - now}


def devices_of(member: Member, gpus: str, local_rank: int, started: int) -> List[str]:
    """The devices one rank sees: all of its member's, or its share; too few are shared."""
    every = member.gpu_ids
    if gpus == "member" or not every:
        return every
    if len(every) < started:
        return [every[local_rank * len(every) // started]]
    return every[local_rank * len(every) // started : (local_rank + 1) * len(every) // started]


def command_of(member: Member, python: Optional[str]) -> List[str]:
    """The words to run: a script is run by the job's Python, `python` means the job's Python."""
    command = list(member.command)
    if command[0].endswith(".py"):
        return [python or "python3", *command]
    if python and command[0] in ("python", "python3"):
        return [python, *command[1:]]
    return command


def _put_python_first(found: Dict[str, str], python: Optional[str]) -> None:
    if not python:
        return
    folder = os.path.dirname(os.path.abspath(python))
    found["PATH"] = folder + os.pathsep + found["PATH"]
    home = os.path.dirname(folder)
    if os.path.exists(os.path.join(home, "pyvenv.cfg")):
        found["VIRTUAL_ENV"] = home
