"""Builds the worker's zipapp: `python -m windlass.worker.pack OUT.pyz`, or `pack(path)`.

Deterministic: the same sources and the same Python give the same bytes. Compiled code for the
Python that packs lies beside the sources (zipimport compiles anew at every start otherwise, some
100 ms), nothing is compressed; another Python uses the sources. An unchanged file is left alone.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import sys
import zipfile
from typing import Dict

_NOT_SHIPPED = {"pack.py"}
_CARRIED = (
    "patterns/automaton.py", "patterns/groups.py", "patterns/steps.py",
    "patterns/tracebacks.py",
    "train/comm/gathering.py", "train/comm/wire.py",
)  # fmt: skip
"""Of other packages: standard library only, syntax of Python 3.8, as all that is shipped."""
_MAIN = """import sys
from windlass.worker.main import main
sys.exit(main(sys.argv[1:]))
"""


def pack(target: str) -> bool:
    """Write the zipapp; False when it was there already, the same to the byte."""
    content = archive()
    try:
        with open(target, "rb") as file:
            if file.read() == content:
                return False
    except OSError:
        pass
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    fresh = "%s.%d" % (target, os.getpid())
    with open(fresh, "wb") as file:
        file.write(content)
    os.chmod(fresh, 0o755)
    os.replace(fresh, target)
    return True


def archive() -> bytes:
    """The zipapp's bytes."""
    packed = io.BytesIO()
    packed.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_STORED) as found:
        for name, source in sorted(_sources().items()):
            _add(found, name[:-3] + ".pyc", _compiled(name, source))
            _add(found, name, source)
    return packed.getvalue()


def _sources() -> Dict[str, bytes]:
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(os.path.dirname(folder), "__init__.py"), encoding="utf-8") as file:
        version = next(line for line in file if line.startswith("__version__"))
    sources = {
        "__main__.py": _MAIN.encode(),
        # Only the version: the package's own face is not for the worker.
        "windlass/__init__.py": version.encode(),
    }
    for name in _CARRIED:
        with open(os.path.join(os.path.dirname(folder), name), "rb") as carried:
            sources["windlass/" + name] = carried.read()
        package = "windlass/" + os.path.dirname(name)
        while package != "windlass":
            sources.setdefault(package + "/__init__.py", b"")
            package = os.path.dirname(package)
    for inside, _, names in os.walk(folder):
        below = os.path.relpath(inside, folder).replace(os.sep, "/")
        for name in names:
            if name.endswith(".py") and name not in _NOT_SHIPPED:
                with open(os.path.join(inside, name), "rb") as source:
                    packed = os.path.normpath("windlass/worker/%s/%s" % (below, name))
                    sources[packed] = source.read()
    return sources


def _compiled(name: str, source: bytes) -> bytes:
    """A .pyc that is never checked against a time stamp: it lies beside its own source."""
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    flags = (0b01).to_bytes(4, "little")
    digest = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + flags + digest + marshal.dumps(code)


def _add(found: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o644 << 16
    found.writestr(entry, content)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m windlass.worker.pack OUT.pyz")
    pack(sys.argv[1])
