"""A mutation check: the scheduler without one of its rules must turn the checkers red.

Each file of `mutants/` takes one rule away (a patch), and says in its head which invariant is then
broken. A patch that does not apply any more is a failure too: write it anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"
STEPS = 20_000
"""After so many steps without the violation the mutant has survived."""


def head(patch: Path, word: str) -> str:
    found = re.search(rf"^{word}: (.+)$", patch.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{patch.name} has no line {word}: …"
    return found[1]


def mutated(patch: Path, folder: Path) -> Path:
    """A copy of the source with the patch applied."""
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    applied = subprocess.run(
        ["patch", "-p1", "--no-backup-if-mismatch", "-i", str(patch)],
        cwd=folder, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert applied.returncode == 0, f"{patch.name} does not apply: {applied.stdout}"
    return folder / "src"


def storm(source: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / "storm.py"), "--length", "200", *options],
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )


PATCHES = sorted((HERE / "mutants").glob("*.patch"))


def test_there_are_mutants_and_each_applies(tmp_path: Path) -> None:
    assert len(PATCHES) >= 15
    for patch in PATCHES:
        assert head(patch, "Expects").startswith("S-I")
        mutated(patch, tmp_path / patch.stem)
        shutil.rmtree(tmp_path / patch.stem)


@pytest.mark.soak
@pytest.mark.parametrize("patch", PATCHES, ids=[patch.stem for patch in PATCHES])
def test_the_scheduler_without_a_rule_is_caught(patch: Path, tmp_path: Path) -> None:
    source = mutated(patch, tmp_path)
    where = ("--profile", head(patch, "Profile"))
    seen = storm(source, "--steps", str(STEPS), "--expect", head(patch, "Expects"), *where)
    assert seen.returncode == 0, f"{patch.name} survived: {seen.stdout}{seen.stderr}"


@pytest.mark.soak
def test_the_scheduler_with_all_its_rules_is_not(tmp_path: Path) -> None:
    """Else the mutants above would prove nothing."""
    shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for profile in sorted({head(patch, "Profile") for patch in PATCHES}):
        seen = storm(tmp_path / "src", "--steps", "4000", "--profile", profile)
        assert seen.returncode == 0, seen.stdout
