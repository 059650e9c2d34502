"""Checkpoints on disk, as a starting attempt finds them: sweep, list, verify.

The writer is `windlass.job`; here we only read. A checkpoint is good when its manifest is whole
and every file has the size and digest that the manifest names.
"""

from __future__ import annotations

import json
import os

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
    return sorted(checkpoints, key=_age, reverse=True)


def fault_in(path: str) -> Optional[str]:
    """Why a checkpoint cannot be used; None when it is good."""
    from hashlib import sha256

    manifest = _manifest(path)
    if manifest is None:
        return "its manifest is missing or damaged"
    try:
        for entry in manifest["files"]:
            digest, size = sha256(), 0
            with open(os.path.join(path, entry["path"]), "rb") as file:
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
            if _age(each) <= _age(wanted) and each["path"] != wanted["path"]
        ]
    for each in tried:
        fault = fault_in(each["path"])
        if fault is None:
            return each, notes
        notes.append({"kind": "bad-checkpoint", "path": each["path"], "reason": fault})
    return None, notes


def _age(checkpoint: Dict[str, Any]) -> Tuple[int, int]:
    """(attempt, step); from the folder's name, since the server's word has no attempt."""
    attempt = os.path.basename(checkpoint["path"]).rpartition("-")[2]
    return (int(attempt) if attempt.isdigit() else 0, checkpoint["step"])


def _manifest(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(os.path.join(path, "manifest.json"), "rb") as file:
            manifest = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
