"""Checkpoints on disk, as a starting attempt finds them: sweep, list, verify.

The writer is `windlass.job`; here we only read. A checkpoint is good when its manifest is whole
and every file has the size and digest that the manifest names. The manifest of a script's own
files lies beside them, in `.windlass/` (`noticing`).
"""

from __future__ import annotations

import json
import os

from windlass.worker.handed import NOTICED, is_ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple


def sweep(folder: str, attempt: int) -> None:
    """Remove what older attempts left half-written."""
    import shutil

    for name in _names(folder):
        words = name.split("-")
        if name.startswith(".tmp-") and len(words) >= 3 and words[1].isdigit():
            if int(words[1]) < attempt:
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def found(folder: str) -> List[Dict[str, Any]]:
    """What is there, newest first (by attempt, then step: what a dead attempt left behind never
    wins over its successor's); nothing is verified yet."""
    checkpoints = []
    for name in _names(folder):
        words = name.split("-")
        if len(words) != 3 or words[0] != "step":
            continue
        if not (words[1].isdigit() and words[2].isdigit()):
            continue
        path = os.path.join(folder, name)
        manifest = _manifest(path) or {}
        checkpoints.append(
            {
                "path": path,
                "step": int(words[1]),
                "attempt": int(words[2]),
                "digest": str(manifest.get("digest", "")),
            }
        )
    return sorted([*checkpoints, *_noticed(folder)], key=age, reverse=True)


def _noticed(folder: str) -> List[Dict[str, Any]]:
    """A script's own files that an earlier look found finished."""
    found = []
    for name in _names(os.path.join(folder, NOTICED)):
        manifest = _read(os.path.join(folder, NOTICED, name)) or {}
        try:
            found.append(
                {
                    "path": os.path.join(folder, *manifest["path"].split("/")),
                    "step": int(manifest["step"]),
                    "attempt": int(manifest["attempt"]),
                    "digest": str(manifest["digest"]),
                    "bytes": sum(int(entry["bytes"]) for entry in manifest["files"]),
                    "source": "files",
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return found


def fault_in(path: str, folder: Optional[str] = None) -> Optional[str]:
    """Why a checkpoint cannot be used; None when it is good."""
    from hashlib import sha256

    root, manifest = path, _manifest(path)
    if folder and not is_ours(os.path.basename(path)):
        root, manifest = folder, _manifest_beside(path, folder)
    if manifest is None:
        return "its manifest is missing or damaged"
    try:
        for entry in manifest["files"]:
            digest, size = sha256(), 0
            with open(os.path.join(root, entry["path"]), "rb") as file:
                while True:
                    piece = file.read(1 << 20)
                    if not piece:
                        break
                    digest.update(piece)
                    size += len(piece)
            if size != entry["bytes"]:
                return "%s has %d bytes, not %d" % (entry["path"], size, entry["bytes"])
            if digest.hexdigest() != entry["digest"]:
                return "the digest of %s differs" % entry["path"]
    except (OSError, KeyError, TypeError) as err:
        return "%s: %s" % (type(err).__name__, err)
    return None


def choose(
    wanted: Optional[Dict[str, Any]], folder: Optional[str]
) -> Tuple[Optional[Dict[str, Any]], List[Dict[str, str]]]:
    """(the checkpoint to resume from, notes on bad ones): the wanted one if it is good, else the
    newest good one that is not newer."""
    if wanted is None:
        return None, []
    notes: List[Dict[str, str]] = []
    tried = [wanted]
    if folder:
        tried += [
            each
            for each in found(folder)
            if age(each) <= age(wanted) and each["path"] != wanted["path"]
        ]
    for each in tried:
        fault = fault_in(each["path"], folder)
        if fault is None:
            return each, notes
        notes.append({"kind": "bad-checkpoint", "path": each["path"], "reason": fault})
    return None, notes


def age(checkpoint: Dict[str, Any]) -> Tuple[int, int]:
    """(attempt, step); from the name where that tells, since it cannot be wrong."""
    name = os.path.basename(checkpoint["path"])
    attempt = name.rpartition("-")[2] if is_ours(name) else checkpoint.get("attempt") or 0
    return int(attempt), checkpoint["step"]


def _manifest_beside(path: str, folder: str) -> Optional[Dict[str, Any]]:
    """Of a script's own files; of several the newest."""
    relative = os.path.relpath(path, folder).replace(os.sep, "/")
    for name in sorted(_names(os.path.join(folder, NOTICED)), key=_age_in_name, reverse=True):
        manifest = _read(os.path.join(folder, NOTICED, name))
        if manifest is not None and manifest.get("path") == relative:
            return manifest
    return None


def _age_in_name(name: str) -> Tuple[str, str]:
    words = name.split("-")
    return (words[2], words[1]) if len(words) > 2 else ("", "")


def _manifest(path: str) -> Optional[Dict[str, Any]]:
    return _read(os.path.join(path, "manifest.json"))


def _read(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            manifest = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
