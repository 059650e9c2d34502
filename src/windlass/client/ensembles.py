"""The files of trials, and several models as one version: what is on the server already does not
travel, only its name and digest do."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.client.fetching import fetch
from windlass.client.http import Http, path_of
from windlass.core.errors import Conflict, InvalidInput

Data = dict[str, Any]


def files_of(http: Http, run: str, folder: str = "") -> Iterator[Data]:
    """Every file of a job: `path`, `digest`, `size`."""
    query = {"path": folder} if folder else None
    for each in http.get(path_of("runs", run, "artifacts"), query)["items"]:
        if each["folder"]:
            yield from files_of(http, run, each["path"])
        else:
            yield {"path": each["path"], "digest": each["digest"], "size": each["size"]}


def bring(http: Http, run: str, file: Mapping[str, Any], target: Path) -> None:
    """One file of a job, checked against its digest."""
    address = path_of("runs", run, "artifacts") + path_of(*file["path"].split("/"))
    fetch(http, address, target, file["digest"], file["size"])


def register(
    http: Http,
    name: str,
    listed: Sequence[Mapping[str, Any]],
    written: Mapping[str, bytes],
    **about: Any,
) -> Data:
    """A version of files that are on the server (`listed`: path, digest, size) and of some that
    are sent now (`written`, by path). `about`: `description`, `tags`, `aliases`."""
    sent = {hashlib.sha256(text).hexdigest(): text for text in written.values()}
    files = [dict(each) for each in listed] + [
        {"path": path, "digest": hashlib.sha256(text).hexdigest(), "size": len(text)}
        for path, text in written.items()
    ]
    body = {"files": files, **{key: value for key, value in about.items() if value}}
    address = path_of("models", name, "versions")
    for _turn in range(3):
        try:
            found: Data = http.call("POST", address, body=body, repeatable=True)
            return found
        except Conflict as err:
            missing = err.details.get("missing")
            if not isinstance(missing, list):
                raise
            if gone := [digest for digest in missing if digest not in sent]:
                paths = sorted(each["path"] for each in listed if each["digest"] in gone)
                raise InvalidInput(f"the server no longer has the bytes of {paths[0]}") from err
        for digest in missing:
            _send(http, digest, sent[digest])
    raise InvalidInput("the server does not keep what it is sent: try again")


def _send(http: Http, digest: str, text: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "blob"
        file.write_bytes(text)
        http.put_file(path_of("blobs", digest), str(file), digest, len(text))
