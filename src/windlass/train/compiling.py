"""torch.compile for a task's model: in place, or in words why it would do nothing for it here."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from windlass.train.strategy import Strategy

_OLDEST_GPU = (7, 0)
_NEWEST_PYTHON = (3, 14)


def why_not(model: nn.Module, strategy: Strategy, device: torch.device) -> str | None:
    """None: compile it."""
    if strategy.places_model:
        return f"{strategy.name} runs parts of a model, and those run as they are"
    if type(model).compile is not nn.Module.compile:  # as Keras models have: it is not torch's
        return f"{type(model).__name__} has a compile() of its own, so it runs as it is"
    if sys.version_info[:2] > _NEWEST_PYTHON:
        return "torch does not know this Python yet, so the model runs as it is"
    if device.type == "cuda":
        if torch.cuda.get_device_capability(device) < _OLDEST_GPU:
            return f"{torch.cuda.get_device_name(device)} is too old for it; the model runs as is"
        return None
    # What torch's compiler for CPUs calls, and what it includes.
    compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        return f"there is no C++ compiler ({compiler}), so the model runs as it is"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "Python's C headers are not here (python3-dev), so the model runs as it is"
    return None


def compile_in_place(model: nn.Module) -> None:
    """As `model.compile()`, which does nothing for a model of torch's own classes, such as
    nn.Sequential: the compiler does not look into torch's frames, so it gets one of ours."""
    plain: Callable[..., Any] = model._call_impl

    def call(*arguments: Any, **options: Any) -> Any:
        return plain(*arguments, **options)

    model._compiled_call_impl = torch.compile(call)
