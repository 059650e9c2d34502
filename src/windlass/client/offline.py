"""Runs that were made where no server was (`./windlass-runs/…`), brought to one.

A folder has an id, and what of each spool the server has is known to the server: so a sync that
broke off goes on where it was, and one that is done again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.client.http import Http, path_of
from windlass.core.errors import InvalidInput, NotFound
from windlass.core.spools import line_of

BATCH_BYTES = 1 << 18
BATCH_LINES = 5000
QUIET_SECONDS = 60.0
"""A folder that nobody wrote to for so long is of a run that is over."""


@dataclass(frozen=True)
class Folder:
    """One run's folder."""

    path: Path
    id: str
    name: str
    started_ms: int
    ended_ms: int | None
    spools: tuple[tuple[int, Path], ...]


@dataclass(frozen=True)
class Brought:
    folder: Folder
    lines: int
    """That were new to the server."""


def folders(path: Path) -> list[Folder]:
    """The run's folder at this path, or those in it. Raises NotFound when there is none."""
    if not path.is_dir():
        raise NotFound(f"{path}: no such folder")
    found = [each for each in (_folder(path), *map(_folder, sorted(path.iterdir()))) if each]
    if not found:
        raise NotFound(
            f"{path}: no run in it",
            hint="a run's folder has spool-0.jsonl in it; they lie under ./windlass-runs",
        )
    return found


def bring(
    http: Http, folder: Folder, params: Mapping[str, Mapping[str, str]] | None = None
) -> Brought:
    """Send what the server does not have yet."""
    about: dict[str, Any] = {"name": folder.name[:250], "started_ms": folder.started_ms}
    where = path_of("runs", folder.id, "spool")
    lines = 0
    for rank, path in folder.spools:
        offset = _ask(http, where, {**about, "rank": rank})
        for begin, end, found in _batches(path, offset):
            body = {**about, "rank": rank, "offset": begin, "end": end, "lines": found}
            known = _ask(http, where, body)
            if known != end:
                raise InvalidInput(
                    f"{path}: the server has {known} bytes of it, and {end} were expected",
                    hint="another sync of the same folder is under way: try again",
                )
            lines += len(found)
    _ask(http, where, {**about, "params": params or {}, "ended_ms": folder.ended_ms})
    return Brought(folder, lines)


def _ask(http: Http, where: str, body: Mapping[str, Any]) -> int:
    return int(http.call("POST", where, body=body, repeatable=True)["offset"])


def _folder(path: Path) -> Folder | None:
    if not path.is_dir():
        return None
    spools = []
    for each in path.glob("spool-*.jsonl"):
        number = each.name[6:-6]
        if number.isdecimal():
            spools.append((int(number), each))
    if not spools:
        return None
    spools.sort()
    about = _about(path)
    touched = max(each.stat().st_mtime for _, each in spools)
    over = about.get("ended_ms") or (
        int(touched * 1000) if time.time() - touched > QUIET_SECONDS else None
    )
    return Folder(
        path=path,
        id=about.get("id") or _made_id(path, spools[0][1]),
        name=str(about.get("name") or path.name),
        started_ms=int(about.get("started_ms") or touched * 1000),
        ended_ms=over,
        spools=tuple(spools),
    )


def _about(path: Path) -> dict[str, Any]:
    try:
        found = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as err:
        raise InvalidInput(f"{path / 'run.json'}: {err}") from err
    if not isinstance(found, dict):
        raise InvalidInput(f"{path / 'run.json'}: an object (found {type(found).__name__})")
    return found


def _made_id(path: Path, spool: Path) -> str:
    """Of a folder that does not say who it is: made of its name and its first line."""
    with open(spool, "rb") as file:
        first = file.readline(4096)
    return hashlib.sha256(path.name.encode() + b"\n" + first).hexdigest()[:32]


def _batches(path: Path, offset: int) -> Iterator[tuple[int, int, list[Any]]]:
    """(begin, end, lines) from there on; what is behind the last whole line stays for later."""
    with open(path, "rb") as file:
        while True:
            file.seek(offset)
            text = file.read(BATCH_BYTES)
            end = text.rfind(b"\n") + 1
            if not end:
                return
            pieces = text[:end].split(b"\n")[:-1]
            if len(pieces) > BATCH_LINES:
                pieces = pieces[:BATCH_LINES]
                end = sum(len(piece) + 1 for piece in pieces)
            yield offset, offset + end, [line for line in map(line_of, pieces) if line is not None]
            offset += end
