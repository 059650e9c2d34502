"""docs/reference/environment.md: what a rank finds in its environment."""

from __future__ import annotations

from docs.writers.markdown import code, table
from windlass.contracts import neutral, pytorch
from windlass.contracts.base import Gang, Member, RankPlace
from windlass.worker import environment
from windlass.worker.launch import Launch

WORDS = {
    "WINDLASS_JOB_ID": "the job's id",
    "WINDLASS_JOB_NAME": "its name",
    "WINDLASS_PROJECT": "its project",
    "WINDLASS_ATTEMPT": "the number of this start of the gang: 1, 2, …",
    "WINDLASS_ATTEMPT_ID": "its id",
    "WINDLASS_ROLE": "the role of this member: `worker`, `ps`, `chief` …",
    "WINDLASS_ROLE_INDEX": "which member of its role: 0, 1, …",
    "WINDLASS_RANK": "the global rank of this process",
    "WINDLASS_WORLD_SIZE": "how many ranks the gang has",
    "WINDLASS_LOCAL_RANK": "the rank within its member",
    "WINDLASS_NODE_RANK": "which node of the gang: 0, 1, …",
    "WINDLASS_NUM_NODES": "how many nodes the gang stands on",
    "WINDLASS_GPUS_PER_NODE": "GPUs that the gang has on this node",
    "WINDLASS_NODE_IPS": "the nodes' addresses, a line each, in the order of their ranks",
    "WINDLASS_HOSTFILE": "a file with a line `host slots=N` for each node",
    "WINDLASS_HOOKS": "what the framework has run before the script; absent when nothing",
    "WINDLASS_CHECKPOINT_DIR": "where the job's checkpoints lie; the same for all its attempts",
    "WINDLASS_CHECKPOINT_KEEP": "how many checkpoints are kept",
    "WINDLASS_MIRRORED": "1 where the checkpoints' folder is this node's own, and finished ones "
    "are sent to the server; absent where it is shared",
    "WINDLASS_RESUME_FROM": "the checkpoint to go on from; absent when there is none",
    "WINDLASS_START_FROM": "a folder with what the job was told to start from; absent without",
    "WINDLASS_PARAMS": "the job's parameters as JSON; absent without any",
    "WINDLASS_OUTPUT_DIR": "a folder for files that should outlive the process",
    "WINDLASS_RUN_DIR": "where `windlass.log` writes",
    "WINDLASS_DEADLINE": "when the time limit ends it, UTC milliseconds; absent without one",
    "WINDLASS_URL": "the server's address",
    "WINDLASS_TOKEN": "a token of this attempt: registers checkpoints and tracks the job's runs",
    "MLFLOW_TRACKING_URI": "where `import mlflow` logs to: this server, unless the job says",
    "MLFLOW_TRACKING_TOKEN": "the same token, for the MLflow client",
    "MLFLOW_RUN_ID": "the job's run: `mlflow.start_run()` goes on with it",
    "WINDLASS_RESTART": "how often this rank was started again while the others went on; absent "
    "before",
    "WINDLASS_GATHERING": "where the members of a training meet; only with `on_member_loss: "
    "continue` and PyTorch",
    "PYTHONUNBUFFERED": "1: what is printed is seen at once",
    "PYTHONPATH": "a folder with the hook that dumps stacks, before the job's own",
    "TMPDIR": "a private folder for temporary files",
    "CUDA_VISIBLE_DEVICES": "this rank's GPUs; empty without any",
}
NOT_OURS = ("VIRTUAL_ENV", "PATH")
WITH_LOSSES = ("WINDLASS_GATHERING", "WINDLASS_RESTART")
"""Only where the gang goes on without those it loses."""
BY_SERVER = ("WINDLASS_PARAMS",)
"""Among the job's own variables, put there at its launch."""


def variables() -> list[str]:
    """All that a rank gets, whatever its framework: asked of the code that sets it."""
    gang = _gang(("python", "train.py"))
    member = {"role": "worker", "index": 0, "nproc": 1, "command": ["python"]}
    about = {"job_id": "", "attempt_id": "", "attempt": 1, "node": "", "checkpoint_dir": "."}
    about["mirror"] = True
    launch = Launch(".", {**about, "members": [member]}, "")
    told = {"env": neutral.environment(gang, RankPlace(gang.members[0], 0, 0))}
    answer = {
        "resume_from": {"path": "."}, "deadline_ms": 1, "hooks": ["tensorflow1"],
        "url": "http://127.0.0.1", "tracking_token": "token", "start_from": ".",
    }  # fmt: skip
    found = environment.of_rank(
        launch, launch.members[0], answer, told,
        {"hook": "hook", "files": "files", "tmp": "tmp"}, [], {},
    )  # fmt: skip
    return [*(name for name in found if name not in NOT_OURS), *WITH_LOSSES, *BY_SERVER]


def page() -> str:
    contract = pytorch.PyTorchContract()
    plain, launcher = _gang(("python", "train.py")), _gang(("torchrun", "train.py"))
    sets = {
        "each rank, when the command is a script": plain,
        "torchrun, when that is the command": launcher,
    }
    frameworks = [
        (who, ", ".join(code(n) for n in contract.environment(g, RankPlace(g.members[0], 0, 0))))
        for who, g in sets.items()
    ]
    kept = ", ".join(code(name) for name in sorted(environment._KEPT))
    return "\n".join(
        [
            "# What a rank finds in its environment\n",
            f"A rank starts with a clean environment: {kept} and `LC_*` of the server's own, then "
            "`environment.vars` of the job, then the variables below. A job may not set those "
            "below (but `PYTHONPATH` and `MLFLOW_…`), nor any that starts with `WINDLASS_`: it is "
            "refused at submit.\n",
            table(("variable", "what it is"), [(code(n), WORDS[n]) for n in sorted(variables())]),
            "## `framework: pytorch` adds\n",
            table(("to", "variables"), frameworks),
            "`framework: python` adds none.\n",
            "Off the platform, ranks of `windlass.train` that are started by hand (not by "
            "torchrun) are given `WINDLASS_TRAIN_SECRET`, any text that others cannot guess: with "
            "it they know each other.\n",
        ]
    )


def _gang(command: tuple[str, ...]) -> Gang:
    members = tuple(
        Member("worker", i, 1, "local", "127.0.0.1", (1024 + i,), command, ifname="lo")
        for i in range(2)
    )
    return Gang("job", "name", 1, members)
