"""Where this process stands: which job, which attempt, which rank, which folders.

On the platform everything comes from the environment the worker set. Off it, RANK and WORLD_SIZE
are believed when they are there and the folders lie under `./windlass-runs/`; none of them is
created before something is written.

The ranks of one local gang must agree on a folder without talking to each other, so a gang's
folder is named after the launcher (the parent they share: its pid and start time), not after the
clock.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from windlass.job import stop


@dataclass(frozen=True)
class Context:
    """What a process may know about itself. Times are UTC milliseconds."""

    job_id: str
    job_name: str
    project: str
    attempt: int
    attempt_id: str
    role: str
    role_index: int
    rank: int
    world_size: int
    local_rank: int
    node_rank: int
    num_nodes: int
    run_dir: Path
    output_dir: Path
    checkpoint_dir: Path
    resume_from: Optional[Path]
    deadline_ms: Optional[int]
    checkpoint_keep: int
    on_platform: bool
    # The rank that names the spool file. Differs from `rank` only below a launcher such as
    # torchrun, which is one rank to the worker and many to itself.
    spool_rank: int
    url: str = ""
    token: str = field(default="", repr=False)
    start_from: Optional[Path] = None
    """A folder with what the job was told to start from (`windlass run --from-job`,
    `--from-model`), to be read only; its own checkpoint, after a restart, is `resume_from`."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The job's parameters, by name: of a trial, those that its study chose."""
    mirrored: bool = False
    """The checkpoints' folder is this node's own: its worker sends finished ones to the server."""
    restart: int = 0
    """How often this rank was started again within its attempt, while the others went on."""

    def seconds_left(self) -> Optional[float]:
        """Seconds until the job's time limit, negative once it is past; None without one."""
        if self.deadline_ms is None:
            return None
        return self.deadline_ms / 1000 - time.time()


def context(watch_stop: bool = False) -> Context:
    """This process's context, read once (again in a forked child: its rank may differ).

    With `watch_stop`, SIGTERM no longer ends the process but makes `windlass.should_stop()` true.
    """
    if watch_stop:
        stop.watch()
    pid = os.getpid()
    found = _contexts.get(pid)
    if found is None:
        found = read(os.environ, _local_run_dir)
        _contexts.clear()
        _contexts[pid] = found
    return found


_contexts: Dict[int, Context] = {}
_run_dirs: Dict[str, Path] = {}


def read(environment: Mapping[str, str], local_run_dir: Callable[[str, int], Path]) -> Context:
    """The context an environment describes. `local_run_dir` names the folder when it does not."""
    get = environment.get
    on_platform = bool(get("WINDLASS_JOB_ID"))
    spool_rank, rank, world_size, local_rank = _ranks(environment)
    name = get("WINDLASS_JOB_NAME") or script_name()
    run_dir = Path(get("WINDLASS_RUN_DIR") or local_run_dir(name, world_size))
    resume, start = get("WINDLASS_RESUME_FROM"), get("WINDLASS_START_FROM")
    return Context(
        job_id=get("WINDLASS_JOB_ID", ""),
        job_name=name,
        project=get("WINDLASS_PROJECT", ""),
        attempt=_integer(environment, "WINDLASS_ATTEMPT", 1),
        attempt_id=get("WINDLASS_ATTEMPT_ID", ""),
        role=get("WINDLASS_ROLE", "worker"),
        role_index=_integer(environment, "WINDLASS_ROLE_INDEX", 0),
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        node_rank=_integer(environment, "WINDLASS_NODE_RANK", 0),
        num_nodes=_integer(environment, "WINDLASS_NUM_NODES", 1),
        run_dir=run_dir,
        output_dir=Path(get("WINDLASS_OUTPUT_DIR") or run_dir / "out"),
        checkpoint_dir=Path(get("WINDLASS_CHECKPOINT_DIR") or run_dir / "checkpoints"),
        resume_from=Path(resume) if resume else None,
        deadline_ms=_integer(environment, "WINDLASS_DEADLINE", 0) or None,
        checkpoint_keep=max(2, _integer(environment, "WINDLASS_CHECKPOINT_KEEP", 3)),
        on_platform=on_platform,
        spool_rank=spool_rank,
        url=get("WINDLASS_URL", "").rstrip("/"),
        token=get("WINDLASS_TOKEN", ""),
        start_from=Path(start) if start else None,
        params=_params(environment),
        mirrored=bool(get("WINDLASS_MIRRORED")),
        restart=_integer(environment, "WINDLASS_RESTART", 0),
    )


def local_run_dirs(here: Context) -> List[Path]:
    """The folders of this and earlier local runs of the same name, the last changed first."""
    pattern = re.compile(
        r"(?:\d{8}-\d{6}-%s-\d+|gang-%s-\d+-\d+)" % ((re.escape(here.job_name),) * 2)
    )
    runs = here.run_dir.parent
    found = [here.run_dir]
    if runs.name == "windlass-runs" and runs.is_dir():
        found = [path for path in runs.iterdir() if pattern.fullmatch(path.name)]
    dated = [
        ((path / "checkpoints").stat().st_mtime_ns, path)
        for path in found
        if (path / "checkpoints").is_dir()
    ]
    return [path for _, path in sorted(dated, reverse=True)]


def script_name() -> str:
    """What a local run is called: the script's name, in letters that suit a folder."""
    stem = Path(sys.argv[0] if sys.argv else "").stem
    return re.sub(r"[^A-Za-z0-9_.]+", "-", stem).strip("-.") or "session"


_MPI_RANKS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)
"""Of Open MPI; of MPICH and its kin."""


def _ranks(environment: Mapping[str, str]) -> Tuple[int, int, int, int]:
    """(rank naming the spool, rank, world size, local rank).

    The platform's word counts, except below a launcher: there WINDLASS_RANK is the launcher's (or
    that of the agent beside it) and torch's RANK, or MPI's, is the process's.
    """
    theirs = (
        _integer(environment, "RANK", 0),
        _integer(environment, "WORLD_SIZE", 1),
        _integer(environment, "LOCAL_RANK", 0),
    )
    if not environment.get("WINDLASS_RANK"):
        return (theirs[0], *theirs)
    platform_rank = _integer(environment, "WINDLASS_RANK", 0)
    if environment.get("TORCHELASTIC_RUN_ID") and environment.get("RANK"):
        return (platform_rank, *theirs)
    for rank, size, local_rank in _MPI_RANKS:
        if environment.get(rank) and environment.get(size):
            return (
                platform_rank,
                _integer(environment, rank, 0),
                _integer(environment, size, 1),
                _integer(environment, local_rank, 0),
            )
    return (
        platform_rank,
        platform_rank,
        _integer(environment, "WINDLASS_WORLD_SIZE", 1),
        _integer(environment, "WINDLASS_LOCAL_RANK", 0),
    )


def _params(environment: Mapping[str, str]) -> Dict[str, Any]:
    text = environment.get("WINDLASS_PARAMS")
    if not text:
        return {}
    found = json.loads(text)
    return found if isinstance(found, dict) else {}


def _integer(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            "the environment variable %s should be an integer, found %r" % (name, text)
        ) from None


def _local_run_dir(name: str, world_size: int) -> Path:
    """The folder of this local run, the same for forked children and the ranks of a gang."""
    if name not in _run_dirs:
        if world_size > 1:
            parent = os.getppid()
            folder = "gang-%s-%d-%s" % (name, parent, _start_ticks(parent))
        else:
            stamp = time.strftime("%Y%m%d-%H%M%S")
            folder = "%s-%s-%d" % (stamp, name, os.getpid())
        _run_dirs[name] = Path.cwd() / "windlass-runs" / folder
    return _run_dirs[name]


def _start_ticks(pid: int) -> str:
    """When a process started, in clock ticks since boot; "0" where the system does not say."""
    try:
        stat = Path("/proc/%d/stat" % pid).read_text()
    except OSError:
        return "0"
    # The command's name stands in brackets and may hold anything: count from the last one.
    return stat.rpartition(")")[2].split()[19]
