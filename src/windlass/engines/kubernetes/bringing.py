"""The worker comes into any image that has a Python as a ConfigMap, named by what is in it: all
pods of one release share it, and one of another release never changes under a pod that runs."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.engines.kubernetes.pods import labels_of

_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Worker:
    name: str
    file: str
    content: bytes

    def manifest(self, server: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "labels": labels_of(server)},
            "immutable": True,
            "binaryData": {self.file: base64.b64encode(self.content).decode()},
        }


def packed(path: Path) -> Worker:
    """Raises OSError, and ValueError where it is more than a ConfigMap holds. The zipapp at home
    is not packed tight, so that it starts fast; here it would be too big."""
    content = path.read_bytes()
    if zipfile.is_zipfile(path):
        content = _tight(content)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{path} has {len(content)} bytes, a ConfigMap holds {_MOST_BYTES}")
    digest = hashlib.sha256(content).hexdigest()
    return Worker(f"windlass-worker-{digest[:20]}", path.name, content)


def _tight(content: bytes) -> bytes:
    """The same files in the same order with the same dates, so that the digest is the same."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        for info in old.infolist():
            new.writestr(info, old.read(info), zipfile.ZIP_DEFLATED, 9)
    return made.getvalue()
