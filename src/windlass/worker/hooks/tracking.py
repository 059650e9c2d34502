"""Taps the frameworks that a script logs to anyway, once it imports them: their numbers go into
the job's spool too. `metrics: {pickup: false}` in the job file leaves this out.

    torch.utils.tensorboard, tensorboardX   SummaryWriter.add_scalar, add_scalars
    Keras 2 and 3                           the logs at each epoch's end
    Transformers                            Trainer.log
    Lightning                               what its loggers are given

It runs in the job's own Python, where nothing of Windlass need be installed. What fails here is
left out: a tap must never be felt.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Optional

_path = ""
_rank: Dict[str, int] = {}


def _tell(source: str, step: Any, values: Dict[str, Any]) -> None:
    """One line of the spool, one write; never an exception."""
    try:
        numbers = {str(key): _number(value) for key, value in values.items()}
        numbers = {key: value for key, value in numbers.items() if value is not None}
        if not numbers:
            return
        line: Dict[str, Any] = {
            "t": int(time.time() * 1000),
            "kind": "metric",
            "step": int(step or 0),
            "values": numbers,
            "source": source,
            "hook": True,
        }
        line.update(_rank)
        text = json.dumps(line, separators=(",", ":")) + "\n"
        opened = os.open(_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(opened, text.encode("ascii"))
        finally:
            os.close(opened)
    except Exception:
        pass


def _number(value: Any) -> Any:
    try:
        if isinstance(value, (str, bytes)):
            return None
        number = float(value.item() if hasattr(value, "item") else value)
    except Exception:
        return None
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")


def _tap(owner: Any, name: str, listen: Callable[..., None]) -> None:
    """Call `listen` with the same arguments after the method, whatever it gives."""
    method = getattr(owner, name, None)
    if method is None or getattr(method, "_windlass", False):
        return

    def tapped(self: Any, *words: Any, **named: Any) -> Any:
        result = method(self, *words, **named)
        try:
            listen(self, *words, **named)
        except Exception:
            pass
        return result

    tapped.__name__ = getattr(method, "__name__", name)
    tapped.__qualname__ = getattr(method, "__qualname__", name)
    tapped.__doc__ = getattr(method, "__doc__", None)
    tapped.__wrapped__ = method  # type: ignore[attr-defined]
    tapped._windlass = True  # type: ignore[attr-defined]
    setattr(owner, name, tapped)


def _summary_writer(module: Any) -> None:
    steps: Dict[str, int] = {}

    def scalar(
        self: Any, tag: str, scalar_value: Any, global_step: Any = None, *_: Any, **__: Any
    ) -> None:
        step = steps.get(tag, -1) + 1 if global_step is None else int(global_step)
        steps[tag] = step
        _tell("SummaryWriter", step, {tag: scalar_value})

    def scalars(
        self: Any,
        main_tag: str,
        tag_scalar_dict: Dict[str, Any],
        global_step: Any = None,
        *_: Any,
        **__: Any,
    ) -> None:
        for name, value in tag_scalar_dict.items():
            scalar(self, "%s/%s" % (main_tag, name), value, global_step)

    _tap(module.SummaryWriter, "add_scalar", scalar)
    _tap(module.SummaryWriter, "add_scalars", scalars)


def _keras(module: Any) -> None:
    def epoch_end(self: Any, epoch: int, logs: Any = None) -> None:
        if logs:
            _tell("keras", epoch, dict(logs))

    _tap(module.CallbackList, "on_epoch_end", epoch_end)


def _transformers(module: Any) -> None:
    def log(self: Any, logs: Dict[str, Any], *_: Any, **__: Any) -> None:
        if self.is_world_process_zero():
            _tell("transformers", self.state.global_step, logs)

    _tap(module.Trainer, "log", log)


def _lightning(module: Any) -> None:
    def log_metrics(self: Any, metrics: Dict[str, Any], step: Any = None, *_: Any) -> None:
        values = dict(metrics)
        if step is None:
            step = values.get("step", self.trainer.global_step)
        values.pop("step", None)
        if getattr(self.trainer, "is_global_zero", True):
            _tell("lightning", _number(step), values)

    owner = getattr(module, "_LoggerConnector", None) or module.LoggerConnector
    _tap(owner, "log_metrics", log_metrics)


_CONNECTOR = "trainer.connectors.logger_connector.logger_connector"
_TAPS = {
    "torch.utils.tensorboard.writer": _summary_writer,
    "tensorboardX.writer": _summary_writer,
    "keras.src.callbacks.callback_list": _keras,
    "tf_keras.src.callbacks": _keras,
    "keras.src.callbacks": _keras,
    "transformers.trainer": _transformers,
    "lightning.pytorch." + _CONNECTOR: _lightning,
    "pytorch_lightning." + _CONNECTOR: _lightning,
}


class _Finder:
    """First in line, it lets the others find the module, and taps it when it has been run."""

    def find_spec(
        self, name: str, path: Optional[Iterable[str]] = None, target: Any = None
    ) -> Any:
        tap = _TAPS.get(name)
        if tap is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            found: Any = finder.find_spec(name, path, target)  # type: ignore[arg-type]
            if found is not None:
                if hasattr(found.loader, "exec_module"):
                    _run_then(found.loader, tap)
                return found
        return None


def _run_then(loader: Any, tap: Callable[[Any], None]) -> None:
    run = loader.exec_module

    def exec_module(module: Any) -> None:
        run(module)
        try:
            tap(module)
        except Exception:
            pass

    loader.exec_module = exec_module


def _listen() -> None:
    global _path
    folder, rank = os.environ.get("WINDLASS_RUN_DIR"), os.environ.get("WINDLASS_RANK", "0")
    if not folder or not rank.isdigit():
        return
    _path = os.path.join(folder, "spool-%s.jsonl" % rank)
    inner = os.environ.get("RANK", "")
    if os.environ.get("TORCHELASTIC_RUN_ID") and inner.isdigit() and inner != rank:
        _rank["rank"] = int(inner)
    sys.meta_path.insert(0, _Finder())


_listen()
