"""Calls from the process that started a member to it, over the socket that it inherited.

Pickles, so it is a pair of sockets of parent and child and never a port. A function of the user's
script is found again by loading the script under another name than `__main__`; what stands under
`if __name__ == "__main__":` is not run. Where a script has no such line, loading it ends at its
first call of `fit`, when all that was passed to it has been defined.
"""

from __future__ import annotations

import importlib.util
import io
import pickle
import socket
import struct
import sys
import types
from pathlib import Path
from typing import Any

from windlass.core.errors import InvalidInput

_LENGTH = struct.Struct("<Q")
MAIN = "__mp_main__"  # the name that guards of other libraries know


class ReachedFit(BaseException):
    """Raised by `fit` while a member loads the user's script: far enough."""


def send(connection: socket.socket, message: Any) -> None:
    try:
        data = pickle.dumps(message, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError) as err:
        raise InvalidInput(
            f"this cannot be sent to the members: {err}",
            hint="define make() at the top level of a file; what it needs can be its arguments "
            "with functools.partial",
        ) from err
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """Raises EOFError when the other side is gone."""
    size = _LENGTH.unpack(_exactly(connection, _LENGTH.size))[0]
    return _Unpickler(io.BytesIO(_exactly(connection, size))).load()


def describe_main() -> dict[str, Any]:
    """How a member finds this process's script."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    path = getattr(main, "__file__", None)
    return {
        "module": spec.name if spec is not None and spec.name != "__main__" else None,
        "file": str(Path(path).resolve()) if path else None,
        "path": list(sys.path),
        "argv": list(sys.argv),
    }


def adopt_main(about: dict[str, Any]) -> None:
    """Be able to find what `about` describes; nothing is loaded before it is asked for."""
    global _main
    _main = about
    sys.path[:] = about["path"]
    sys.argv[:] = about["argv"]


def load_script(path: Path) -> types.ModuleType:
    """Another's script in the place of this process's own, for members to find. It is run up to
    its first call of `fit`, and not what stands under `if __name__ == "__main__":`."""
    sys.argv[:] = [str(path)]
    sys.path.insert(0, str(path.parent))
    _load_main({"module": None, "file": str(path)})
    module = sys.modules["__main__"]
    for value in vars(module).values():
        if isinstance(value, types.FunctionType | type) and value.__module__ == MAIN:
            value.__module__ = "__main__"  # the name under which members look for it
    return module


def is_loading() -> bool:
    return _loading


_main: dict[str, Any] | None = None
_loading = False
_loaded = False


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "__main__" and _main is not None and not _loaded:
            _load_main(_main)
        return super().find_class(module, name)


def _load_main(about: dict[str, Any]) -> None:
    global _loading, _loaded
    path = about["file"]
    if about["module"]:
        found = importlib.util.find_spec(about["module"])
        path = found.origin if found is not None else path
    if path is None or not Path(path).is_file():
        raise InvalidInput(
            "make() was defined where no file holds it (a notebook, an interactive session)",
            hint="write it into a file (%%writefile task.py) and import it from there",
        )
    module = types.ModuleType(MAIN)
    module.__file__ = path
    if about["module"]:
        module.__package__ = about["module"].rpartition(".")[0]
    sys.modules[MAIN] = sys.modules["__main__"] = module
    _loading = _loaded = True
    try:
        exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    except ReachedFit:
        pass
    finally:
        _loading = False


def _exactly(connection: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view, got = memoryview(buffer), 0
    while got < size:
        count = connection.recv_into(view[got:])
        if not count:
            raise EOFError("the other side is gone")
        got += count
    return bytes(buffer)
