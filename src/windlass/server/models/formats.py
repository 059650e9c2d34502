"""What a model's files are, told by their names and first bytes. Nothing is ever opened.

A pickle is a program: it is flagged, also when its name says something else. Readers of formats
that hold one inside (torch's zip files, arrays of objects) would run it, so these count too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from windlass.server.artifacts.service import File

HEAD_BYTES = 512
_PICKLES = frozenset(
    {".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle", ".pt", ".pth", ".ckpt", ".mar"}
)
_BY_SUFFIX = {
    ".safetensors": "safetensors", ".onnx": "onnx", ".gguf": "gguf", ".keras": "keras",
    ".h5": "keras", ".hdf5": "keras", ".tflite": "tflite", ".skops": "skops", ".npz": "numpy",
    ".npy": "numpy", ".ubj": "xgboost", ".xgb": "xgboost", ".cbm": "catboost",
    ".pdparams": "paddle", ".msgpack": "flax", ".params": "mxnet", ".mlmodel": "coreml",
    ".pt": "torch", ".pth": "torch", ".ckpt": "torch", ".mar": "torch", ".joblib": "joblib",
    ".pkl": "pickle", ".pickle": "pickle", ".dill": "pickle", ".cloudpickle": "pickle",
}  # fmt: skip
_BY_NAME = {
    "saved_model.pb": "tensorflow", "MLmodel": "mlflow", "pytorch_model.bin": "torch",
    "config.json": "",
}  # fmt: skip
_MAX_WORDS = 40


def describe(files: Sequence[File], head: Callable[[File], bytes]) -> tuple[str, tuple[str, ...]]:
    """The formats of a version's files, the most bytes first, and which of them are unsafe.
    `head` gives the first bytes of a file."""
    weights: dict[str, int] = {}
    unsafe = []
    for file in files:
        begins = head(file)
        word = _format(file.path, begins)
        if _runs_code(file.path, begins):
            unsafe.append(file.path)
            word = word or "pickle"
        if word:
            weights[word] = weights.get(word, 0) + file.size + 1
    words = sorted(weights, key=lambda word: (word == "mlflow", -weights[word], word))
    text = ""
    for word in words:
        longer = f"{text}, {word}" if text else word
        if len(longer) > _MAX_WORDS:
            break
        text = longer
    return text or "files", tuple(unsafe)


def _format(path: str, head: bytes) -> str:
    name = PurePosixPath(path).name
    if name in _BY_NAME:
        return _BY_NAME[name]
    if head[:4] == b"GGUF":
        return "gguf"
    if len(head) > 8 and head[8:9] == b"{" and b'"data_offsets"' in head:
        return "safetensors"
    if head[:4] == b"PK\x03\x04" and b"data.pkl" in head:
        return "torch"
    return _BY_SUFFIX.get(PurePosixPath(path).suffix.lower(), "")


def _runs_code(path: str, head: bytes) -> bool:
    if re.match(rb"\x80[\x02-\x05]", head):  # a pickle says its protocol first
        return True
    if head[:4] == b"PK\x03\x04":
        return (
            b".pkl" in head or PurePosixPath(path).suffix.lower() in _PICKLES
        )  # torch.save, TorchScript
    if head[:6] == b"\x93NUMPY" and b"|O" in head[:128]:
        return True
    return PurePosixPath(path).suffix.lower() in _PICKLES
