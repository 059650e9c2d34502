"""docs/reference/plug-ins.md: the kinds of plug-ins, and those that come with Windlass."""

from __future__ import annotations

from docs.writers.markdown import code, sentence, table
from windlass.contracts import registry as frameworks
from windlass.contracts.base import Contract
from windlass.engines import registry as engines
from windlass.engines.base import Engine
from windlass.train import registry as strategies
from windlass.train.strategy import Strategy

FRAMEWORKS = {
    "python": "a plain command in any language: the neutral variables, no more",
    "pytorch": "`env://` for each rank, or `PET_*` when the command is torchrun itself",
    "tensorflow": "TF_CONFIG for workers alone, or chief, workers, parameter servers, evaluator",
    "tensorflow1": "the same, and `tensorflow.compat.v1` for the script's `import tensorflow`",
    "keras": "Keras 3: the launch variables of all its backends at once",
    "caffe": "a plain command with its documented environment",
    "chainer": "a plain command with its documented environment",
    "cntk": "a plain command",
    "theano": "a plain command with its documented environment",
    "jax": "coordinator, count and id for `jax.distributed.initialize`",
    "lightgbm": "the list of machines, as variables and as a file",
    "mxnet": "ps-lite: scheduler, servers and workers find each other by DMLC_*",
    "paddle": "what Paddle's launcher gives each trainer, or what the launcher itself reads",
    "sklearn": "a plain command that keeps to its CPUs",
    "spark": "`spark-submit` as a job of one member",
    "xgboost": "the tracker's address, and a task id for each process",
    "horovod": "Gloo, with a key-value store that a worker serves: no ssh, no MPI",
    "mpi": "a hostfile, and our workers as the remote shell: no sshd",
}
ENGINES = {
    "kubernetes": "a Kubernetes cluster: a gang is a pod for each node, made directly",
    "local": "processes of this machine, one worker for each node of a gang",
    "ray": "a Ray cluster: a gang is one placement group with an actor for each node",
    "slurm": "a Slurm cluster: a gang is one batch job with a step for each node",
}


def page() -> str:
    return "\n".join(
        [
            "# Plug-ins\n",
            "A plug-in is an entry point of an installed package. Ours come through the same "
            "door; an unknown name is answered with the known ones.\n",
            f"## Frameworks: `{frameworks.GROUP}`\n",
            "A framework contract says what each rank finds in its environment. It is a class "
            "without arguments that has:\n",
            _members(Contract),
            _known(frameworks.BUILT_IN, FRAMEWORKS),
            "How to write one: [CONTRIBUTING](../../CONTRIBUTING.md#a-framework-contract).\n",
            f"## Engines: `{engines.GROUP}`\n",
            "An engine starts, watches and ends the workers of an attempt. It is a class that "
            "has:\n",
            _members(Engine),
            _known(engines.BUILT_IN, ENGINES),
            "Every engine passes the suite in `windlass.testing.engines`. "
            "How to write one: [CONTRIBUTING](../../CONTRIBUTING.md#an-engine).\n",
            f"## Strategies: `{strategies.GROUP}`\n",
            "A strategy of `windlass.train` is a class of `windlass.train.Strategy`: its fields "
            "are its options, the first sentence of its docstring is its line in "
            "`strategies()`. It has:\n",
            _members(Strategy),
            "Those that come with Windlass: [strategies of training](strategies.md).\n",
        ]
    )


def _members(protocol: type[object]) -> str:
    rows = [
        (code(name), sentence(value.__doc__))
        for name, value in vars(protocol).items()
        if callable(value) and not name.startswith("_")
    ]
    return table(("method", "promise"), rows)


def _known(built_in: dict[str, str], words: dict[str, str]) -> str:
    rows = [(code(name), words[name], code(where)) for name, where in sorted(built_in.items())]
    return table(("comes with Windlass", "what it is", "where"), rows)
