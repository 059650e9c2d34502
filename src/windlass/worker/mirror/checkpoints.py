"""Checkpoints of a worker whose folder the server does not see: finished ones are sent, the one
to resume from is fetched. Files travel by their digests, in pieces, so that what was cut goes on.

Of those that wait the newest goes first, and no more than `keep` wait: where checkpoints come
faster than they can be sent, the older ones are let go. The local copies of those that were sent
are removed but for the last two; a script's own files are the script's.
"""

from __future__ import annotations

import json
import os
import shutil

from windlass.worker import beneath, checkpoints
from windlass.worker.handed import NOTICED, is_ours
from windlass.worker.launch import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    from windlass.worker.launch import Launch
    from windlass.worker.server import Server

PIECE_BYTES = 1 << 20
FETCH_BYTES = 8 << 20
KEPT_HERE = 2
TRIES = 3
_MAX_MANIFEST = 16 * 2**20
_ADDRESS = "/api/v1/worker/checkpoints"


class Outgoing:
    """Sends what this attempt has finished."""

    def __init__(self, launch: Launch, server: Server) -> None:
        self._launch = launch
        self._server = server
        self._done: Set[str] = set()
        """Names of manifests that were sent, or let go."""

    def stop(self) -> None:
        self._server.stop()

    def send_one(self) -> bool:
        """Send the newest that waits; False when there is none. Raises Fenced, Gone."""
        waiting = self._waiting()
        if not waiting:
            return False
        for name in waiting[max(1, self._launch.keep) :]:
            self._done.add(name)
        name = waiting[0]
        manifest = self._manifest(name)
        if manifest is not None:
            try:
                if not self._send(manifest):
                    print("checkpoint %s changed while it was sent" % name, flush=True)
            except Refused as err:
                print("the server has refused checkpoint %s: %s" % (name, err), flush=True)
        self._done.add(name)
        self._tidy()
        return True

    def _waiting(self) -> List[str]:
        """Newest first: the writer's own by their folders, a script's by their manifests."""
        folder = self._launch.checkpoint_dir
        if not folder:
            return []
        found = [(name, name) for name in _names(folder) if is_ours(name)]
        found += [
            (name[: -len(".json")], os.path.join(NOTICED, name))
            for name in _names(os.path.join(folder, NOTICED))
            if name.startswith("step-") and name.endswith(".json")
        ]
        ours = [(_age(stem), name) for stem, name in found if name not in self._done]
        mine = [each for each in ours if each[0][0] == self._launch.attempt]
        return [name for _, name in sorted(mine, reverse=True)]

    def _manifest(self, name: str) -> Optional[Dict[str, Any]]:
        folder = self._launch.checkpoint_dir or ""
        inner = [name, "manifest.json"] if is_ours(name) else name.split(os.sep)
        opened = beneath.opened(folder, inner)
        if opened is None:
            return None
        with open(opened, "rb") as file:
            text = file.read(_MAX_MANIFEST)
        try:
            found = json.loads(text)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def _send(self, manifest: Dict[str, Any]) -> bool:
        """False when its files are not, or not any more, what the manifest says."""
        body = {
            "attempt": self._launch.attempt, "node": self._launch.node, "manifest": manifest,
        }  # fmt: skip
        for _ in range(TRIES):
            answer = self._server.call("POST", _ADDRESS, body, timeout=900)
            if answer["kept"]:
                return True
            for part in answer["missing"]:
                if not self._send_part(manifest, part):
                    return False
        return bool(self._server.call("POST", _ADDRESS, body, timeout=900)["kept"])

    def _send_part(self, manifest: Dict[str, Any], part: Dict[str, Any]) -> bool:
        entry = next(each for each in manifest["files"] if each["digest"] == part["digest"])
        folder = self._launch.checkpoint_dir or ""
        root = []
        if "path" not in manifest:
            root = ["step-%012d-%06d" % (manifest["step"], manifest["attempt"])]
        opened = beneath.opened(folder, [*root, *entry["path"].split("/")])
        if opened is None:
            return False
        address = "%s/%s/%s?node=%s&bytes=%d" % (
            _ADDRESS, manifest["digest"], part["digest"], self._launch.node, part["bytes"],
        )  # fmt: skip
        try:
            offset = int(part["offset"])
            while offset < part["bytes"]:
                piece = os.pread(opened, min(PIECE_BYTES, part["bytes"] - offset), offset)
                if not piece:
                    return False
                path = "%s&offset=%d" % (address, offset)
                offset = int(self._server.call("PUT", path, data=piece, timeout=60)["bytes"])
        finally:
            os.close(opened)
        return True

    def _tidy(self) -> None:
        """The server has them; here the last two are enough."""
        folder = self._launch.checkpoint_dir or ""
        done = [name for name in self._done if is_ours(name)]
        for name in sorted(done, key=_age, reverse=True)[KEPT_HERE:]:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def fetched(
    launch: Launch, server: Server, wanted: Optional[Dict[str, Any]]
) -> Tuple[Optional[Dict[str, Any]], List[Dict[str, str]]]:
    """(the wanted checkpoint as it lies here now, notes on bad ones); of those that turn out to
    be bad the newest one before."""
    notes: List[Dict[str, str]] = []
    if wanted is None or not launch.checkpoint_dir or not launch.checkpoint_home:
        return None, notes
    age = checkpoints.age(wanted)
    for found in server.call("GET", _ADDRESS)["items"]:
        if (found["attempt"], found["step"]) > age:
            continue
        try:
            detail = server.call("GET", "%s/%s" % (_ADDRESS, found["digest"]))
            _lay(launch, server, detail)
        except Refused as err:
            path = "%s/%s" % (launch.checkpoint_home, found["path"])
            notes.append({"kind": "bad-checkpoint", "path": path, "reason": str(err)})
            continue
        path = os.path.join(launch.checkpoint_dir, *found["path"].split("/"))
        return {**found, "path": path}, notes
    return None, notes


def _lay(launch: Launch, server: Server, detail: Dict[str, Any]) -> None:
    """Raises Refused when a file does not come as it was kept."""
    folder = launch.checkpoint_dir or ""
    ours = is_ours(detail["path"])
    draft = os.path.join(folder, ".tmp-%d-0-fetch" % launch.attempt)
    shutil.rmtree(draft, ignore_errors=True)
    os.makedirs(draft, 0o700)
    for entry in detail["files"]:
        parts = entry["path"].split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise Refused("it has a file with the name %r" % entry["path"])
        target = os.path.join(draft, *parts)
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        _fetch(server, detail["digest"], entry, target)
    manifest = {
        "api": 1, "job_id": launch.job_id, "attempt": detail["attempt"], "step": detail["step"],
        "created_ms": 0, "files": detail["files"], "digest": detail["digest"],
        **({} if ours else {"path": detail["path"]}),
    }  # fmt: skip
    if ours:
        with open(os.path.join(draft, "manifest.json"), "w") as file:
            json.dump(manifest, file, indent=1)
        os.rename(draft, os.path.join(folder, detail["path"]))
        return
    for entry in detail["files"]:
        target = os.path.join(folder, *entry["path"].split("/"))
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        os.replace(os.path.join(draft, *entry["path"].split("/")), target)
    os.makedirs(os.path.join(folder, NOTICED), 0o700, exist_ok=True)
    from hashlib import sha256

    which = sha256(detail["path"].encode("utf-8", "surrogateescape")).hexdigest()[:8]
    name = "step-%012d-%06d-%s.json" % (detail["step"], detail["attempt"], which)
    with open(os.path.join(folder, NOTICED, name), "w") as file:
        json.dump(manifest, file, indent=1)
    shutil.rmtree(draft, ignore_errors=True)


def _fetch(server: Server, digest: str, entry: Dict[str, Any], target: str) -> None:
    from hashlib import sha256

    found, size = sha256(), 0
    with open(target, "wb") as file:
        while size < entry["bytes"]:
            begin = size

            def restart(begin: int = begin) -> None:
                file.seek(begin)
                file.truncate()

            path = "%s/%s/%s?offset=%d&limit=%d" % (
                _ADDRESS, digest, entry["digest"], size, FETCH_BYTES,
            )  # fmt: skip
            server.call("GET", path, timeout=60, sink=file.write, restart=restart)
            size = file.tell()
            if size == begin:
                break
    with open(target, "rb") as laid:
        for piece in iter(lambda: laid.read(PIECE_BYTES), b""):
            found.update(piece)
    if size != entry["bytes"] or found.hexdigest() != entry["digest"]:
        raise Refused("the digest of %s differs" % entry["path"])


def _age(name: str) -> Tuple[int, int]:
    """(attempt, step) of `step-STEP-ATTEMPT…`."""
    words = os.path.basename(name).split("-")
    try:
        return int(words[2]), int(words[1])
    except (IndexError, ValueError):
        return 0, 0


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
