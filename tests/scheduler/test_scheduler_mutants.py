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
WITHIN_S = 900
"""For one of these: two cores that do much else take many times what an idle one does."""


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
        timeout=WITHIN_S,
    )


PATCHES = sorted((HERE / "mutants").glob("*.patch"))


def test_there_are_mutants_and_each_applies(tmp_path: Path) -> None:
    assert len(PATCHES) >= 15
    shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for patch in PATCHES:
        assert head(patch, "Expects").startswith("S-I")
        tried = subprocess.run(
            ["patch", "-p1", "--dry-run", "--force", "-i", str(patch)],
            cwd=tmp_path, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert tried.returncode == 0, f"{patch.name} does not apply: {tried.stdout}"


@pytest.mark.soak
@pytest.mark.timeout(WITHIN_S + 60)
@pytest.mark.parametrize("patch", PATCHES, ids=[patch.stem for patch in PATCHES])
def test_the_scheduler_without_a_rule_is_caught(patch: Path, tmp_path: Path) -> None:
    source = mutated(patch, tmp_path)
    where = ("--profile", head(patch, "Profile"))
    seen = storm(source, "--steps", str(STEPS), "--expect", head(patch, "Expects"), *where)
    assert seen.returncode == 0, f"{patch.name} survived: {seen.stdout}{seen.stderr}"


PROFILES = sorted({head(patch, "Profile") for patch in PATCHES})


@pytest.mark.soak
@pytest.mark.timeout(WITHIN_S + 60)
@pytest.mark.parametrize("profile", PROFILES)
def test_the_scheduler_with_all_its_rules_is_not(profile: str, tmp_path: Path) -> None:
    """Else the mutants above would prove nothing."""
    shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    seen = storm(tmp_path / "src", "--steps", "2000", "--profile", profile)
    assert seen.returncode == 0, seen.stdout
