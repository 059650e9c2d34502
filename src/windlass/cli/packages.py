"""Trainers packaged as for Google Cloud's ML service, run as they are:

    windlass run --package-path trainer/ --module-name trainer.task --job-dir out -- --epochs 3

is `python -m trainer.task --epochs 3 --job-dir out` in the folder that holds `trainer`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.core.errors import InvalidInput

if TYPE_CHECKING:
    from windlass.cli.specs import Flags


def as_command(flags: Flags, local: bool) -> Flags:
    """The same job with a command and a code directory in place of the package's flags. Raises
    InvalidInput naming the flag."""
    module = flags.module_name
    if not module:
        given = "--package-path" if flags.package_path else "--job-dir"
        raise InvalidInput(
            f"{given}: which module is to run?", hint="such as --module-name trainer.task"
        )
    if flags.code or flags.no_code:
        other = "--code" if flags.code else "--no-code"
        raise InvalidInput(f"{other} and --module-name exclude each other")
    name = module.partition(".")[0]
    package = Path(os.path.abspath(Path(flags.package_path or name).expanduser()))
    if not package.is_dir():
        raise InvalidInput(f"--package-path: {flags.package_path or name!r} is not a directory")
    if package.name != name:
        raise InvalidInput(
            f"--module-name: {module!r} is no module of the package {package.name!r}",
            hint=f"such as --module-name {package.name}.task",
        )
    if file_of(package.parent, module) is None:
        raise InvalidInput(f"--module-name: {package.parent} has no module {module!r}")
    words = ["python", "-m", module, *flags.command]
    if flags.job_dir:
        words += ["--job-dir", _place(flags.job_dir, local)]
    return flags._replace(
        command=tuple(words),
        code=str(package.parent),
        workdir=flags.workdir or ".",
        package_path=None,
        module_name=None,
        job_dir=None,
    )


def file_of(folder: Path, module: str) -> Path | None:
    """The file that `python -m module` runs, if it lies in a folder."""
    path = folder.joinpath(*module.split("."))
    for each in (path.with_name(path.name + ".py"), path / "__main__.py"):
        if each.is_file():
            return each
    return None


def _place(folder: str, local: bool) -> str:
    """A folder of this machine is meant from here, not from the job's own, which goes away."""
    return folder if "://" in folder or not local else os.path.abspath(os.path.expanduser(folder))
