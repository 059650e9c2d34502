"""A job's folder of checkpoints on disk. User code writes there, and may register any path: what
does not lie below the folder is not ours, no link is followed, nothing is opened by a path that
the job could change meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.core.errors import InvalidInput, NotFound
from windlass.core.explain import found
from windlass.core.reports import CheckpointNote
from windlass.engines.removal import remove_tree
from windlass.server import failpoints

Entry = Mapping[str, Any]
OWN = re.compile(r"step-\d{12,}-\d{6,}")
"""What the writer of `windlass.job` calls them."""
NOTICED = ".windlass"
MAX_FILES = 20_000
MAX_DEPTH = 16
_MAX_MANIFEST = 16 * 2**20
_UNSAYABLE = re.compile("[\0\ud800-\udfff]")
"""What neither a database nor an answer takes: JSON can name half a surrogate pair."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def inside(folder: Path, path: str) -> tuple[str, ...] | None:
    """The parts of a checkpoint's path below the job's folder; None: it lies elsewhere."""
    try:
        parts = Path(path).relative_to(folder).parts
    except ValueError:
        return None
    return parts if parts and ".." not in parts and "\0" not in path else None


def place_in(job_id: str, path: str) -> tuple[str, ...] | None:
    """The parts of a checkpoint's path below its job's folder, whichever server's home that lies
    in, as a worker names it; None: it is not in that folder."""
    parts = tuple(path.split("/"))
    folder = ("jobs", job_id, "checkpoints")
    at = next((n for n in range(1, len(parts)) if parts[n : n + 3] == folder), None)
    if at is None or parts[0] != "":
        return None
    inner = parts[at + 3 :]
    plain = all(part not in ("", ".", "..") and part.isprintable() for part in inner)
    return inner if plain and 0 < len(inner) <= MAX_DEPTH else None


def demand_place(job_id: str, note: CheckpointNote) -> None:
    """Raises InvalidInput where a checkpoint does not lie where its job saves them. The name of
    one of our writer's says its step and attempt, so that none can stand before another."""
    inner = place_in(job_id, note.path)
    if inner is None:
        raise InvalidInput(
            f"path: below the job's folder of checkpoints, …/jobs/{job_id}/checkpoints "
            f"(found {found(note.path)})"
        )
    own = f"step-{note.step:012d}-{note.attempt:06d}"
    if note.source == "windlass" and inner != (own,):
        raise InvalidInput(f"path: of step {note.step}, {own} (found {found(note.path)})")
    if note.source == "files" and (inner[0] == NOTICED or OWN.fullmatch(inner[0])):
        raise InvalidInput(f"path: a script's own files (found {found(note.path)})")


def demand_files(folder: Path, job_id: str, note: CheckpointNote) -> None:
    """Raises InvalidInput where no finished checkpoint with this digest lies there."""
    demand_place(job_id, note)
    path = folder.joinpath(*(place_in(job_id, note.path) or ()))
    try:
        _, entries = manifest(folder, str(path))
    except NotFound as err:
        raise InvalidInput(f"path: {err.message}") from err
    listed = sorted(entries, key=lambda entry: str(entry["path"]))
    text = json.dumps(listed, sort_keys=True, separators=(",", ":"))
    if hashlib.sha256(text.encode()).hexdigest() != note.digest:
        raise InvalidInput(f"digest: not that of the files of {path.name}")


def manifest(folder: Path, path: str) -> tuple[Path, list[Entry]]:
    """(the folder that the files' paths begin at, the files) by the manifest of a checkpoint.
    Raises NotFound when it cannot be read: it is gone, or lies elsewhere."""
    parts = inside(folder, path)
    if parts is None:
        raise NotFound(f"the checkpoint {path} does not lie in its job's folder")
    if OWN.fullmatch(parts[0]) and len(parts) == 1:
        return folder / parts[0], _entries(folder, (*parts, "manifest.json"), None)
    for name in reversed(_names(folder / NOTICED)):
        try:
            return folder, _entries(folder, (NOTICED, name), "/".join(parts))
        except NotFound:
            continue
    raise NotFound(f"the checkpoint {path} is not there any more")


def open_inside(root: Path, parts: Sequence[str]) -> int:
    """A file below a folder, opened to read, no link followed. Raises NotFound."""
    opened = -1
    try:
        opened = os.open(root, _FOLDER)
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER, dir_fd=opened)
            os.close(opened)
            opened = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(parts[-1], flags, dir_fd=opened)
    except OSError as err:
        raise NotFound(f"{'/'.join(parts)} is not there any more") from err
    finally:
        if opened >= 0:
            os.close(opened)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotFound(f"{'/'.join(parts)} is no ordinary file")
    return file


def remove(folder: Path, path: str, attempt: int, step: int) -> None:
    """Remove one of the writer's checkpoints: it loses its name at once, then its files go. What
    an earlier call left is removed too. Raises OSError when something resists."""
    parts = inside(folder, path)
    if parts is None:
        return
    try:
        parent = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return
    try:
        prefix = f".tmp-{attempt}-{step}-rm-"
        if len(parts) == 1 and OWN.fullmatch(parts[0]):
            aside = prefix + secrets.token_hex(4)
            try:
                os.rename(parts[0], aside, src_dir_fd=parent, dst_dir_fd=parent)
            except FileNotFoundError:
                pass
        else:
            _remove_noticed(folder, parent, "/".join(parts))
        failpoints.passing("after-checkpoint-rename")
        for name in os.listdir(parent):
            if name.startswith(prefix):
                remove_tree(name, parent)
    finally:
        os.close(parent)


def link(root: Path, entries: Sequence[Entry], target: Path) -> None:
    """Another name for each file of a checkpoint below `target`, whole or not at all. For files
    whose first names are about to go."""
    if target.exists():
        return
    draft = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    draft.mkdir(parents=True, mode=0o700)
    try:
        for entry in entries:
            parts = str(entry["path"]).split("/")
            place = draft.joinpath(*parts)
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            opened = open_inside(root, parts)
            try:
                _name_again(opened, place)
            finally:
                os.close(opened)
        os.rename(draft, target)
    finally:
        if draft.exists():
            parent = os.open(draft.parent, _FOLDER)
            try:
                remove_tree(draft.name, parent)
            finally:
                os.close(parent)


def _name_again(opened: int, place: Path) -> None:
    parent = os.open(place.parent, _FOLDER)
    try:
        # By the open file, not by a path; a `dst_dir_fd` makes Python ask for what it leads to.
        os.link(f"/proc/self/fd/{opened}", place.name, dst_dir_fd=parent, follow_symlinks=True)
    except OSError:  # another file system, or one without links
        with open(place, "xb") as copy:
            at = 0
            while block := os.pread(opened, 1 << 20, at):
                copy.write(block)
                at += len(block)
    finally:
        os.close(parent)


def _remove_noticed(folder: Path, parent: int, relative: str) -> None:
    """A script's own files: first their manifest, so that they are no checkpoint any more."""
    try:
        noticed = os.open(NOTICED, _FOLDER, dir_fd=parent)
    except OSError:
        return
    try:
        for name in _names(folder / NOTICED):
            try:
                entries = _entries(folder, (NOTICED, name), relative)
            except NotFound:
                continue
            os.unlink(name, dir_fd=noticed)
            for entry in entries:
                unlink(folder, str(entry["path"]).split("/"))
    finally:
        os.close(noticed)


def unlink(folder: Path, parts: Sequence[str]) -> None:
    """Each step by the folder that is open, never by a path: a link that a job puts in place of a
    folder leads nowhere."""
    opened = [os.open(folder, _FOLDER)]
    try:
        for part in parts[:-1]:
            opened.append(os.open(part, _FOLDER, dir_fd=opened[-1]))
        os.unlink(parts[-1], dir_fd=opened[-1])
        # Its folder, once it is empty; never the job's own.
        if len(parts) > 1:
            os.rmdir(parts[-2], dir_fd=opened[-2])
    except OSError:
        pass
    finally:
        for each in opened:
            os.close(each)


def _entries(folder: Path, parts: Sequence[str], of_path: str | None) -> list[Entry]:
    opened = open_inside(folder, parts)
    with open(opened, "rb") as file:
        text = file.read(_MAX_MANIFEST + 1)
    try:
        told: Any = json.loads(text) if len(text) <= _MAX_MANIFEST else None
        if of_path is not None and told["path"] != of_path:
            raise NotFound("of another one")
        entries: list[Entry] = [
            {"path": str(each["path"]), "bytes": int(each["bytes"]), "digest": str(each["digest"])}
            for each in told["files"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as err:
        raise NotFound(f"{'/'.join(parts)} makes no sense") from err
    for entry in entries:
        names = str(entry["path"]).split("/")
        plain = all(name not in ("", ".", "..") for name in names)
        plain = plain and _UNSAYABLE.search(entry["path"]) is None
        if not plain or not re.fullmatch(r"[0-9a-f]{64}", str(entry["digest"])):
            raise NotFound(f"{'/'.join(parts)} names {entry['path']!a}, which is no file of its")
    if len(entries) > MAX_FILES:
        raise NotFound(f"{'/'.join(parts)} names more than {MAX_FILES} files")
    return entries


def _names(folder: Path) -> list[str]:
    try:
        opened = os.open(folder, _FOLDER)
    except OSError:
        return []
    try:
        return sorted(name for name in os.listdir(opened) if name.endswith(".json"))
    finally:
        os.close(opened)
