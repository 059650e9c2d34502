"""How the state of an object becomes files of a checkpoint, and files its state again.

    torch      whatever has `state_dict` and holds tensors: `<name>.pt`, read back as weights only
    Keras      a model: `<name>.weights.h5`, with its optimiser's state
    plain      a dict (or the `state_dict` of anything else) of numbers, text, bytes, numpy arrays,
               lists and dicts: `<name>.json`, and a file for each array or piece of bytes

torch and numpy are imported only where the object is theirs. Nothing here opens a pickle that
could run code.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Dict, List, MutableMapping

_KERAS = ("keras", "tf_keras")
_PLAIN = (bool, int, float, str, type(None))


def check(name: str, thing: Any) -> None:
    """Raises TypeError, in words, for what has no state that could be put back."""
    if _is_keras(thing) or _has_state(thing) or isinstance(thing, MutableMapping):
        return
    raise TypeError(
        "checkpoint(%s=…): found %s; known are what has state_dict and load_state_dict (torch), a "
        "Keras model, and a dict of numbers, text, bytes and numpy arrays. For anything else give "
        "functions: checkpoint(save=…, load=…)" % (name, type(thing).__name__)
    )


def write(folder: Path, name: str, thing: Any) -> None:
    """Put the state of `thing` into files of `folder` that begin with `name`."""
    if _is_keras(thing):
        thing.save_weights(str(folder / (name + ".weights.h5")))
        return
    state = thing.state_dict() if _has_state(thing) else thing
    if _is_torch(thing) or _holds_tensors(state):
        torch = import_module("torch")
        torch.save(dict(state), str(folder / (name + ".pt")))
        return
    files: List[str] = []
    tree = _encoded(state, folder, name, files)
    (folder / (name + ".json")).write_text(json.dumps(tree), encoding="utf-8")


def read(folder: Path, name: str, thing: Any) -> None:
    """Put the state back into `thing`. Raises FileNotFoundError where the folder has none."""
    if _is_keras(thing):
        path = _there(folder / (name + ".weights.h5"))
        optimizer = getattr(thing, "optimizer", None)
        if optimizer is not None and getattr(optimizer, "built", None) is False:
            # Before its first step it has no variables that could be loaded.
            optimizer.build(thing.trainable_variables)
        thing.load_weights(str(path))
        return
    tensors = folder / (name + ".pt")
    if tensors.exists():
        torch = import_module("torch")
        state = torch.load(str(tensors), map_location="cpu", weights_only=True)
    else:
        text = _there(folder / (name + ".json")).read_text(encoding="utf-8")
        state = _decoded(json.loads(text), folder)
    if _has_state(thing):
        thing.load_state_dict(state)
    else:
        thing.clear()
        thing.update(state)


def _is_keras(thing: Any) -> bool:
    return any(
        base.__name__ == "Model" and _home(base) in (*_KERAS, "tensorflow")
        for base in type(thing).__mro__
    )


def _is_torch(thing: Any) -> bool:
    return any(_home(base) == "torch" for base in type(thing).__mro__)


def _home(kind: type) -> str:
    return str(kind.__module__).split(".")[0]


def _has_state(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(
        getattr(thing, "load_state_dict", None)
    )


def _holds_tensors(value: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, dict):
        return any(_holds_tensors(inner) for inner in value.values())
    return isinstance(value, (list, tuple)) and any(_holds_tensors(inner) for inner in value)


def _encoded(value: Any, folder: Path, name: str, files: List[str]) -> Any:
    """As JSON: plain values as they are, anything else as `{kind: what}`."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (bytes, bytearray)):
        path = _next(name, files, ".bin")
        (folder / path).write_bytes(value)
        return {"bytes": path}
    if isinstance(value, (dict, MutableMapping)):
        pairs = [[_key(key), _encoded(each, folder, name, files)] for key, each in value.items()]
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encoded(each, folder, name, files) for each in value]}
    if _home(type(value)) == "numpy":
        numpy = import_module("numpy")
        path = _next(name, files, ".npy")
        numpy.save(str(folder / path), numpy.asarray(value), allow_pickle=False)
        return {"array": path}
    raise TypeError(
        "checkpoint(%s=…): it holds %s, which has no plain form; known are numbers, text, bytes, "
        "numpy arrays, lists and dicts" % (name, type(value).__name__)
    )


def _decoded(value: Any, folder: Path) -> Any:
    if not isinstance(value, dict):
        return value
    [(kind, what)] = value.items()
    if kind == "dict":
        found: Dict[Any, Any] = {key: _decoded(each, folder) for key, each in what}
        return found
    if kind in ("list", "tuple"):
        inner = [_decoded(each, folder) for each in what]
        return inner if kind == "list" else tuple(inner)
    path = folder / Path(what).name
    if kind == "bytes":
        return path.read_bytes()
    return import_module("numpy").load(str(path), allow_pickle=False)


def _key(key: Any) -> Any:
    if type(key) in (str, int):
        return key
    raise TypeError("a checkpoint's dict has text or whole numbers for keys, found %r" % (key,))


def _next(name: str, files: List[str], suffix: str) -> str:
    files.append("%s-%04d%s" % (name, len(files), suffix))
    return files[-1]


def _there(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError("the checkpoint %s has no %s" % (path.parent, path.name))
    return path
