"""docs/reference/frameworks.md: what a script may expect, framework by framework.

Variables and files are not described but asked: each contract is evaluated on a small gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from docs.writers.markdown import code, table
from windlass.contracts import registry, threads
from windlass.contracts.base import Contract, Gang, Member, places

EXAMPLES = Path(__file__).parents[2] / "examples"


class About(NamedTuple):
    expects: str
    """What the script does with what it finds, for a user."""
    tried: str
    """How the contract is proved."""
    roles: Mapping[str, int] = {"worker": 2}
    """The gang that is shown."""
    example: str = ""
    commands: Mapping[str, tuple[str, ...]] = {"": ("python", "train.py")}
    """What is shown: a heading, and the command that makes the difference."""


ABOUT = {
    "python": About(
        "Any command in any language. It gets the [variables of every rank](environment.md) and "
        "no more.",
        "with every run of the tests",
        example="first-steps",
    ),
    "pytorch": About(
        "`torch.distributed.init_process_group` finds its peers (`env://`), under "
        "DistributedDataParallel, FSDP, Lightning, Accelerate and DeepSpeed alike. Give the "
        "script itself, or torchrun; torchrun then starts the ranks of its member, and a role "
        "with `min` below `count` makes it elastic. `deepspeed` and `accelerate launch` run on "
        "one member; over several give the script itself. DeepSpeed's hostfile is "
        "`WINDLASS_HOSTFILE`. On CPUs, import `torch.distributed.nn` before the group is made and "
        "drop the model before it is destroyed, as the example does: else gloo's threads outlive "
        "the group, and on a busy machine may abort a rank after its last line.",
        "torch 2.13: DDP, torchrun on two members, elastic restart",
        example="pytorch-ddp",
        commands={"each rank": ("python", "train.py"), "torchrun": ("torchrun", "train.py")},
    ),
    "tensorflow": About(
        "TF_CONFIG, as MultiWorkerMirroredStrategy (workers alone) and ParameterServerStrategy "
        "(chief, workers, ps) read it. A gang of one process gets none. Keras 3 cannot `fit` "
        "under these strategies: where `tf_keras` is installed a gang gets "
        "TF_USE_LEGACY_KERAS=1, and the job's events say so.",
        "TensorFlow 2.21 with tf_keras: two mirrored workers; chief, two workers and a ps",
        roles={"chief": 1, "worker": 1, "ps": 1},
        example="tensorflow",
    ),
    "tensorflow1": About(
        "As `tensorflow`; besides, the script's own `import tensorflow as tf` gives it "
        "`tensorflow.compat.v1`, so that `tf.placeholder` and `tf.Session` are there.",
        "TensorFlow 2.21: a linear regression of y = 2x + 10",
        roles={"chief": 1, "worker": 1, "ps": 1},
        example="tensorflow1",
    ),
    "keras": About(
        "Keras 3 on torch, TensorFlow or JAX: the launch variables of all three are set, since "
        "the script may choose its backend itself.",
        "Keras 3.15 on torch",
        example="keras",
    ),
    "horovod": About(
        "`hvd.init()` finds its peers over Gloo: no ssh, no MPI. Give the script itself, not "
        "`horovodrun`.",
        "Horovod 0.28.1, patched for C++17 (`make test-frameworks`)",
        example="horovod",
    ),
    "mpi": About(
        "`mpirun` of Open MPI, MPICH or Intel MPI finds a hostfile and reaches the other members "
        "through their workers: no sshd. A Python script is put behind `mpirun` by itself.",
        "Open MPI 4.1 over two nodes; of MPICH and Intel MPI the environment only",
        example="mpi",
        commands={"": ("mpirun", "python", "train.py")},
    ),
    "mxnet": About(
        "MXNet and others on ps-lite: `mx.kv.create('dist_sync')`. Scheduler, servers and workers "
        "run the same script. A single worker gets no variables. PORT may not be set by the job: "
        "ps-lite would take it for its own.",
        "MXNet 1.9.1, its last release, with numpy 1.23.5",
        roles={"scheduler": 1, "server": 1, "worker": 2},
        example="mxnet",
    ),
    "xgboost": About(
        "XGBoost (2.1 or newer) reads arguments, not variables: rank 0 starts a RabitTracker with "
        "these, every rank enters a CommunicatorContext. "
        "`with windlass.job.collective.xgboost():` does both. Rabit of before 2.1 reads the "
        "variables itself.",
        "XGBoost 3.2: two workers, one model",
        example="xgboost",
    ),
    "lightgbm": About(
        "LightGBM reads parameters: `machines`, `num_machines`, `local_listen_port`. "
        "`windlass.job.collective.lightgbm_params()` makes them of these variables. WORKER_PORT "
        "is this process's own port; scripts that join WORKER_ADDRS with one port for all should "
        "use LIGHTGBM_MACHINES.",
        "LightGBM 4.7: two workers, one model",
        example="lightgbm",
    ),
    "jax": About(
        "Pass these to `jax.distributed.initialize`, of which JAX reads only the address by "
        "itself; `windlass.job.collective.jax()` does it. Where the job sets a proxy, "
        "`no_grpc_proxy` keeps it from between the processes.",
        "JAX 0.10: two processes over gloo",
        example="jax",
    ),
    "paddle": About(
        "`paddle.distributed.init_parallel_env()` finds its peers, as below Paddle's launcher; "
        "or give the launcher itself. With a role `server` the ranks are those of a parameter "
        "server job. The launcher's elastic mode, which needs etcd, is not offered.",
        "PaddlePaddle 3.3: two workers, and two launchers; of the parameter server only the "
        "environment",
        example="paddle",
        commands={
            "each rank": ("python", "train.py"),
            "the launcher": ("python", "-m", "paddle.distributed.launch", "train.py"),
        },
    ),
    "sklearn": About(
        "A plain command. joblib and the libraries below it keep to the CPUs asked for (`cpus`).",
        "scikit-learn 1.9",
        roles={"worker": 1},
        example="sklearn",
    ),
    "spark": About(
        "`spark-submit` as a job of one member, the driver; its executors are the affair of the "
        "master that it names.",
        "PySpark 4.3, `local[2]` (`make test-frameworks`)",
        roles={"worker": 1},
        example="spark",
        commands={"": ("spark-submit", "pi.py")},
    ),
    "caffe": About(
        "A plain command. Caffe is no longer developed and cannot be installed today.",
        "the environment only",
        roles={"worker": 1},
    ),
    "chainer": About(
        "A plain command; ChainerMN scripts run under `framework: mpi`. Chainer is no longer "
        "developed.",
        "Chainer 7.8: one process",
        roles={"worker": 1},
        example="chainer",
    ),
    "cntk": About(
        "A plain command; distributed CNTK runs under `framework: mpi`. CNTK is no longer "
        "developed and cannot be installed today.",
        "the environment only",
        roles={"worker": 1},
    ),
    "theano": About(
        "A plain command, each rank with a compile folder of its own. Theano is no longer "
        "developed, and its last release does not import today.",
        "the environment only",
        roles={"worker": 1},
    ),
}

INTRODUCTION = """\
`--framework NAME`, or `framework: NAME` in a job file, says how the processes of a gang find each
other. Without it the command line guesses from the command and from what the script imports, and
says what it guessed and why. Where a gang could start in two ways (its script imports torch *and*
tensorflow, say) it asks for the flag instead.

Every rank also gets the [variables of every framework](environment.md). A job that sets a launch
variable itself is refused; those marked as settings it may set, and its value counts. `@files@` is
a folder of the rank's own.

Ports are chosen by the kernel and held by the worker. A framework that can listen on a held port
does so; for another the port is released just before the ranks start, and no other gang of the
server is given it meanwhile.

Ranks that share CPUs are told their share, or each would start a thread for every core:
GENERAL. It is what the role asks for (`cpus`), else what the node may use (its cores, or
the quota of its container) over the ranks of the gang that stand there, a whole number and at
least 1. A rank that has its machine to itself gets none of them and keeps all cores. All are
settings: a job that sets one of them (`-e OMP_NUM_THREADS=4`) has decided, and gets no other.

Where a member has more ranks than GPUs (`--nproc 4 --gpus 1`) they share them, and the framework
is told: `TF_FORCE_GPU_ALLOW_GROWTH`, `XLA_PYTHON_CLIENT_MEM_FRACTION`, `PYTORCH_CUDA_ALLOC_CONF`.
Several jobs do not share a GPU in this release.
"""
WORDS = {
    "all": "must end well",
    "first": "its member 0 decides the end",
    "never": "serves, and is ended with the others",
}


def page() -> str:
    names = sorted(registry.BUILT_IN)
    rows = [
        (f"[`{name}`](#{name})", _roles(registry.contract(name)), ABOUT[name].tried)
        for name in names
    ]
    summary = table(("framework", "roles", "tried with"), rows)
    general = ", ".join(code(name) for name in threads.GENERAL)
    introduction = INTRODUCTION.replace("GENERAL", general)
    return "\n".join(
        ["# Frameworks\n", introduction, summary, *(_section(name) for name in names)]
    )


def _section(name: str) -> str:
    contract, about = registry.contract(name), ABOUT[name]
    parts = [f"## {name}\n", about.expects + "\n"]
    if about.example:
        parts.append(f"Example: [examples/{about.example}](../../examples/{about.example}/).\n")
    if len(about.roles) > 1:
        rules = contract.finish(about.roles)
        parts.append(table(("role", "end"), [(code(r), WORDS[rules[r]]) for r in about.roles]))
    for heading, command in about.commands.items():
        gang = _gang(about.roles, command)
        parts.append(_shown(contract, gang, heading))
    if contract.threads:
        more = ", ".join(code(name) for name in contract.threads)
        parts.append(f"Where ranks share CPUs also {more}.\n")
    return "\n".join(parts)


def _shown(contract: Contract, gang: Gang, heading: str) -> str:
    """The environment of the gang's last worker."""
    member = max(gang.of_role("worker"), key=lambda each: each.index)
    place = places(contract, gang, member)[-1]
    environment = contract.environment(gang, place)
    files = contract.files(gang, place)
    sizes = ", ".join(f"{r}={len(gang.of_role(r))}" for r in dict.fromkeys(_roles_of(gang)))
    if not environment:
        return "It adds no variables.\n"
    who = f"{heading}: " if heading else ""
    settings = contract.settings()
    rows = [
        (code(name), code(value), "a setting" if name in settings else "")
        for name, value in sorted(environment.items())
    ]
    text = f"{who}`{member.name}` of a gang of `{sizes}`, each member on its own node:\n\n"
    text += table(("variable", "value", ""), rows)
    if files:
        names = ", ".join(code(name) for name in sorted(files))
        text += f"\nFiles: {names}.\n"
    return text


def _roles(contract: Contract) -> str:
    return ", ".join(code(role) for role in contract.roles) or "any"


def _roles_of(gang: Gang) -> list[str]:
    return [member.role for member in gang.ordered]


def _gang(roles: Mapping[str, int], command: tuple[str, ...]) -> Gang:
    names = [(role, index) for role, count in roles.items() for index in range(count)]
    members = tuple(
        Member(
            role, index, 1, f"node-{at}", f"10.0.0.{at}", (40000 + at,), command,
            ifname="eth0", service_port=50000 + at,
        )
        for at, (role, index) in enumerate(names, start=1)
    )  # fmt: skip
    return Gang("job", "name", 1, members)
