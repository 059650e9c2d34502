"""Gives `tensorflow.compat.v1`, without the behaviour of version 2, to a script that says
`import tensorflow as tf`.

Only the user's own code is told so. TensorFlow's modules, and all that is installed beside it,
go on to see the real package: an alias in `sys.modules` would break them, since `compat.v1` is no
package that `tensorflow.python` could be found in. So the import statement itself is watched, and
who says it decides.

    import tensorflow as tf              tensorflow.compat.v1
    from tensorflow import layers        tensorflow.compat.v1.layers
    from tensorflow.train import Saver   tensorflow.compat.v1.train.Saver
    from tensorflow.python import ops    as ever: not part of the API
    importlib.import_module(…)           as ever: it is no import statement
"""

from __future__ import annotations

import builtins
import os
import sys
import sysconfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional, Sequence

_NAME = "tensorflow"
_AS_EVER = ("python", "core", "compat", "_api", "contrib", "examples")

_import = builtins.__import__
_libraries = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in {sysconfig.get_path(each) for each in ("stdlib", "purelib", "platlib")}
    if folder
)
_found: Dict[str, Any] = {}


def _is_users(caller: Optional[Mapping[str, Any]]) -> bool:
    """Whether a module's globals are of code that is not installed: the job's own."""
    file = caller.get("__file__") if caller else None
    if not isinstance(file, str):
        name = caller.get("__name__") if caller else None
        return name == "__main__"
    if "site-packages" in file or "dist-packages" in file:
        return False
    return not os.path.realpath(file).startswith(_libraries)


def _version1(real: Any) -> Any:
    """`compat.v1` of the real package; the package itself where it has none (before 1.13)."""
    if "it" not in _found:
        found = getattr(getattr(real, "compat", None), "v1", None)
        if found is not None and hasattr(found, "disable_v2_behavior"):
            found.disable_v2_behavior()
        _found["it"] = real if found is None else found
    return _found["it"]


def _import_of_user(
    name: str,
    globals: Optional[Mapping[str, object]] = None,
    locals: Optional[Mapping[str, object]] = None,
    fromlist: Optional[Sequence[str]] = (),
    level: int = 0,
) -> Any:
    if level or name.partition(".")[0] != _NAME or not _is_users(globals):
        return _import(name, globals, locals, fromlist, level)
    below = name.split(".")[1:]
    if below and below[0] in _AS_EVER:
        real = _import(name, globals, locals, fromlist, level)
        return real if fromlist else _version1(sys.modules[_NAME])
    found = _version1(_import(_NAME))
    top = found
    for part in below:
        found = getattr(found, part, None)
    if found is None:
        # No part of version 1: let the import system say so, or find it.
        real = _import(name, globals, locals, fromlist, level)
        return real if fromlist else top
    return found if fromlist else top


builtins.__import__ = _import_of_user
