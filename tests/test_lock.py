"""The lock: exact versions of all that `make test` and `make demo` install."""

from __future__ import annotations

import re
import sys
import sysconfig
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
OURS = {"windlass", "pip", "setuptools"}


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements-test.lock").read_text().splitlines()
    found = dict(line.split("==") for line in lines if not line.startswith("#"))
    return found


def wanted() -> list[Requirement]:
    lines = (ROOT / "requirements-test.txt").read_text().splitlines()
    lines = [re.sub(r"\s+#.*", "", line) for line in lines if line and not line.startswith("#")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(line) for line in [*lines, *project["dependencies"]]]


def test_the_lock_names_whatever_is_asked_for_and_within_its_range() -> None:
    known = locked()
    for each in wanted():
        if each.marker is None or each.marker.evaluate():
            version = known.get(canonicalize_name(each.name))
            assert version is not None, f"{each.name}: make lock"
            assert each.specifier.contains(version), f"{each}, locked at {version}: make lock"


def test_what_is_installed_is_what_the_lock_says() -> None:
    if Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("not the environment that `make test` makes")
    known = locked()
    # Not all of `sys.path`: setuptools adds what it brings along, once something imports it.
    for each in distributions(path=[sysconfig.get_path("purelib")]):
        name = canonicalize_name(each.metadata["Name"])
        if name not in OURS:
            assert each.version.partition("+")[0] == known.get(name), f"{name}: make lock"
