"""Start-up hooks of frameworks: what a contract names runs in a rank's Python before the script.

A file here is laid beside the worker's `sitecustomize` (`windlass.worker.hook`), which imports it
where the variable WINDLASS_HOOKS names it. Without that nothing is looked for.
"""

from __future__ import annotations

import os

from windlass.worker.launch import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence


def lay(folder: str, names: Sequence[str]) -> None:
    """Write the hooks into the folder of `sitecustomize`. Raises Refused for a hook that this
    worker does not have."""
    # Through the loader, since our own source may lie inside a zipapp.
    loader: Any = __spec__.loader
    here = os.path.dirname(os.path.abspath(__file__))
    for name in names:
        try:
            source = loader.get_data(os.path.join(here, os.path.basename(name) + ".py"))
        except OSError as err:
            raise Refused("this worker has no start-up hook %r" % name) from err
        with open(os.path.join(folder, "windlass_hook_%s.py" % name), "wb") as file:
            file.write(source)
            os.fchmod(file.fileno(), 0o644)
