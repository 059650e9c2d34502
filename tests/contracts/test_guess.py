"""Guessing the framework: right, or with a question, never silently wrong."""

from __future__ import annotations

import pytest

from windlass.contracts.guess import Unsure, guess, script_of

TF1 = "import tensorflow as tf\nx = tf.placeholder(tf.float32)\nwith tf.Session() as s: pass"


@pytest.mark.parametrize(
    ("source", "framework", "why"),
    [
        ("import torch.nn as nn", "pytorch", "imports torch"),
        ("import lightning as L", "pytorch", "imports lightning"),
        ("import tensorflow as tf\ntf.function", "tensorflow", "imports tensorflow"),
        ("import tensorflow.compat.v1 as tf\ntf.Session", "tensorflow", "imports tensorflow"),
        (TF1, "tensorflow1", "uses tf.placeholder of TensorFlow 1"),
        ("import keras", "keras", "imports keras"),
        ("import keras\nimport torch", "keras", "imports keras"),
        ("import keras\nimport tensorflow", "tensorflow", "imports tensorflow"),
        ("import horovod.torch as hvd\nimport torch", "horovod", "imports horovod"),
        ("import torch\nimport horovod.torch as hvd", "horovod", "imports horovod"),
        ("from mpi4py import MPI", "mpi", "imports mpi4py"),
        ("import chainer, chainermn", "mpi", "imports chainermn"),
        ("import mxnet as mx", "mxnet", "imports mxnet"),
        ("import xgboost as xgb\nimport sklearn", "xgboost", "imports xgboost"),
        ("from lightgbm import train", "lightgbm", "imports lightgbm"),
        ("import jax.numpy as jnp\nimport flax", "jax", "imports jax"),
        ("import paddle.distributed as dist", "paddle", "imports paddle"),
        ("from pyspark.sql import SparkSession", "spark", "imports pyspark"),
        ("import caffe", "caffe", "imports caffe"),
        ("import theano.tensor as T", "theano", "imports theano"),
        ("import cntk as C", "cntk", "imports cntk"),
        ("import chainer", "chainer", "imports chainer"),
        ("from sklearn import svm", "sklearn", "imports sklearn"),
        ("from sklearn import svm\ndef f():\n import torch", "pytorch", "in one of its parts"),
        ("import numpy", "python", "no framework"),
        ("import torchmetrics", "python", "no framework"),
        ("from .torch import x", "python", "no framework"),
        ("def f():\n    from torch import nn", "pytorch", "imports torch in one of its parts"),
        ("try:\n import torch\nexcept ImportError: pass", "pytorch", "in one of its parts"),
        ("if TYPE_CHECKING:\n import torch\nimport jax", "jax", "imports jax"),
        ("if True:\n import torch", "pytorch", "imports torch"),
        ("print hello", "python", "cannot be parsed"),
        ("import windlass.train as wt", "pytorch", "windlass.train"),
        ("from windlass import train", "pytorch", "windlass.train"),
        ("from windlass.train import fit", "pytorch", "windlass.train"),
        ("import windlass", "python", "no framework"),
    ],
)
def test_a_gang_is_guessed_from_its_imports(source: str, framework: str, why: str) -> None:
    found = guess(["python", "t.py"], source, processes=2)
    assert found.framework == framework and why in found.why


def test_what_may_not_run_counts_less_than_what_must() -> None:
    source = "import torch\ndef export():\n    import tensorflow"
    assert guess(["python", "t.py"], source, processes=2).framework == "pytorch"


@pytest.mark.parametrize(
    ("source", "frameworks"),
    [
        ("import torch\nimport tensorflow as tf", ("pytorch", "tensorflow")),
        ("import xgboost\nimport torch", ("xgboost", "pytorch")),
        ("import xgboost, lightgbm", ("xgboost", "lightgbm")),
        ("import jax, tensorflow", ("jax", "tensorflow")),
        ("from mpi4py import MPI\nimport torch", ("mpi", "pytorch")),
        ("try:\n import torch\nexcept ImportError:\n import jax", ("pytorch", "jax")),
    ],
)
def test_a_gang_that_could_start_in_two_ways_is_a_question(
    source: str, frameworks: tuple[str, ...]
) -> None:
    with pytest.raises(Unsure) as raised:
        guess(["python", "t.py"], source, processes=2)
    assert raised.value.frameworks == frameworks
    for module in ("torch", "xgboost"):
        if f"import {module}" in source:
            assert f"imports {module}" in str(raised.value)
    alone = guess(["python", "t.py"], source)
    assert alone.framework == frameworks[0] and "a single process" in alone.why


@pytest.mark.parametrize(
    ("command", "framework"),
    [
        ("torchrun t.py", "pytorch"),
        ("/opt/bin/torchrun t.py", "pytorch"),
        ("python -m torch.distributed.run t.py", "pytorch"),
        ("deepspeed t.py", "pytorch"),
        ("accelerate launch t.py", "pytorch"),
        ("horovodrun -np 2 python t.py", "horovod"),
        ("mpirun -np 2 python t.py", "mpi"),
        ("mpiexec python t.py", "mpi"),
        ("spark-submit --master local[2] t.py", "spark"),
        ("python -m paddle.distributed.launch t.py", "paddle"),
        ("caffe train --solver=s.prototxt", "caffe"),
        ("./run.sh", "python"),
    ],
)
def test_a_launcher_settles_it(command: str, framework: str) -> None:
    assert guess(command.split(), None).framework == framework
    if framework != "python":
        both = "import torch\nimport tensorflow"
        assert guess(command.split(), both, processes=2).framework == framework


def test_the_modules_beside_the_script_are_followed_one_step() -> None:
    files = {
        ("model", 0): "import jax",
        ("pkg.net", 0): "import torch",
        ("near", 1): "import paddle",
        ("far", 0): "import further",
        ("further", 0): "import mxnet",
        ("broken", 0): "print hello",
    }

    def of(source: str) -> str:
        return guess(["t.py"], source, 2, lambda name, dots: files.get((name, dots))).framework

    assert of("import model") == "jax"
    assert of("from pkg import net") == "pytorch"
    assert of("from . import near") == "paddle"
    assert of("from .near import train") == "paddle"
    assert of("import far") == "python"
    assert of("import broken") == "python"
    assert of("import xgboost\nimport model") == "xgboost", "the script's own word comes first"
    reason = guess(["t.py"], "import model", 2, lambda name, dots: files.get((name, dots))).why
    assert reason == "the script imports model, which imports jax"


def test_the_script_is_the_first_word_that_is_one() -> None:
    assert script_of(["python", "-u", "src/train.py", "--config", "other.py"]) == "src/train.py"
    assert script_of(["sh", "run.sh"]) is None
