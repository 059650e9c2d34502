"""What the job was told to start from, laid at `start/` before its ranks run: each file's digest
is checked on the way, and one that differs refuses the launch.

A checkpoint that the writer of `windlass.job` made never changes, so its files are linked where
they lie on this machine and the job is not another user; anything else is copied, or fetched.
"""

from __future__ import annotations

import json
import os

from windlass.worker import beneath, bundle
from windlass.worker.launch import Launch, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from windlass.worker.isolation import Isolation
    from windlass.worker.server import Server

NOTICED = ".windlass"
_PIECE = 1 << 20


def laid(
    launch: Launch,
    isolation: Isolation,
    server: Server,
    told: Optional[Dict[str, Any]],
    resume: Optional[Dict[str, Any]],
) -> Dict[str, Any]:
    """`resume_from` and `start_from` as the ranks are to find them. The job's own checkpoint,
    once it has one, wins over the one that it was to resume from at first."""
    if not told or (told.get("resume") and resume is not None):
        return {"resume_from": resume, "start_from": None}
    try:
        path = _lay(launch, server, told)
    except OSError as err:
        raise Refused("what the job starts from cannot be laid out: %s" % err) from err
    isolation.give(launch.path("start"))
    if told.get("resume"):
        return {"resume_from": {"path": path, "step": told["step"]}, "start_from": None}
    return {"resume_from": resume, "start_from": path if os.path.isdir(path) else _top(launch)}


def _lay(launch: Launch, server: Server, told: Dict[str, Any]) -> str:
    top, name = _top(launch), told["name"]
    sealed = is_ours(name)
    inside = os.path.join(top, name) if sealed else top
    os.makedirs(inside, 0o700, exist_ok=True)
    root = os.open(inside, beneath.FOLDER)
    try:
        for entry in told["files"]:
            opened = _source(launch, server, told, entry)
            try:
                _place(root, entry, opened, sealed and launch.level == 0)
            finally:
                os.close(opened)
    finally:
        os.close(root)
    if told.get("step") is not None:
        _write_manifest(launch, told, top, sealed)
    return os.path.join(top, *name.split("/")) if name else top


def is_ours(name: str) -> bool:
    """Whether a checkpoint of this name was made by the writer of `windlass.job`."""
    words = name.split("-")
    return len(words) == 3 and words[0] == "step" and words[1].isdigit() and words[2].isdigit()


def _top(launch: Launch) -> str:
    return launch.path("start")


def _source(launch: Launch, server: Server, told: Dict[str, Any], entry: Dict[str, Any]) -> int:
    if told.get("root") is None:
        found = bundle.blob(launch, server, entry["digest"])
    else:
        near = beneath.opened(told["root"], entry["path"].split("/"))
        found = near if near is not None else bundle.fetch(launch, server, entry["digest"])
    return found


def _place(root: int, entry: Dict[str, Any], source: int, link: bool) -> None:
    from hashlib import sha256

    *folders, name = entry["path"].split("/")
    if any(part in ("", ".", "..") for part in (*folders, name)):
        raise Refused("what the job starts from has a file with the name %r" % entry["path"])
    folder = os.dup(root)
    target = -1
    try:
        for each in folders:
            try:
                os.mkdir(each, 0o700, dir_fd=folder)
            except FileExistsError:
                pass
            inner = os.open(each, beneath.FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        if not (link and _linked(source, name, folder)):
            target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
        digest, size = sha256(), 0
        while True:
            piece = os.pread(source, _PIECE, size)
            if not piece:
                break
            digest.update(piece)
            size += len(piece)
            view = memoryview(piece) if target >= 0 else memoryview(b"")
            while view:
                view = view[os.write(target, view) :]
    finally:
        os.close(folder)
        if target >= 0:
            os.close(target)
    if size != entry["bytes"] or digest.hexdigest() != entry["digest"]:
        raise Refused(
            "%s of what the job starts from is damaged: its digest differs" % entry["path"]
        )


def _linked(source: int, name: str, folder: int) -> bool:
    try:
        path = "/proc/self/fd/%d" % source
        os.link(path, name, dst_dir_fd=folder, follow_symlinks=True)
        return True
    except OSError:  # another file system, or none that links
        return False


def _write_manifest(launch: Launch, told: Dict[str, Any], top: str, sealed: bool) -> None:
    """As the writer would have, so that `windlass.resume_from` can check it once more."""
    name = told["name"]
    attempt = int(name.split("-")[2]) if sealed else 0
    manifest = {
        "api": 1,
        "job_id": launch.job_id,
        "attempt": attempt,
        "step": told["step"],
        "created_ms": 0,
        "files": told["files"],
        "digest": told["digest"],
        **({} if sealed else {"path": name}),
    }
    if sealed:
        path = os.path.join(top, name, "manifest.json")
    else:
        os.makedirs(os.path.join(top, NOTICED), 0o700, exist_ok=True)
        path = os.path.join(top, NOTICED, "step-%012d-000000.json" % told["step"])
    with open(path, "x") as file:
        file.write(json.dumps(manifest, indent=1))
