"""The user's code: a manifest and blobs by SHA-256, laid out in `work/`.

Own extractor: regular files only, names checked, every folder opened without following links,
bounds on count, size and depth. A blob comes from the server's own folder when it can be read
(same machine), else from the cache, else over HTTP into the cache; its digest is checked anyway.
"""

from __future__ import annotations

import json
import os

from windlass.worker import needs
from windlass.worker.launch import Launch, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from windlass.worker.server import Server

MAX_FILES = 100_000
MAX_BYTES = 16 * 2**30
MAX_DEPTH = 64
_PIECE = 1 << 20


def lay_out(launch: Launch, server: Server) -> None:
    """Fill `work/`, which must not exist. Raises Refused when the bundle is not as it should."""
    work = launch.path("work")
    os.mkdir(work, 0o700)
    if launch.here is not None:
        _stand(launch.here, launch.level)
    if launch.bundle is None:
        return
    files = _manifest(launch, server)
    _check(files)
    root = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for entry in files:
            opened = blob(launch, server, entry["digest"])
            try:
                _place(root, entry, opened)
            finally:
                os.close(opened)
    finally:
        os.close(root)
    # Where the user stands may be a folder of no files, and those do not travel.
    os.makedirs(launch.standing, 0o700, exist_ok=True)


def _stand(folder: str, level: int) -> None:
    """Raises Refused where the user's own folder cannot be worked in."""
    if level:
        refused = Refused(
            "it cannot run in %s: jobs of this server are users of their own there (isolation"
            " level %d)" % (folder, level)
        )
        refused.advice = "submit it without --here, or start the server with --isolation 0"
        raise refused
    if not os.path.isdir(folder):
        raise Refused("it cannot run in %s: there is no such folder on this machine" % folder)


def _manifest(launch: Launch, server: Server) -> List[Dict[str, Any]]:
    assert launch.bundle is not None
    for folder in (launch.blob_dir, launch.cache_dir):
        opened = _open_blob(folder, launch.bundle)
        if opened is not None:
            with open(opened, "rb") as file:
                text = file.read()
            if _digest(text) == launch.bundle:
                files: List[Dict[str, Any]] = json.loads(text)
                return files
    found: List[Dict[str, Any]] = server.call("GET", "/api/v1/worker/bundle")["files"]
    canonical = json.dumps(
        sorted(found, key=lambda entry: str(entry["path"])), sort_keys=True, separators=(",", ":")
    )
    if _digest(canonical.encode()) != launch.bundle:
        raise Refused("the bundle's manifest has not the digest that was launched")
    return found


def _check(files: List[Dict[str, Any]]) -> None:
    if len(files) > MAX_FILES:
        raise Refused("the bundle has %d files, more than %d" % (len(files), MAX_FILES))
    if sum(int(entry["size"]) for entry in files) > MAX_BYTES:
        raise Refused("the bundle is larger than %d bytes" % MAX_BYTES)
    for entry in files:
        path, digest = entry["path"], entry["digest"]
        parts = path.split("/")
        if (
            len(parts) > MAX_DEPTH
            or any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts)
            or "\0" in path
            or "\\" in path
        ):
            raise Refused("the bundle has a file with the name %r" % path)
        if len(digest) != 64 or digest.strip("0123456789abcdef"):
            raise Refused("the bundle has a file with the digest %r" % digest)


def _place(root: int, entry: Dict[str, Any], blob: int) -> None:
    """Copy one blob to its path, never through a link, and check it on the way."""
    *folders, name = entry["path"].split("/")
    folder = os.dup(root)
    try:
        for each in folders:
            try:
                os.mkdir(each, 0o700, dir_fd=folder)
            except FileExistsError:
                pass
            inner = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        mode = (int(entry.get("mode") or 0o600) & 0o700) | 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        target = os.open(name, flags, mode, dir_fd=folder)
    except OSError as err:
        if needs.of(err):
            raise  # the node's trouble: the same file can be written where there is room
        raise Refused("%s of the bundle cannot be written: %s" % (entry["path"], err)) from err
    finally:
        os.close(folder)
    digest, size = _hash(), 0
    try:
        while True:
            piece = os.read(blob, _PIECE)
            if not piece:
                break
            digest.update(piece)
            size += len(piece)
            view = memoryview(piece)
            while view:
                view = view[os.write(target, view) :]
    finally:
        os.close(target)
    if size != int(entry["size"]) or digest.hexdigest() != entry["digest"]:
        raise Refused("%s of the bundle is damaged: its digest differs" % entry["path"])


def blob(launch: Launch, server: Server, digest: str) -> int:
    """An open file with the blob."""
    for folder in (launch.blob_dir, launch.cache_dir):
        opened = _open_blob(folder, digest)
        if opened is not None:
            return opened
    return fetch(launch, server, digest)


def _open_blob(folder: Optional[str], digest: str) -> Optional[int]:
    if folder is None:
        return None
    for path in (os.path.join(folder, digest[:2], digest), os.path.join(folder, digest)):
        try:
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue
    return None


def fetch(launch: Launch, server: Server, digest: str) -> int:
    """Bring a blob into the cache: whole and true, or not at all."""
    folder = os.path.join(launch.cache_dir or launch.path("cache"), digest[:2])
    os.makedirs(folder, 0o700, exist_ok=True)
    fresh = os.path.join(folder, ".%s-%d-%s" % (digest, os.getpid(), launch.node))
    try:
        with open(fresh, "wb") as file:

            def restart() -> None:
                file.seek(0)
                file.truncate()

            path = "/api/v1/worker/blobs/" + digest
            server.call("GET", path, timeout=60, sink=file.write, restart=restart)
        with open(fresh, "rb") as fetched:
            found = _hash()
            for piece in iter(lambda: fetched.read(_PIECE), b""):
                found.update(piece)
        if found.hexdigest() != digest:
            raise Refused("the server sent a damaged blob %s" % digest)
        os.rename(fresh, os.path.join(folder, digest))
    finally:
        if os.path.exists(fresh):
            os.unlink(fresh)
    return os.open(os.path.join(folder, digest), os.O_RDONLY | os.O_NOFOLLOW)


def _digest(text: bytes) -> str:
    found = _hash()
    found.update(text)
    return str(found.hexdigest())


def _hash() -> Any:
    """SHA-256 without OpenSSL, which costs 3 MB of memory that code bundles do not earn back."""
    try:
        from _sha2 import sha256  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        try:
            from _sha256 import sha256  # type: ignore[import-not-found, no-redef, unused-ignore]
        except ImportError:
            from hashlib import sha256
    return sha256()
