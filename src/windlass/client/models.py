"""Models from the user's side: register what a job or a folder holds, move aliases, download.

A download is checked against the digests that the server names, goes on where it was cut, and
never opens what it brings.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.client.fetching import digest_of, fetch
from windlass.client.http import Http, path_of
from windlass.core.errors import Conflict, InvalidInput
from windlass.core.modelrefs import MAX_FILES, parse_ref
from windlass.core.paths import plain_path

_BLOCK = 2**20
"""So often in a row a download may be cut without one more byte."""

Data = dict[str, Any]


class Models:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> list[Data]:
        found: list[Data] = self._http.get("/models")["items"]
        return found

    def get(self, name: str) -> Data:
        """A model with its versions (`listed`) and who moved which alias when (`moves`)."""
        found: Data = self._http.get(path_of("models", name))
        return found

    def version(self, ref: str) -> Data:
        """The version that `NAME@ALIAS`, `NAME@3` or `NAME` (the newest) names."""
        name, which = parse_ref(ref)
        found: Data = self._http.get(path_of("models", name, "versions", which or "latest"))
        return found

    def register_run(self, name: str, run: str, path: str = "", **about: Any) -> Data:
        """A new version of what a job (or run) has as artefacts at `path`; all, without one.
        `about`: `description`, `tags`, `aliases`."""
        return self._register(name, {"run": run, "path": path, **_about(about)})

    def register_files(self, name: str, source: str | os.PathLike[str], **about: Any) -> Data:
        """A new version of a file, or of all files of a folder, sent from here."""
        found = dict(_scan(Path(source)))
        files: list[Data] = [
            {"path": path, "digest": digest_of(file), "size": file.stat().st_size}
            for path, file in found.items()
        ]
        body = {"files": files, **_about(about)}
        by_digest = {each["digest"]: each for each in files}
        for _turn in range(3):
            try:
                return self._register(name, body)
            except Conflict as err:
                missing = err.details.get("missing")
                if not isinstance(missing, list):
                    raise
            for digest in missing:
                file = by_digest[digest]
                local = str(found[file["path"]])
                self._http.put_file(path_of("blobs", digest), local, digest, file["size"])
        raise InvalidInput("the files change while they are sent: try again when they are at rest")

    def alias(self, name: str, version: int, alias: str) -> Data:
        """Put an alias (or a stage: Staging, Production, Archived, None) at a version."""
        path = path_of("models", name, "aliases", alias)
        found: Data = self._http.call("PUT", path, body={"version": version})
        return found

    def unalias(self, name: str, alias: str) -> None:
        path = path_of("models", name, "aliases", alias)
        self._http.call("DELETE", path, repeatable=False)

    def delete(self, name: str, version: str = "") -> None:
        """A version, or the model with all of them."""
        parts = ("models", name, "versions", version) if version else ("models", name)
        self._http.call("DELETE", path_of(*parts), repeatable=False)

    def download(self, ref: str, folder: str | os.PathLike[str]) -> Data:
        """All files of a version into a folder; what is there already and right is not sent
        again. The version, as `version` gives it."""
        found = self.version(ref)
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        number = str(found["version"])
        for file in found["listed"]:
            path = plain_path(file["path"])
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.parent.resolve().is_relative_to(root.resolve()):
                raise InvalidInput(f"{path} would lie outside {root}: a link is in its way")
            address = path_of("models", found["model"], "versions", number, "files")
            address += path_of(*path.split("/"))
            fetch(self._http, address, target, file["digest"], file["size"])
        return found

    def _register(self, name: str, body: Data) -> Data:
        path = path_of("models", name, "versions")
        found: Data = self._http.call("POST", path, body=body, repeatable=True)
        return found


def compare(one: Data, other: Data) -> Data:
    """What differs between two versions: fields, and files by path."""
    left = {file["path"]: file for file in one["listed"]}
    right = {file["path"]: file for file in other["listed"]}
    files = []
    for path in sorted({*left, *right}):
        before, after = left.get(path), right.get(path)
        if before is None:
            change = "added"
        elif after is None:
            change = "removed"
        else:
            change = "same" if before["digest"] == after["digest"] else "changed"
        sizes = [file["size"] if file else None for file in (before, after)]
        files.append({"path": path, "change": change, "before": sizes[0], "after": sizes[1]})
    fields = {
        name: [one[name], other[name]]
        for name in ("format", "bytes", "run", "job", "user", "description", "tags", "aliases")
        if one[name] != other[name]
    }
    names = [f"{each['model']}@{each['version']}" for each in (one, other)]
    same = one["digest"] == other["digest"]
    return {"versions": names, "same": same, "fields": fields, "files": files}


def _about(given: Mapping[str, Any]) -> Data:
    unknown = set(given) - {"description", "tags", "aliases"}
    if unknown:
        raise InvalidInput(f"no {', '.join(sorted(unknown))}: description, tags or aliases")
    return {name: value for name, value in given.items() if value}


def _scan(source: Path) -> Iterator[tuple[str, Path]]:
    """Regular files by their path in the folder; links are not followed."""
    if source.is_file():
        yield source.name, source
        return
    if not source.is_dir():
        raise InvalidInput(f"{str(source)!r} is neither a file nor a folder")
    count = 0
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in sorted(names):
            file = Path(folder) / name
            if not stat.S_ISREG(file.lstat().st_mode):
                continue
            count += 1
            if count > MAX_FILES:
                raise InvalidInput(f"{source} has more than {MAX_FILES} files")
            yield plain_path(file.relative_to(source).as_posix(), "file"), file
    if not count:
        raise InvalidInput(f"{source} holds no files")


def named(words: Sequence[str]) -> dict[str, str]:
    """Tags as they are written on a command line: KEY=VALUE."""
    found = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise InvalidInput(f"a tag is KEY=VALUE (found {word!r})")
        found[key] = value
    return found
