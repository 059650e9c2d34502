"""What frameworks are told anyway is tapped when they are imported, and nothing is felt of it.

The packages are small stand-ins with the modules, classes and signatures of the real ones: torch
2.13, tensorboardX 2.6, Keras 3.15, Transformers 5.22, Lightning 2.6. `tests/frameworks` has a real
one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_pickup_worker import lines, metrics
from test_worker_hooks import lay
from worker_lab import Lab

_CONNECTOR = "lightning/pytorch/trainer/connectors/logger_connector"
PACKAGES = {
    "torch/__init__.py": "",
    "torch/utils/__init__.py": "",
    "torch/utils/tensorboard/__init__.py": "from .writer import SummaryWriter\n",
    "torch/utils/tensorboard/writer.py": """
class SummaryWriter:
    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False,
                   double_precision=False):
        "Add a scalar."
        if tag == "wrong": raise ValueError("as ever")
        return "as ever"
    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None): pass
""",
    "keras/__init__.py": "from keras.src.callbacks.callback_list import CallbackList\n",
    "keras/src/__init__.py": "",
    "keras/src/callbacks/__init__.py": (
        "from keras.src.callbacks.callback_list import CallbackList\n"
    ),
    "keras/src/callbacks/callback_list.py": """
class CallbackList:
    def on_epoch_end(self, epoch, logs=None): pass
""",
    "transformers/__init__.py": "",
    "transformers/trainer.py": """
class Trainer:
    class state: global_step = 12
    def is_world_process_zero(self): return True
    def log(self, logs, start_time=None): pass
""",
    "lightning/__init__.py": "",
    "lightning/pytorch/__init__.py": "",
    "lightning/pytorch/trainer/__init__.py": "",
    "lightning/pytorch/trainer/connectors/__init__.py": "",
    _CONNECTOR + "/__init__.py": "",
    _CONNECTOR + "/logger_connector.py": """
class _LoggerConnector:
    class trainer: global_step, is_global_zero = 5, True
    def log_metrics(self, metrics, step=None): pass
""",
}
SCRIPT = """
import json, sys
from torch.utils.tensorboard import SummaryWriter
class Tensor:
    def item(self): return 0.5
writer = SummaryWriter()
assert writer.add_scalar("loss", Tensor(), 3) == "as ever"
assert SummaryWriter.add_scalar.__doc__ == "Add a scalar."
try:
    writer.add_scalar("wrong", 1.0)
except ValueError as err:
    assert str(err) == "as ever"
writer.add_scalars("both", {"a": 1, "b": float("nan")}, global_step=4)
from keras import CallbackList
CallbackList().on_epoch_end(2, {"val_loss": 0.25, "what": "text"})
from transformers.trainer import Trainer
Trainer().log({"grad_norm": 2.0})
from lightning.pytorch.trainer.connectors.logger_connector.logger_connector import (
    _LoggerConnector as Connector,
)
Connector().log_metrics({"train_loss": 0.75, "step": 6})
print("epoch 9 val_loss=9.5 lone_loss=0.125")
assert "windlass" not in sys.modules
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    return {"PYTHONPATH": lay(tmp_path / "site-packages", PACKAGES)}


def run(lab: Lab, **changes: Any) -> None:
    worker = lab.worker(SCRIPT, **changes).start()
    assert worker.end()["outcome"] == "succeeded", worker.logs("worker-0-0.err")


def test_each_framework_is_tapped_and_wins_over_what_is_printed(
    lab: Lab, installed: dict[str, str]
) -> None:
    run(lab, vars=installed, pickup=True)
    assert metrics(lines(lab)) == [
        ("both/a", 4, 1.0, "SummaryWriter"),
        ("both/b", 4, "NaN", "SummaryWriter"),
        ("grad_norm", 12, 2.0, "transformers"),
        ("lone_loss", 9, 0.125, "stdout key=value"),
        ("loss", 3, 0.5, "SummaryWriter"),
        ("train_loss", 6, 0.75, "lightning"),
        ("val_loss", 2, 0.25, "keras"),
    ]


def test_without_pickup_nothing_is_tapped(lab: Lab, installed: dict[str, str]) -> None:
    run(lab, vars=installed)
    assert lines(lab) == []
