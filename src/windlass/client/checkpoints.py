"""A job's checkpoints from the user's side: list, look, remove, bring home.

`which` is a step (of several attempts the newest), `STEP.ATTEMPT`, `latest`, or `best` where the
job says by which metric (`outputs.keep_best`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from windlass.client.fetching import fetch
from windlass.client.http import Http, path_of
from windlass.core.errors import InvalidInput

Data = dict[str, Any]


class Checkpoints:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, ref: str) -> Sequence[Data]:
        """Newest first: step, attempt, digest, bytes, the metrics at its step, who holds it."""
        return list(self._http.get(path_of("jobs", ref, "checkpoints"))["items"])

    def get(self, ref: str, which: str = "latest") -> Data:
        """One of them, with its `files`."""
        found: Data = self._http.get(path_of("jobs", ref, "checkpoints", which))
        return found

    def delete(self, ref: str, which: str) -> None:
        """Remove one. Raises Conflict while the job or another one needs it."""
        path = path_of("jobs", ref, "checkpoints", which)
        self._http.call("DELETE", path, repeatable=False)

    def download(
        self,
        ref: str,
        which: str,
        folder: str | os.PathLike[str],
        told: Callable[[Data], object] | None = None,
    ) -> Data:
        """All its files into a folder; what is there and right is not sent again. `told` hears of
        each file that is done. The checkpoint, as `get` gives it."""
        found = self.get(ref, which)
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        exact = f"{found['step']}.{found['attempt']}"  # a newer one may come meanwhile
        for file in found["files"]:
            parts = str(file["path"]).split("/")
            if any(part in ("", ".", "..") or os.sep in part for part in parts):
                raise InvalidInput(f"{file['path']!r} is not a plain path")
            target = root.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.parent.resolve().is_relative_to(root.resolve()):
                raise InvalidInput(
                    f"{file['path']} would lie outside {root}: a link is in its way"
                )
            address = path_of("jobs", ref, "checkpoints", exact, "files", *parts)
            fetch(self._http, address, target, file["digest"], file["bytes"])
            if told is not None:
                told(file)
        return found
