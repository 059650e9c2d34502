"""Which folder travels with a job, and where in it the command runs: where the user stands.

    ~/vision/                 the code: what is sent            --code ..   (else where he stands)
    ~/vision/data/
    ~/vision/mnist/           where he stands: the job runs in mnist/, and finds ../data
    ~/vision/mnist/main.py

With --here nothing travels: the job runs in that very folder, on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.cli import scripts
from windlass.core.errors import InvalidInput
from windlass.core.repositories import split

if TYPE_CHECKING:
    from windlass.cli.specs import Flags


@dataclass(frozen=True)
class Sent:
    folder: Path | None
    """The directory to send; None: none."""
    made: Mapping[str, bytes] = field(default_factory=dict)
    """By path in the code, files that lie nowhere."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """The same by the word of the command."""

    def standing(self, spec: Mapping[str, Any]) -> Path:
        """Where the command runs, as it is here."""
        code = spec.get("code") or {}
        if code.get("here"):
            return Path(code["here"])
        return (self.folder or Path.cwd()) / (code.get("workdir") or "")


def place(
    spec: dict[str, Any], flags: Flags, local: bool, start: Path, notices: list[str]
) -> Sent:
    """Fills in `code`, and the command's words as they hold where it runs. Raises InvalidInput
    naming the flag."""
    about, named = _source(spec, flags, start)
    if flags.here:
        return _in_place(spec, flags, local, start, notices)
    for name in ("include", "workdir"):
        given = getattr(flags, name)
        if given:
            about[name] = [*(about.get(name) or ()), *given] if name == "include" else given
    elsewhere = bool(about.get("git") or about.get("bundle"))
    nothing = flags.no_code or elsewhere or bool(about.get("here"))
    folder = None if nothing else Path(os.path.abspath(Path(named or start).expanduser()))
    if folder is not None and not folder.is_dir():
        raise InvalidInput(f"--code: {named!r} is not a directory")
    fixed, inside = bool(about.get("workdir")), None
    if fixed and not elsewhere:
        inside = _below(str(about.pop("workdir")), folder)
        about |= {"workdir": inside} if inside else {}
    _set(spec, about)
    if not flags.command:
        return Sent(folder)
    if folder is not None and not fixed:
        inside = _standing_in(folder)
    typed = _typed(list(spec["run"]), folder, inside, notices)
    words = typed.words
    at = _script_at(words)
    if typed.script:
        return _with_notebook(spec, typed, folder, inside or "")
    if at is not None and folder is not None:
        words[at], inside = _place(words[at], folder, inside, named, fixed)
    elif at is not None and flags.no_code and local:
        words[at] = _as_it_is(words[at])
    elif folder is not None and not named and folder == Path.home().absolute():
        folder = None  # a plain command typed at home: there is no code to send
    if folder is not None:
        _set(spec, {**about, **({"workdir": inside} if inside else {})})
    spec["run"] = words
    return Sent(folder)


def _source(
    spec: Mapping[str, Any], flags: Flags, start: Path
) -> tuple[dict[str, Any], str | None]:
    """The fields of `code`, and the directory that was named."""
    about = dict(spec.get("code") or {})
    in_file = about.pop("dir", None)
    named = flags.code or (str(start / in_file) if in_file else None)
    if flags.no_code and flags.code:
        raise InvalidInput("--code and --no-code exclude each other")
    if flags.git:
        if flags.no_code or flags.code or flags.package_path:
            raise InvalidInput(
                "--git and --code, --no-code, --package-path all say where the code comes from: "
                "give one"
            )
        return repository(flags.git), None
    if (flags.code or flags.no_code) and (about.get("git") or about.get("here")):
        return {}, named  # of the job file: the flag wins
    if about.get("git") and in_file:
        raise InvalidInput("code: `git` and `dir` both say where the code comes from: give one")
    return about, named


def _set(spec: dict[str, Any], about: Mapping[str, Any]) -> None:
    if about:
        spec["code"] = dict(about)
    else:
        spec.pop("code", None)


def repository(text: str) -> dict[str, Any]:
    """`URL#REF` as fields of `code`; the server says what is wrong with either."""
    url, ref = split(text)
    return {"git": url} if ref is None else {"git": url, "ref": ref}


# -- where it runs ---------------------------------------------------------------------------


def _in_place(
    spec: dict[str, Any], flags: Flags, local: bool, start: Path, notices: list[str]
) -> Sent:
    others = {
        "--code": flags.code, "--no-code": flags.no_code, "--git": flags.git,
        "--include": flags.include,
    }  # fmt: skip
    for flag, given in others.items():
        if given:
            raise InvalidInput(f"--here sends nothing, and {flag} says what to send: give one")
    engine = spec.get("engine") or "local"
    if engine != "local":
        raise InvalidInput(
            f"--here: engine {engine} runs on other machines, which do not see this folder",
            hint="leave --here out, and the folder is sent",
        )
    if not local:
        raise InvalidInput(
            "--here: the server is on another machine, which does not see this folder",
            hint="leave --here out, and the folder is sent",
        )
    folder = Path(os.path.abspath(start / (flags.workdir or "")))
    if not folder.is_dir():
        raise InvalidInput(f"--workdir: {flags.workdir!r} is not a directory here")
    spec["engine"], spec["code"] = "local", {"here": str(folder)}
    if flags.command:
        typed = _typed(list(spec["run"]), folder, "", notices)
        if typed.script:
            raise InvalidInput(
                "--here changes nothing in your folder; a notebook runs as a script made of it",
                hint="leave --here out, or: jupyter nbconvert --to script "
                + typed.words[1].removesuffix(".py"),
            )
        at = _script_at(typed.words)
        if at is not None and not (folder / typed.words[at]).is_file():
            raise InvalidInput(f"no such file: {typed.words[at]} (in {folder})")
        spec["run"] = typed.words
    return Sent(None)


def _typed(
    words: list[str], folder: Path | None, inside: str | None, notices: list[str]
) -> scripts.Typed:
    typed = scripts.read(words, (folder or Path.cwd()) / (inside or ""))
    notices += typed.notices
    return typed


def _with_notebook(
    spec: dict[str, Any], typed: scripts.Typed, folder: Path | None, inside: str
) -> Sent:
    if folder is None:
        raise InvalidInput("a notebook runs as a script made of it, which must be sent")
    word = next(word for word in typed.words if word.endswith(".ipynb.py"))
    path = os.path.normpath(os.path.join(inside, word)).replace(os.sep, "/")
    if path.startswith(("/", "..")):
        raise InvalidInput(f"{word.removesuffix('.py')} lies outside the code directory {folder}")
    if inside:
        _set(spec, {**(spec.get("code") or {}), "workdir": inside})
    spec["run"] = typed.words
    return Sent(folder, {path: typed.script.encode()}, {word: typed.script})


def _standing_in(folder: Path) -> str:
    """Where in the code the user stands; "": at its top, or elsewhere."""
    try:
        inside = Path.cwd().relative_to(folder).as_posix()
    except ValueError:
        return ""
    return "" if inside == "." else inside


def _below(workdir: str, folder: Path | None) -> str:
    """--workdir as a place in the code, from its top."""
    if folder is None:
        raise InvalidInput(
            f"--workdir {workdir}: of code that is sent, and none is", hint="or run it --here"
        )
    found = Path(os.path.normpath(folder / workdir))
    try:
        inside = found.relative_to(folder).as_posix()
    except ValueError:
        raise InvalidInput(f"--workdir: {workdir} lies outside the code {folder}") from None
    if not found.is_dir():
        raise InvalidInput(f"--workdir: {workdir} is not a directory in the code {folder}")
    return "" if inside == "." else inside


# -- the script ------------------------------------------------------------------------------


def _script_at(words: Sequence[str]) -> int | None:
    """Where the Python script stands: `python [-u …] script.py`, nothing cleverer."""
    if os.path.basename(words[0]).removesuffix(".exe") not in scripts.PYTHONS:
        return None
    for at, word in enumerate(words[1:], start=1):
        if word in ("-m", "-c"):
            return None
        if not word.startswith("-"):
            return at if word.endswith(".py") else None
    return None


def _as_it_is(script: str) -> str:
    here = Path(os.path.abspath(os.path.expanduser(script)))
    if not here.is_file():
        raise InvalidInput(f"no such file: {script} (in {Path.cwd()})")
    return str(here)


def _place(
    script: str, folder: Path, inside: str | None, named: str | None, fixed: bool
) -> tuple[str, str | None]:
    """The script's path from where the command runs, and where that is. One that lies only at the
    top of the named code is run there, unless --workdir says where."""
    standing = folder / (inside or "")
    relative = not os.path.isabs(os.path.expanduser(script))
    if relative and _is_within(standing / script, folder):
        return script, inside
    if relative and not fixed and _is_within(folder / script, folder):
        return script, None
    here = Path(os.path.abspath(os.path.expanduser(script)))
    if not here.is_file():
        raise InvalidInput(f"no such file: {script} (in {standing})")
    if not _is_within(here, folder):
        raise InvalidInput(
            f"{script} lies outside the code directory {folder}",
            hint=f"--code {os.path.relpath(here.parent)}" if not named else "",
        )
    return Path(os.path.relpath(here, standing)).as_posix(), inside


def _is_within(file: Path, folder: Path) -> bool:
    whole = Path(os.path.normpath(file))
    return whole.is_file() and whole.is_relative_to(folder)
