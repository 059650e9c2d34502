"""Environments for real frameworks: made once, anew when the list changes, honest failures."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from windlass.testing.environments import Unavailable, cache, environment


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINDLASS_TEST_CACHE", str(tmp_path / "envs"))
    return tmp_path / "envs"


def package(folder: Path, name: str) -> str:
    """A package that pip installs without a network: one module, its own build back end."""
    source = folder / name
    source.mkdir(parents=True)
    wheel = f"""
import zipfile
def build_wheel(where, config_settings=None, metadata_directory=None):
    name = "{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(where + "/" + name, "w") as file:
        file.writestr("{name}.py", "answer = 42\\n")
        file.writestr("{name}-1.0.dist-info/METADATA",
                      "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n")
        file.writestr("{name}-1.0.dist-info/WHEEL",
                      "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        file.writestr("{name}-1.0.dist-info/RECORD", "")
    return name
"""
    (source / "backend.py").write_text(wheel)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    return str(source)


def output(python: Path, code: str) -> str:
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
def test_it_is_made_once_and_anew_when_its_list_changes(folder: Path, tmp_path: Path) -> None:
    requirement = package(tmp_path / "packages", "small")
    with ThreadPoolExecutor(2) as pool:
        pythons = list(pool.map(lambda _: environment("one", requirement), range(2)))
    assert pythons[0] == pythons[1] == folder / "one" / "bin" / "python"
    assert output(pythons[0], "import small; print(small.answer)") == "42"

    (folder / "one" / "mark").touch()
    environment("one", requirement)
    assert (folder / "one" / "mark").exists(), "made twice"

    environment("one")
    assert not (folder / "one" / "mark").exists(), "kept although the list changed"


def test_what_cannot_be_installed_says_why(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"environment 'none': .*nowhere"):
        environment("none", str(tmp_path / "nowhere"))
    assert not (cache() / "none.stamp").exists()


def test_a_python_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no-python"):
        environment("odd", python=str(tmp_path / "no-python"))
